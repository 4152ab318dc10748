//! What `cephlet doctor` finds: a look at this node and, for a controller, at the storage. It changes
//! nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::Path;

use crate::backend::finding::{
    BACKEND_UNUSABLE, DELETION_PENDING, DEVICE_UNKNOWN, JOURNAL_WITHOUT_ROOM, MOUNT_UNKNOWN, TOOL_MISSING,
};
use crate::backend::{DeviceHere, Finding, Service, Traits};
use crate::dispatch::Call;
use crate::error::{Error, Result};
use crate::exec::{CommandError, Tool};
use crate::ids::VolumeId;
use crate::volume::Operations;
use crate::volume::deletion::BegunDeletion;
use crate::volume::node::mounts;
use crate::volume::node::record::NodeRecord;
use crate::volume::request::Access;

/// The journal keeps more bytes for removals than this, unless its disk is full.
const ROOM: u64 = 64 << 10;

/// What a controller asks clusters with.
pub const OF_CLUSTERS: [Tool; 3] = [Tool::Rbd, Tool::Rados, Tool::Ceph];

/// What a node needs for the usual file system.
pub const OF_DEVICES: [Tool; 3] = [Tool::MkfsExt4, Tool::E2fsck, Tool::Resize2fs];

impl Operations {
    /// Everything that is not as it should be, except for the conditions of volumes; each finding once.
    /// `is_controller`: look at the storage, too.
    pub fn examine(&self, is_controller: bool) -> Result<Vec<Finding>> {
        let faults = self.storage_health().into_iter().map(|fault| Finding::of_fault(fault, ""));
        let mut found: Vec<Finding> = self.unusable(is_controller).into_iter().chain(faults).collect();
        found.extend(missing_tools(self.needed_tools(is_controller), |tool| self.runner.has(tool)));
        found.extend(self.journal_without_room());
        if self.serves_node {
            found.extend(self.unknown_mounts()?);
            found.extend(self.unknown_devices()?);
        }
        if is_controller {
            found.extend(self.pending_deletions());
            found.extend(self.backends.iter().flat_map(|backend| backend.examine()));
        }
        // Backends on the same cluster find the same.
        let by_name: BTreeMap<String, Finding> =
            found.into_iter().map(|finding| (finding.name.clone(), finding)).collect();
        Ok(by_name.into_values().collect())
    }

    /// Mends what the finding of this name is about.
    ///
    /// # Errors
    /// `NotFound`: there is no such finding, or cephlet cannot mend it.
    pub fn mend(&self, call: &Call, is_controller: bool, name: &str) -> Result<()> {
        let finding = self.examine(is_controller)?.into_iter().find(|it| it.name == name);
        let remedy = finding.and_then(|finding| finding.remedy).ok_or_else(|| {
            Error::not_found(format!(
                "cephlet finds no {name:?} that it could mend by itself: `cephlet doctor` shows how each finding is \
                 mended"
            ))
        })?;
        remedy(call)
    }

    /// The volumes that are in use on this node.
    pub fn ids_here(&self) -> Vec<String> {
        let in_use = self.node_records().into_iter().filter(|(_, record)| !record.is_unused());
        in_use.map(|(_, record)| record.volume_id).collect()
    }

    fn unusable(&self, is_controller: bool) -> Vec<Finding> {
        let services = [(Service::Controller, is_controller), (Service::Node, self.serves_node)];
        let served = services.into_iter().filter(|(_, is_served)| *is_served);
        let troubles = served.flat_map(|(service, _)| {
            self.backends.iter().filter_map(move |it| Some((it.name(), it.health(service).err()?)))
        });
        troubles.map(|(backend, error)| Finding::new(&BACKEND_UNUSABLE, backend, error)).collect()
    }

