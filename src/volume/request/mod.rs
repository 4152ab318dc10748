//! Requests of the orchestrator, checked before any lock or path is touched.
//!
//! Every protocol converts its messages into these types, and no code behind them knows the protocol. Two
//! requests are the same exactly if they compare equal, secrets included.

pub mod validate;

pub use crate::csi::{
    Access, Capability, FS_TYPE, Map, Mode, NOT_YET, ROLE_KEY, SizeRange, Source, TopologyRequirement,
};

/// Declares a request: a struct whose `checked` runs its checks and returns it. `=> map("parameters")` after
/// a field checks it by [`validate::map`], which names it so. What concerns several fields is checked last.
macro_rules! request {
    (
        $(#[$doc:meta])* $name:ident {
            $($(#[$fdoc:meta])* $field:ident: $type:ty $(=> $check:ident($($named:literal)?))?,)*
        } $(check |$it:ident| $checks:block)?
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name { $($(#[$fdoc])* pub $field: $type,)* }

        impl $name {
            /// The request if every field is present, well-formed and within the specification's limits; else
            /// the first field that is not, by name.
            pub fn checked(self) -> Result<Self> {
                $($(validate::$check($($named,)? &self.$field)?;)?)*
                $(
                    let $it = &self;
                    $checks
                )?
                Ok(self)
            }
        }
    };
}

mod controller;
mod fencing;
mod node;
mod replication;

pub use self::controller::{
    ControllerPublish, ControllerUnpublish, CreateSnapshot, CreateVolume, DeleteVolume, Expand, FindNamed,
    GetCapacity, GetVolume, ListHealth, ListSnapshots, Modify, PageRequest, SnapshotById, Validate,
};
pub use self::fencing::FenceRequest;
pub use self::node::{
    NodeExpand, NodePublish, NodePublishUnstaged, NodeStage, NodeUnpublish, NodeUnstage, NodeVolumeHealth,
    Stats,
};
pub use self::replication::{ReplicatedObject, ReplicationParameters, ReplicationRequest, replicated_volume};
