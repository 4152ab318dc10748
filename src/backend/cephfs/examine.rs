//! What `cephlet doctor` finds in file systems: an index that may not be read, and copies that their manager
//! has lost.

use std::sync::Arc;

use crate::backend::Finding;
use crate::backend::ceph::ClusterAccess;
use crate::backend::ceph::examine::{clusters, refused, whole};
use crate::backend::cephfs::context::{Context, Fs};
use crate::backend::cephfs::volumes::copy;
use crate::backend::finding::COPY_LEFT;
use crate::dispatch::Call;
use crate::error::Result;

/// The findings in all clusters that answer. A user who may read the index may change it.
pub(crate) fn examine(context: &Arc<Context>) -> Vec<Finding> {
    let own = Arc::clone(context);
    let look = move |call: &Call, access: &ClusterAccess| {
        whole(&own.monitors.of(call, access), || in_file_systems(&own, call, access))
    };
    clusters(&context.clusters, Arc::new(look))
}

fn in_file_systems(context: &Context, call: &Call, access: &ClusterAccess) -> Result<Vec<Finding>> {
    let in_one = |root: Fs<'_>| {
        let place = format!("{}/{}", access.cluster.name, root.file_system.name);
        lost_copies(&root, &place).unwrap_or_else(|error| vec![refused(place, &error)])
    };
    Ok(context.roots(call, access)?.into_iter().flat_map(in_one).collect())
}

fn lost_copies(root: &Fs<'_>, place: &str) -> Result<Vec<Finding>> {
    let mut found = Vec::new();
    let copies = root.index().all()?.into_iter().filter(|(.., entry)| entry.copy_of.is_some());
    for (group, object, entry) in copies {
        let fs = root.in_group(&group);
        if copy::is_lost(&fs, &object, &entry)? {
            let meaning =
                format!("the manager died when it began the copy {object}, and no command removes it");
            let lost = Finding::new(&COPY_LEFT, format!("{place}/{group}/{object}"), meaning);
            found.push(lost.mended_by(copy::how_to_remove_lost(&fs, &object)));
        }
    }
    Ok(found)
}
