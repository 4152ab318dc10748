//! The locks on the header of an image. They die with it.
//!
//! `cephlet` is held
//!
//! - by each node that the volume is published to ([`publication`]): the cookie is the node, the tag is what
//!   others must say to hold it too;
//! - for some minutes, and alone, by the controller that removes or demotes the image ([`deletion_lock`]):
//!   the cookie is `delete`.
//!
//! `cephlet.clients` is held by each client by which a node writes to the image ([`clients`]): the cookie is
//! its address, the tag is `clients`.
//!
//! [`text`] has how descriptions are written.

pub(crate) mod clients;
pub(crate) mod deletion_lock;
pub(crate) mod publication;
mod text;
