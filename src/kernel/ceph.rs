//! Mounts trees of a CephFS file system through the kernel's client: no tool, no Ceph package, and no secret
//! in any command line or attribute.
//!
//! Each mount is a client of its own (`noshare`), so shutting one out harms no other.

mod mounted;

use std::fmt;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

pub use self::mounted::Tree;
pub(super) use self::mounted::{look_at, unmount};

use super::failure::{Answer, During, SyscallFailure};
use super::rbd::{add_key, read_secret, write_secret};
use super::{HelperRequest, Kernel};
use crate::dispatch::Call;
use crate::error::{Error, Kind, Result};
use crate::exec::Class;
use crate::secrets::Secret;
use crate::sys::ceph::{cluster_at, take_host_name};
use crate::sys::mount::{self, Options};
use crate::sys::unseen;

/// How long the kernel tries to reach the cluster, in seconds: less than any deadline of ours. An unmount may
/// take twice that if the file system's servers are away.
const MOUNT_TIMEOUT: &str = "mount_timeout=20";

/// The directory of a directory's snapshots.
const SNAPSHOTS: &str = ".snap";

/// The client that mounts a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mounter {
    /// The kernel's.
    #[default]
    Kernel,
    /// The process ceph-fuse.
    Fuse,
}

/// A tree to mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeToMount {
    /// The client that mounts.
    pub mounter: Mounter,
    /// `10.0.0.1:6789,10.0.0.2:6789`; for ceph-fuse as its option `-m` takes them.
    pub monitors: String,
    /// The user that mounts, without `client.`.
    pub user: String,
    /// The user's key, in base64.
    #[serde(serialize_with = "write_secret", deserialize_with = "read_secret")]
    pub key: Secret,
    /// The file system.
    pub file_system: String,
    /// The path of the tree's root there.
    pub path: String,
    /// The snapshot of that root that is the tree; None for the root itself. Only the kernel's client mounts
    /// it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// Further options of the client.
    pub options: Vec<String>,
    /// The cluster, if it is known.
    pub fsid: Option<String>,
    /// Whether nothing may be written.
    pub read_only: bool,
    /// The name under which the metadata servers know the mount.
    pub client: String,
}

impl fmt::Display for TreeToMount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let snapshot = self.snapshot.iter().map(|snapshot| format!("@{snapshot}")).collect::<String>();
        write!(f, "{}{snapshot} of CephFS {}", self.path, self.file_system)
    }
}

impl TreeToMount {
    /// The old syntax, which every kernel knows: monitors and path are the source.
    fn source(&self) -> String {
        let path = if self.snapshot.is_some() { "/" } else { &self.path };
        format!("{}:{path}", self.monitors)
    }

    /// Where the snapshot's tree is in the file system. The manager takes snapshots of the directory that
    /// holds the root, which outlives the root; in subvolumes of the old form that is the root itself.
    fn places(&self) -> Vec<String> {
        let Some(snapshot) = &self.snapshot else { return Vec::new() };
        let below = self.path.rsplit_once('/');
        let below = below.map(|(parent, last)| format!("{parent}/{SNAPSHOTS}/{snapshot}/{last}"));
        below.into_iter().chain([format!("{}/{SNAPSHOTS}/{snapshot}", self.path)]).collect()
    }

    fn mount_options(&self) -> Options {
        let own = [
            format!("name={}", self.user),
            format!("key=client.{}", self.user),
            format!("mds_namespace={}", self.file_system),
            "noshare".into(),
            MOUNT_TIMEOUT.into(),
        ];
        let taken = self.snapshot.iter().map(|_| format!("snapdirname={SNAPSHOTS}"));
        let all: Vec<String> = own.into_iter().chain(self.options.iter().cloned()).chain(taken).collect();
        let options = Options::parse(&all);
        if self.read_only { options.read_only() } else { options }
    }
}

impl Kernel {
    /// Mounts a tree. A mount that is at the target already gets covered: look first.
    ///
    /// # Errors
    /// Those of mount(2), explained: the kernel says EHOSTUNREACH for most of them.
    pub fn mount_tree(&self, call: &Call, tree: &TreeToMount, target: &Path) -> Result<()> {
        let step = format!("mount {tree} on {}", target.display());
        let request = HelperRequest::MountTree { tree: tree.clone(), target: target.into() };
        self.ask(call, &step, Class::Change, &request).map_err(|error| advise(error, tree))
    }

