//! The locks on the header of an image. They die with it.
//!
//! | lock | held by | cookie | tag | description |
//! |---|---|---|---|---|
//! | `cephlet` | each node that the volume is published to: [`publication`] | the node | what others must say to hold it too | how it is published |
//! | `cephlet` | for some minutes, the controller that removes or demotes the image: [`deletion_lock`] | `delete` | | the controller |
//! | `cephlet.clients` | each client by which a node writes to the image: [`clients`] | its address | `clients` | whose it is |
//!
//! [`text`] has how descriptions are written.

pub(crate) mod clients;
pub(crate) mod deletion_lock;
pub(crate) mod publication;
mod text;
