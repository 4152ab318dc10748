//! CSI 0.1 (package `csi`), on the same socket as v1: each handler decodes, works and encodes. No other
//! module knows this protocol.
//!
//! It serves the same volumes under the same IDs by the same operations. Its differences from v1:
//!
//! | | 0.1 | v1 |
//! |---|---|---|
//! | version of the protocol | in every request | in the package's name |
//! | staging | part of the publishing on the node | rpcs of its own |
//!  the target path | left to the orchestrator | made and removed, unless it was there |
//! | a second target in a single-node mode | FAILED_PRECONDITION | as `CEPHLET_SINGLE_NODE_TARGETS` says |
//!  unpublishing an absent volume | NOT_FOUND | OK |
//!  deleting a volume that snapshots need | FAILED_PRECONDITION | OK, the snapshots live on |
//! | sizes | unsigned | signed |
//! | health | of the controller, and of the node: whether it can attach anything | of the plugin |

mod controller;
mod decode;
mod encode;
mod identity;
mod node;
