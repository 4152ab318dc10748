//! CephFS volumes that clients have mounted without a publication.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use crate::support::group::Group;
use crate::support::requests::*;
use crate::support::{Code, refused};

/// Mounts a directory of a file system until its input ends.
const MOUNT: &str = "import cephfs, sys
files = cephfs.LibCephFS(conffile=sys.argv[1], auth_id='admin')
files.mount(mount_root=sys.argv[2].encode())
print('mounted', flush=True)
sys.stdin.read()
files.shutdown()
";

/// A client of a file system.
struct Mounted(Child);

impl Mounted {
    fn new(group: &Group, path: &str) -> Self {
        // The bindings are those of the distribution's interpreter.
        let mut child = Command::new("/usr/bin/python3");
        child.args(["-c", MOUNT]).arg(group.cluster.dir().join("admin.conf")).arg(path);
        let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("start python3");
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().expect("a pipe")).read_line(&mut line).expect("an answer");
        assert_eq!(line, "mounted\n");
        Self(child)
    }

    fn end(mut self) {
        drop(self.0.stdin.take());
        assert!(self.0.wait().expect("its end").success());
    }
}

#[test]
fn a_mounted_volume_is_not_deleted_by_a_user_who_may_see_its_clients() {
    let group = Group::new();
    let sees = |number: usize| group.setup_as(number, "cephlet-fs-looks");
    let (daemon, without) = (sees(1).start(), sees(2).set("CEPHLET_SESSION", "off").start());
    let id = daemon.client().create(&group.volume("one", 8)).expect("create").volume_id;
    let mounted = Mounted::new(&group, group.info(&id)["path"].as_str().expect("a path"));
    for daemon in [&daemon, &without] {
        let said = ["it is mounted on", "user \"admin\"", "client evict"];
        refused(daemon.client().delete_volume(&delete(&id)), Code::FAILED_PRECONDITION, &said);
    }
    mounted.end();
    daemon.client().delete_volume(&delete(&id)).expect("delete");
    group.await_empty();
}