    fn needed_tools(&self, is_controller: bool) -> Vec<Tool> {
        let has = |is: fn(&Traits) -> bool| self.backends.iter().any(|it| is(&it.traits()));
        let mut needed = Vec::new();
        if is_controller && has(|traits| traits.is_remote) {
            needed.extend(OF_CLUSTERS);
        }
        if self.serves_node && has(|traits| traits.grows_on_nodes) {
            needed.extend(OF_DEVICES);
        }
        for (_, NodeRecord { access, .. }) in self.node_records() {
            match &access {
                Access::Mount { fs_type, .. } if fs_type == "xfs" => needed.push(Tool::XfsGrowfs),
                Access::Mount { fs_type, .. } if fs_type == "btrfs" => needed.push(Tool::Btrfs),
                _ => {}
            }
        }
        needed
    }

    fn journal_without_room(&self) -> Option<Finding> {
        let (_, kept) = self.journal.size();
        let (place, meaning) = (self.layout.state_dir().display(), "its disk has no room for the journal");
        (kept < ROOM).then(|| Finding::new(&JOURNAL_WITHOUT_ROOM, place, meaning))
    }

    /// Own mounts without a record. A record comes before its mount and goes after it, so the records are
    /// read before and after the kernel is asked.
    fn unknown_mounts(&self) -> Result<Vec<Finding>> {
        let mut records = self.node_records();
        let (mounts, own) = (mounts::read()?, mounts::resolved(self.layout.mount_points())?);
        let name = |path: &Path| path.file_name().map(OsString::from);
        records.extend(self.node_records());
        let known: BTreeSet<_> = records.iter().map(|(key, _)| name(&self.layout.mount_point(key))).collect();
        let unknown = mounts.within(&own).filter(|path| !known.contains(&name(path)));
        let meaning = "it is a mount of cephlet's, and no volume in use here is mounted there";
        Ok(unknown.map(|path| Finding::new(&MOUNT_UNKNOWN, path.display(), meaning)).collect())
    }

    /// Devices of volumes without a record, which is read twice here, too.
    fn unknown_devices(&self) -> Result<Vec<Finding>> {
        let (mut records, mut devices) = (self.node_records(), Vec::new());
        for backend in self.backends.all() {
            devices.extend(backend.node().devices()?);
        }
        records.extend(self.node_records());
        let known: BTreeSet<String> =
            records.iter().filter_map(|(_, it)| Some(VolumeId::parse(&it.volume_id)?.object)).collect();
        let unknown = devices.into_iter().filter(|device| !known.contains(&device.object));
        let finding = |device: DeviceHere| {
            let meaning =
                format!("it is a device of volume {}, which this daemon does not use here", device.object);
            Finding::new(&DEVICE_UNKNOWN, device.path.display(), meaning).mended_by(device.detach)
        };
        Ok(unknown.map(finding).collect())
    }

    /// Deletions that wait for their place to be set up. Others are finished in the background.
    fn pending_deletions(&self) -> Vec<Finding> {
        let waiting =
            self.deletions().into_iter().filter(|it| self.backends.for_place(it.of.place()).is_none());
        let finding = |deletion: BegunDeletion| {
            let (of, cluster) = (&deletion.of, &deletion.of.place().cluster);
            let meaning = format!(
                "its deletion was begun at {}, and cluster {cluster:?} is not set up here",
                deletion.when()
            );
            Finding::new(&DELETION_PENDING, of, meaning)
        };
        waiting.map(finding).collect()
    }
}

/// The tools among `needed` that are not there.
pub fn missing_tools(
    needed: impl IntoIterator<Item = Tool>,
    has: impl Fn(Tool) -> Result<(), CommandError>,
) -> Vec<Finding> {
    let missing = needed.into_iter().filter_map(|tool| Some((tool, Error::from(has(tool).err()?))));
    let finding = |(tool, error): (Tool, Error)| {
        let package = tool.package();
        let mend = format!("apt-get install {package} (or dnf), then: systemctl restart cephlet");
        Finding::new(&TOOL_MISSING, tool.file_name(), error).mended_by(mend)
    };
    missing.map(finding).collect()
}
