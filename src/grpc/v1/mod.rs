//! CSI v1 (package `csi.v1`): each handler decodes, works and encodes.

pub mod controller;
pub(super) mod decode;
pub mod encode;
pub mod identity;
pub mod node;
