//! Mounts trees of a CephFS file system through the kernel's client: no tool, no Ceph package, and no secret
//! in any command line or attribute.
//!
//! Each mount is a client of its own (`noshare`), so shutting one out harms no other.

use std::ffi::OsStr;
use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::failure::{Answer, During, SyscallFailure};
use super::rbd::{add_key, read_secret, write_secret};
use super::{HelperReply, HelperRequest, Kernel};
use crate::dispatch::Call;
use crate::error::{Error, Kind, Result};
use crate::secrets::Secret;
use crate::sys::ceph::{self, cluster_at};
use crate::sys::mount::{self, Options};

/// How long the kernel tries to reach the cluster, in seconds: less than any deadline of ours. An unmount may
/// take twice that if the file system's servers are away.
const MOUNT_TIMEOUT: &str = "mount_timeout=20";

/// A tree to mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeToMount {
    /// `10.0.0.1:6789,10.0.0.2:6789`
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
    /// Further options of the kernel's client.
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
        write!(f, "{} of CephFS {}", self.path, self.file_system)
    }
}

impl TreeToMount {
    /// The old syntax, which every kernel knows: monitors and path are the source.
    fn source(&self) -> String {
        format!("{}:{}", self.monitors, self.path)
    }

    fn mount_options(&self) -> Options {
        let own = [
            format!("name={}", self.user),
            format!("key=client.{}", self.user),
            format!("mds_namespace={}", self.file_system),
            "noshare".into(),
            MOUNT_TIMEOUT.into(),
        ];
        let all: Vec<String> = own.into_iter().chain(self.options.iter().cloned()).collect();
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
        self.done(call, &step, &request).map_err(|error| advise(error, tree))
    }
}

/// Serves the request.
pub(super) fn serve(tree: &TreeToMount, target: &OsStr) -> Answer<HelperReply> {
    let target = Path::new(target);
    // Where a sandbox forbids it, controllers take the client for one that cephlet has not mounted.
    let _ = ceph::take_host_name(&tree.client);
    add_key(&tree.user, &tree.key).during(|| format!("give the kernel the key of client.{}", tree.user))?;
    mount::mount(Path::new(&tree.source()), target, "ceph", &tree.mount_options())
        .during(|| format!("mount {tree}"))?;
    verify(tree, target).or_else(|wrong| {
        mount::ensure_unmounted(target).during(|| format!("unmount {tree} again")).and(Err(wrong))
    })?;
    Ok(HelperReply::Done)
}

/// The kernel does not compare the cluster with the one that is wanted: another may answer at the monitors'
/// addresses.
fn verify(tree: &TreeToMount, target: &Path) -> Answer<()> {
    let Some(wanted) = &tree.fsid else { return Ok(()) };
    let found = cluster_at(target).during(|| format!("ask which cluster {} is of", target.display()))?;
    match found == *wanted {
        true => Ok(()),
        false => Err(SyscallFailure {
            action: format!("mount {tree}"),
            errno: Some(libc::ESTALE),
            text: format!("the monitors are those of cluster {found}, not of {wanted}"),
        }),
    }
}

fn advise(error: Error, tree: &TreeToMount) -> Error {
    let TreeToMount { user, monitors, path, file_system, options, .. } = tree;
    let (kind, advice) = match error.errno() {
        Some(libc::EHOSTUNREACH | libc::ETIMEDOUT | libc::EIO | libc::ECONNREFUSED | libc::ENETUNREACH) => (
            Kind::Unavailable,
            format!(
                "the kernel says this for a wrong key or an unknown client.{user}, for a missing file system \
                 {file_system:?} or one whose MDS is away, and for monitors that do not answer at {monitors}: \
                 `dmesg` says which"
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
        Some(libc::ENODEV) => {
            (Kind::Precondition, "this kernel has no CephFS client: `modprobe ceph`".to_string())
        }
        Some(libc::ESTALE) => (Kind::Precondition, "check the monitors of the cluster".to_string()),
        _ => return error,
    };
    error.with_kind(kind).hint(advice)
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    fn tree() -> TreeToMount {
        TreeToMount {
            monitors: "10.0.0.1:6789,10.0.0.2:6789".into(),
            user: "node".into(),
            key: Secret::new("AQBkey=="),
            file_system: "cephfs".into(),
            path: "/volumes/csi/csi-vol-a/0-1".into(),
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
