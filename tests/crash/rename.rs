//! A renaming of the node is interrupted between its files.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;

use super::scene::Scene;
use crate::support::requests::*;
use crate::support::{MIB, Setup};

/// Runs `cephlet node rename node-2`, which kills itself at its `point`-th crash point; false if it ended
/// first.
fn rename_to_crash(scene: &Scene, point: usize) -> bool {
    let mut command = scene.daemon.setup.command();
    command.env("CEPHLET_CRASH_AT", point.to_string()).args(["node", "rename", "node-2"]);
    let status = command.output().expect("run cephlet").status;
    assert!(status.success() || status.signal() == Some(9), "{status}");
    !status.success()
}

/// Gives the next daemon of this scene a node name.
fn call(scene: &mut Scene, name: &str) {
    let setup = Setup::within(Arc::clone(&scene.daemon.setup.scratch)).set("CEPHLET_NODE_ID", name);
    scene.daemon.setup = setup.in_own_session();
}

#[test]
fn a_rename_that_was_interrupted_can_be_repeated() {
    let mut differed = false;
    for point in 1.. {
        let mut scene = Scene::new();
        scene.have("one", 8 * MIB, block());
        assert!(scene.daemon.terminate().success(), "{}", scene.daemon.log.text());
        let crashed = rename_to_crash(&scene, point);
        let names =
            ["state/node", "local/node"].map(|file| fs::read_to_string(scene.path(file)).expect(file));
        if names[0] != names[1] {
            differed = true;
            for name in ["node-1", "node-2"] {
                call(&mut scene, name);
                let (_, said) = scene.daemon.setup.fail();
                assert!(said.contains("cephlet node rename"), "{name}: {said}");
            }
        }
        let mut again = scene.daemon.setup.command();
        assert!(again.args(["node", "rename", "node-2"]).output().expect("rename").status.success());
        call(&mut scene, "node-2");
        scene.daemon.restart();
        scene.client().delete_volume(&delete(&scene.volumes[0])).expect("delete by the earlier name");
        scene.assert_holds(0, 0);
        if !crashed {
            assert!(differed, "no point lies between the two files");
            return;
        }
    }
}
