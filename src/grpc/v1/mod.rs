//! CSI v1 (package `csi.v1`): each handler decodes, works and encodes.

mod controller;
pub(super) mod decode;
pub mod encode;
mod identity;
mod node;