    /// Unmounts a tree that was mounted just now, unless it is of the cluster that is wanted.
    ///
    /// # Errors
    /// It is not.
    pub fn verify_tree(&self, call: &Call, tree: &TreeToMount, target: &Path) -> Result<()> {
        let step = format!("look which cluster {} is of", target.display());
        let request = HelperRequest::VerifyTree { tree: tree.clone(), target: target.into() };
        self.ask(call, &step, Class::Change, &request).map_err(|error| advise(error, tree))
    }
}

/// Serves the request.
pub(super) fn serve(tree: &TreeToMount, target: &Path) -> Answer<()> {
    // Where a sandbox forbids it, controllers take the client for one that cephlet has not mounted.
    let _ = take_host_name(&tree.client);
    add_key(&tree.user, &tree.key).during(|| format!("give the kernel the key of client.{}", tree.user))?;
    match tree.snapshot {
        None => mount_checked(tree, target),
        Some(_) => mount_snapshot(tree, target),
    }
}

/// The kernel mounts no snapshot. So the whole file system is mounted in a namespace of its own, which ends
/// with this helper, and a copy of the snapshot's part of that mount is put to the target: a helper that is
/// killed leaves nothing. The target shows nothing else at any time.
///
/// Files whose directory is deleted by now have no path, so a user that is confined to a path cannot read
/// them in the snapshot. It cannot mount the whole file system either, and is refused here, rather than at
/// some file.
fn mount_snapshot(tree: &TreeToMount, target: &Path) -> Answer<()> {
    let part = unseen::in_own_namespace(|| {
        mount_checked(tree, target)?;
        let below = |place: &String| target.join(place.trim_start_matches('/'));
        let found = tree.places().iter().map(below).find(|place| place.is_dir());
        let found = found.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT));
        found.and_then(|found| unseen::copy(&found)).during(|| format!("find {tree}"))
    });
    let part =
        part.during(|| "make a namespace for mounts (RestrictNamespaces=mnt in a unit)".to_string())??;
    unseen::put(&part, target).during(|| format!("mount {tree}"))
}

/// Mounts it, if it is of the cluster that is wanted.
fn mount_checked(tree: &TreeToMount, target: &Path) -> Answer<()> {
    mount::mount(Path::new(&tree.source()), target, "ceph", &tree.mount_options())
        .during(|| format!("mount {tree}"))?;
    verify(tree, target)
}

/// Serves the request.
pub(super) fn verify(tree: &TreeToMount, target: &Path) -> Answer<()> {
    check_cluster(tree, target).or_else(|wrong| {
        mount::ensure_unmounted(target).during(|| format!("unmount {tree} again")).and(Err(wrong))
    })
}

/// The kernel does not compare the cluster with the one that is wanted: another may answer at the monitors'
/// addresses.
fn check_cluster(tree: &TreeToMount, target: &Path) -> Answer<()> {
    let Some(wanted) = &tree.fsid else { return Ok(()) };
    let found = cluster_at(target).during(|| format!("ask which cluster {} is of", target.display()))?;
    match found == *wanted {
        true => Ok(()),
        false => Err(SyscallFailure {
            action: Some(format!("mount {tree}")),
            errno: Some(libc::ESTALE),
            text: format!("the monitors are those of cluster {found}, not of {wanted}"),
        }),
    }
}

