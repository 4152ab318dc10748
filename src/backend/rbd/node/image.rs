//! An image of a cluster, as a node knows it, and which of the images that are mapped it is.

use std::fmt;
use std::sync::Arc;

use crate::clusters::Cluster;
use crate::error::{Error, Result};
use crate::sys::rbd::MappedImage;

/// An image of a cluster.
#[derive(Clone, Copy, Debug)]
pub struct Image<'a> {
    /// The cluster.
    pub cluster: &'a Cluster,
    /// Where nothing is known of the cluster but its name: all others that are set up.
    pub others: Option<&'a [Arc<Cluster>]>,
    /// The cluster's own id, where it is known.
    pub fsid: Option<&'a str>,
    /// The pool.
    pub pool: &'a str,
    /// The namespace; empty for the default one.
    pub namespace: &'a str,
    /// The name it has now.
    pub name: &'a str,
    /// The image's id; needed to map it, and to find it after a rename.
    pub id: Option<&'a str>,
}

impl Image<'_> {
    pub(super) fn is(&self, mapped: &MappedImage) -> bool {
        let cluster = self.fsid.filter(|_| !mapped.fsid.is_empty()).map(|fsid| fsid == mapped.fsid);
        let image = match self.id {
            // Ids are random. That of a cluster whose monitors have moved must be known again, or it would be
            // mapped twice.
            Some(id) => mapped.image_id == id && cluster.unwrap_or(true),
            None => mapped.name == self.name && cluster.unwrap_or_else(|| self.may_be_from_cluster(mapped)),
        };
        image
            && (mapped.pool.as_str(), mapped.namespace.as_str(), mapped.snapshot.as_str())
                == (self.pool, self.namespace, "-")
    }

    /// Told by the monitors. Where those are not known, by its being from no other cluster.
    fn may_be_from_cluster(&self, mapped: &MappedImage) -> bool {
        match self.others {
            None => is_from(self.cluster, mapped),
            Some(others) => !others.iter().any(|other| is_from(other, mapped)),
        }
    }

    pub(super) fn id(&self) -> Result<&str> {
        self.id.ok_or_else(|| Error::internal(format!("{self} was to be mapped before its id was known")))
    }
}

fn is_from(cluster: &Cluster, mapped: &MappedImage) -> bool {
    let its_own = |address: &str| {
        let monitors = cluster.monitors.iter();
        monitors.flat_map(|monitor| [&monitor.v1, &monitor.v2]).flatten().any(|known| known == address)
    };
    cluster.fsid.as_ref() == Some(&mapped.fsid) || mapped.monitors().any(its_own)
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
