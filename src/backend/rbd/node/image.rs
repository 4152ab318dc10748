//! An image of a cluster, as a node knows it, and how to recognize it among the mapped images.

use std::fmt;

use crate::clusters::Cluster;
use crate::error::{Error, Result};
use crate::sys::rbd::MappedImage;

/// An image of a cluster.
#[derive(Clone, Copy, Debug)]
pub struct Image<'a> {
    /// The cluster.
    pub cluster: &'a Cluster,
    /// The pool.
    pub pool: &'a str,
    /// The namespace; empty for the default one.
    pub namespace: &'a str,
    /// The name it has now.
    pub name: &'a str,
    /// The image's id; needed to map it, and to find it after a rename or where its cluster is not set up.
    pub id: Option<&'a str>,
}

impl Image<'_> {
    /// Whether `mapped` is this image. Its id matches even after the monitors moved: it is not mapped twice.
    pub(super) fn is(&self, mapped: &MappedImage) -> bool {
        let fsid = self.cluster.fsid.as_deref();
        match self.id {
            Some(id) => mapped.is((self.pool, self.namespace, id), fsid),
            None => {
                let is_from = match fsid.filter(|_| !mapped.fsid.is_empty()) {
                    Some(fsid) => fsid == mapped.fsid,
                    None => self.has_monitor_of(mapped),
                };
                mapped.is_in(self.pool, self.namespace) && mapped.name == self.name && is_from
            }
        }
    }

    fn has_monitor_of(&self, mapped: &MappedImage) -> bool {
        let monitors = self.cluster.monitors.iter().flat_map(|monitor| [&monitor.v1, &monitor.v2]);
        monitors.flatten().any(|address| mapped.monitors.contains(address))
    }

    pub(super) fn id(&self) -> Result<&str> {
        self.id.ok_or_else(|| Error::internal(format!("{self} was to be mapped before its id was known")))
    }
}

/// `POOL/NAMESPACE/NAME`, as the tools take it.
impl fmt::Display for Image<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace {
            "" => write!(f, "{}/{}", self.pool, self.name),
            namespace => write!(f, "{}/{namespace}/{}", self.pool, self.name),
        }
    }
}