fn advise(error: Error, tree: &TreeToMount) -> Error {
    let TreeToMount { user, monitors, path, file_system, options, snapshot, .. } = tree;
    let (kind, advice) = match error.errno() {
        Some(libc::EHOSTUNREACH | libc::ETIMEDOUT | libc::EIO | libc::ECONNREFUSED | libc::ENETUNREACH) => (
            Kind::Unavailable,
            format!(
                "the kernel says this for a wrong key or an unknown client.{user}, for a missing file system \
                 {file_system:?} or one whose MDS is away, and for monitors that do not answer at {monitors}: \
                 `dmesg` says which"
            ),
        ),
        Some(libc::ENOENT) if let Some(snapshot) = snapshot => (
            Kind::Precondition,
            format!(
                "{path} has no snapshot {snapshot} in {file_system:?}, or the file system hides its snapshots: make the \
                 volume with the parameter \"backingSnapshot\" = \"false\", which copies it"
            ),
        ),
        Some(libc::EACCES) if snapshot.is_some() => (
            Kind::Unauthenticated,
            format!(
                "to read a snapshot, client.{user} needs `mds 'allow r, allow rw path=/volumes/GROUP'` beside its other \
                 rights; or make the volume with the parameter \"backingSnapshot\" = \"false\", which copies it"
            ),
        ),
        Some(libc::ENOENT) => (Kind::NotFound, format!("there is no {path} in {file_system:?}")),
        Some(libc::EACCES | libc::EPERM) => (
            Kind::Unauthenticated,
            format!(
                "client.{user} may not mount it, or the cluster has blocklisted this node: a node's user needs \
                 `mon 'allow r' mds 'allow rw path=/volumes/GROUP' osd 'allow rw tag cephfs data={file_system}'`, and \
                 `ceph osd blocklist ls` shows this node's address"
            ),
        ),
        Some(libc::EKEYREJECTED) => (
            Kind::Unauthenticated,
            format!("the key is no key of Ceph: `ceph auth get client.{user}` shows it"),
        ),
        Some(libc::EINVAL) if !options.is_empty() => (
            Kind::InvalidArgument,
            "the kernel's client does not know one of the mount options: see `dmesg`".to_string(),
        ),
        Some(libc::ENODEV) => (
            Kind::Precondition,
            "this kernel has no CephFS client: run `modprobe ceph` on the host".to_string(),
        ),
        Some(libc::ESTALE) => (Kind::Precondition, "check the monitors of the cluster".to_string()),
        _ => return error,
    };
    error.with_kind(kind).hint(advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> TreeToMount {
        TreeToMount {
            mounter: Mounter::Kernel,
            monitors: "10.0.0.1:6789,10.0.0.2:6789".into(),
            user: "node".into(),
            key: Secret::new("AQBkey=="),
            file_system: "cephfs".into(),
            path: "/volumes/csi/csi-vol-a/0-1".into(),
            snapshot: None,
            options: vec!["noatime".into(), "rasize=4096".into()],
            fsid: None,
            read_only: true,
            client: "cephlet/n1".into(),
        }
    }

    #[test]
    fn the_kernel_gets_the_old_syntax_and_no_key() {
        assert_eq!(tree().source(), "10.0.0.1:6789,10.0.0.2:6789:/volumes/csi/csi-vol-a/0-1");
        let words = ["ro", "noatime", "name=node", "key=client.node", "mds_namespace=cephfs", "noshare"];
        let expected = Options::parse(&[&words[..], &["mount_timeout=20", "rasize=4096"]].concat());
        assert_eq!(tree().mount_options(), expected);
    }

    #[test]
    fn a_snapshot_is_a_part_of_the_whole_file_system() {
        let tree = TreeToMount { snapshot: Some("s".into()), ..tree() };
        assert_eq!(tree.source(), "10.0.0.1:6789,10.0.0.2:6789:/");
        let places = ["/volumes/csi/csi-vol-a/.snap/s/0-1", "/volumes/csi/csi-vol-a/0-1/.snap/s"];
        assert_eq!(tree.places(), places);
        for (errno, words) in [(libc::ENOENT, "backingSnapshot"), (libc::EACCES, "allow r,")] {
            let error = advise(Error::io("mount", &io::Error::from_raw_os_error(errno)), &tree);
            assert!(error.message().contains(words), "{error}");
        }
    }

    #[test]
    fn what_the_kernel_answers_is_said_in_words() {
        for (errno, kind, words) in [
            (libc::EHOSTUNREACH, Kind::Unavailable, "client.node"),
            (libc::EHOSTUNREACH, Kind::Unavailable, "10.0.0.1:6789"),
            (libc::ENOENT, Kind::NotFound, "/volumes/csi/csi-vol-a/0-1"),
            (libc::EACCES, Kind::Unauthenticated, "blocklist"),
            (libc::EINVAL, Kind::InvalidArgument, "dmesg"),
            (libc::ENODEV, Kind::Precondition, "modprobe ceph"),
            (libc::EMFILE, Kind::Internal, "mount"),
        ] {
            let error = advise(Error::io("mount", &io::Error::from_raw_os_error(errno)), &tree());
            assert_eq!((error.kind(), error.errno()), (kind, Some(errno)));
            assert!(error.message().contains(words) && !error.message().contains("AQBkey"), "{error}");
        }
    }
}
