//! Mounts by ceph-fuse: a process for each mount, which outlives the daemon.
//!
//! The source of the mount carries the path, so the table of mounts identifies the volume as it does for the
//! kernel's client, also after the process has died. The last argument of the process is its mount point. A
//! process without a mount is one that starts, or that writes out what it holds after an unmount.

use std::path::Path;
use std::time::Duration;

use crate::dispatch::Call;
use crate::error::{Error, Kind, Result};
use crate::exec::{Class, Cmd, CommandError, Runner, Tool, Why};
use crate::kernel::Kernel;
use crate::kernel::ceph::TreeToMount;
use crate::sys::process;

/// How long ceph-fuse tries to reach the cluster, in seconds.
const CONNECT_SECONDS: &str = "20";
/// How long a process without a mount is waited for, and how often it is looked for.
const ENDING: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(100);

/// Checks that ceph-fuse can be used here; the error says what to install.
pub(super) fn usable(runner: &dyn Runner, in_container: bool) -> Result<()> {
    let why = "ceph-fuse would end with this container: use the kernel's client";
    if in_container { Err(Error::precondition(why)) } else { Ok(runner.has(Tool::CephFuse)?) }
}

/// Mounts a tree. ceph-fuse ends its first process when it is mounted; another one stays.
pub(super) fn mount(
    call: &Call,
    (runner, kernel): (&dyn Runner, &Kernel),
    tree: &TreeToMount,
    at: &Path,
) -> Result<()> {
    // An earlier daemon may have begun to mount, and a second mount would cover the first.
    await_end(call, runner, at)?;
    runner.run(call, &command(tree, at)).map_err(|error| explain(error, tree))?;
    kernel.verify_tree(call, tree, at)
}

/// Waits until no ceph-fuse is left that serves, or will serve, this mount point.
///
/// # Errors
/// Unavailable if one stays.
pub(super) fn await_end(call: &Call, runner: &dyn Runner, at: &Path) -> Result<()> {
    if runner.has(Tool::CephFuse).is_err() {
        return Ok(());
    }
    let (what, mut last) = (format!("ceph-fuse to leave {}", at.display()), None);
    let ended = call.wait_for(what, ENDING, LOOK, || {
        last = process::of_tool(Tool::CephFuse.file_name(), at.as_os_str());
        Ok(last.is_none().then_some(()))
    })?;
    match (ended, last) {
        (None, Some(process)) => Err(Error::unavailable(format!(
            "ceph-fuse (process {process}) of {} still starts, is in use, or writes out what it holds: try again once its \
             cluster answers; `kill -9 {process}` gives up what is not written",
            at.display()
        ))),
        _ => Ok(()),
    }
}

/// The key is in memory, and nothing else comes from a file.
fn command(tree: &TreeToMount, at: &Path) -> Cmd {
    let TreeToMount { monitors, user, key, file_system, path, options, read_only, client, .. } = tree;
    let own = ["subtype=ceph-fuse".to_string(), format!("fsname=ceph-fuse:{path}")];
    let read_only = read_only.then(|| "ro".to_string());
    let options: Vec<String> = own.into_iter().chain(options.iter().cloned()).chain(read_only).collect();
    Cmd::new(Tool::CephFuse, Class::Change)
        .outliving()
        .host_name(client)
        .args(["-c", "/dev/null", "-m", monitors, "--id", user])
        .memory_file("--keyfile", key.clone())
        .args(["-r", path, "--client_fs", file_system, "--client-mount-timeout", CONNECT_SECONDS])
        .args(["--log-file=", "--admin-socket="])
        .args(["-o", &options.join(",")])
        .arg(at)
}

