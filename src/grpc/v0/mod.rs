//! CSI 0.1 (package `csi`), on the same socket as v1: each handler decodes, works and encodes. Nobody else
//! knows this protocol.
//!
//! It has the same volumes under the same IDs by the same operations. What it does otherwise than v1:
//!
//! | | 0.1 | v1 |
//! |---|---|---|
//! | version of the protocol | in every request | in the package's name |
//! | staging | part of the publishing on the node | rpcs of its own |
//! | the target path | the orchestrator's, and left to it | made and removed, unless it was there |
//! | a second target in a single-node mode | FAILED_PRECONDITION | as `CEPHLET_SINGLE_NODE_TARGETS` says |
//! | taking back what is absent | NOT_FOUND | OK |
//! | deleting what snapshots would keep | FAILED_PRECONDITION | OK, the snapshots live on |
//! | sizes | unsigned | signed |
//! | health | of the controller, and of the node: whether it can attach anything | of the plugin |

pub mod controller;
mod decode;
mod encode;
pub mod identity;
pub mod node;

use protobuf::Message;

use crate::dispatch::{Call, Identical};
use crate::error::{Error, Result};
use crate::grpc::bridge::{Caller, Encoded};
use crate::volume::lock_keys::LockSet;

/// A request as CSI 0.1 asks it. Answers are shared encoded, and v1's is another message: the same request
/// through v1 is another.
#[derive(Debug, PartialEq)]
struct V0Request<Q>(Q);

pub(super) fn not_served(service: &str) -> Error {
    Error::unimplemented(format!(
        "this copy of cephlet does not serve the {service}: ask another one, or set CEPHLET_SERVICES"
    ))
}

/// [`Caller::run`] for a request of this protocol.
fn run<Q: Identical + PartialEq + Sync, R: Message>(
    caller: &Caller<'_>,
    locks: LockSet,
    request: Q,
    work: impl FnOnce(&Call, &Q) -> Result<R>,
) -> Result<Encoded<R>> {
    caller.run(locks, V0Request(request), |call, V0Request(request)| work(call, request))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::VolumeTarget;
    use crate::volume::request::GetVolume;

    #[test]
    fn a_request_is_joined_by_its_own_protocol_only() {
        let request = || GetVolume { volume: VolumeTarget::unknown("local:n:::o:1") };
        assert!(V0Request(request()).identical(&V0Request(request())) && request().identical(&request()));
        assert!(!V0Request(request()).identical(&request()) && !request().identical(&V0Request(request())));
    }
}
