//! The locks on the header of an image. They are removed with it.
//!
//! `cephlet` is held
//!
//! - by each node that the volume is published to ([`publication`](crate::backend::ceph::publication)): the
//!   cookie is the node, and another holder must present the same tag;
//! - for some minutes, and exclusively, by the controller that removes or demotes the image
//!   ([`deletion`](crate::backend::ceph::publication::deletion)): the cookie is `delete`.
//!
//! `cephlet.clients` is held by each client by which a node writes to the image ([`clients`]): the cookie is
//! its address, the tag is `clients`.

pub(crate) mod clients;
