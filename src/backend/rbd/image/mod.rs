//! Images: the volumes, and what cephlet makes of them on the way.

pub(crate) mod capacity;
pub(crate) mod clone;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod deletion_lock;
pub(crate) mod gone;
pub(crate) mod inspect;
pub(crate) mod list;
pub(crate) mod outlived;
pub(crate) mod qos;
pub(crate) mod record;
pub(crate) mod records;
pub(crate) mod rename;
pub(crate) mod retain;
pub(crate) mod temporaries;
pub(crate) mod trash;