/// ceph-fuse exits with 1 for most failures. Its text names the cause (seen with 16.2.15).
fn explain(failure: CommandError, tree: &TreeToMount) -> Error {
    let TreeToMount { user, monitors, path, file_system, .. } = tree;
    let said = match &failure.why {
        Why::Failed { stderr_tail, .. } => stderr_tail.clone(),
        _ => String::new(),
    };
    let (says, error) = (|words: &str| said.contains(words), Error::from(failure));
    let (kind, advice) = match () {
        () if says("handle_auth_bad_method") || says("failed to decode key") => (
            Kind::Unauthenticated,
            format!("the cluster refuses client.{user} or its key: `ceph auth get client.{user}` shows it"),
        ),
        () if says("fetch mon config") => {
            (Kind::Unavailable, format!("the monitors do not answer at {monitors}"))
        }
        () if says("no MDS server is up") || says("timed out") => (
            Kind::Unavailable,
            format!("{file_system:?} has no MDS that answers: `ceph fs status` shows them"),
        ),
        () if says("mount failed with (1)") || says("mount failed with (13)") => (
            Kind::Unauthenticated,
            format!(
                "client.{user} may not mount {path}: a node's user needs `mon 'allow r' mds 'allow rw \
                 path=/volumes/GROUP' osd 'allow rw tag cephfs data={file_system}'`"
            ),
        ),
        () if says("mount failed with (2)") => {
            (Kind::NotFound, format!("there is no {path} in {file_system:?}, or no such file system"))
        }
        () if says("unknown option") => {
            (Kind::InvalidArgument, "ceph-fuse does not know one of the mount options".to_string())
        }
        () => return error.context(format_args!("mount {tree}")),
    };
    error.with_kind(kind).hint(advice).context(format_args!("mount {tree}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::exec::fake::FakeRunner;
    use crate::kernel::ceph::Mounter;
    use crate::secrets::Secret;

    fn tree() -> TreeToMount {
        TreeToMount {
            mounter: Mounter::Fuse,
            monitors: "[v2:10.0.0.1:3300,v1:10.0.0.1:6789]".into(),
            user: "node".into(),
            key: Secret::new("AQBkey=="),
            file_system: "cephfs".into(),
            path: "/volumes/csi/csi-vol-a/0-1".into(),
            snapshot: None,
            options: vec!["noatime".into()],
            fsid: None,
            read_only: true,
            client: "cephlet/n1".into(),
        }
    }

    #[test]
    fn the_command_has_no_conf_and_no_key_and_names_the_volume() {
        let cmd = command(&tree(), Path::new("/run/cephlet/m"));
        let words = [
            "ceph-fuse -c /dev/null -m \"[v2:10.0.0.1:3300,v1:10.0.0.1:6789]\" --id node --keyfile /proc/self/fd/3",
            "-r /volumes/csi/csi-vol-a/0-1 --client_fs cephfs --client-mount-timeout 20 --log-file= --admin-socket=",
            "-o subtype=ceph-fuse,fsname=ceph-fuse:/volumes/csi/csi-vol-a/0-1,noatime,ro /run/cephlet/m",
        ];
        assert_eq!(cmd.to_string(), words.join(" "));
        assert_eq!(cmd.memory_files().collect::<Vec<_>>(), ["AQBkey=="]);
    }

    #[test]
    fn no_process_is_started_that_would_end_with_the_container() {
        let runner = FakeRunner::default();
        usable(&runner, false).unwrap();
        let refused = usable(&runner, true).unwrap_err();
        assert!(refused.kind() == Kind::Precondition && refused.message().contains("container"), "{refused}");
    }

    #[test]
    fn what_ceph_fuse_says_is_explained() {
        for (said, kind, words) in [
            (
                "monclient(hunting): handle_auth_bad_method server allowed",
                Kind::Unauthenticated,
                "client.node",
            ),
            ("failed to fetch mon config (--no-mon-config to skip)", Kind::Unavailable, "10.0.0.1:3300"),
            ("ceph-fuse[1]: probably no MDS server is up?", Kind::Unavailable, "ceph fs status"),
            ("ceph mount failed with (1) Operation not permitted", Kind::Unauthenticated, "path=/volumes"),
            (
                "ceph mount failed with (2) No such file or directory",
                Kind::NotFound,
                "/volumes/csi/csi-vol-a",
            ),
            ("fuse: unknown option `nosuch=1'", Kind::InvalidArgument, "mount options"),
            ("something else", Kind::Internal, "mount /volumes/csi/csi-vol-a/0-1 of CephFS cephfs"),
        ] {
            let stderr_tail = format!("{said}\nceph-fuse[1]: fuse failed to start\n");
            let failed = Why::Failed { status: 1, stdout: Vec::new(), stderr_tail }.of("ceph-fuse");
            let error = explain(failed, &tree());
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.message().contains(words), "{error}");
        }
    }
}
