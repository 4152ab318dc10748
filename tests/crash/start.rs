//! The start itself is interrupted, on an empty directory and on the leftovers of a crash.

use std::fs;
use std::io::Write;

use super::scene::Scene;
use super::trial::Points;
use crate::support::MIB;
use crate::support::requests::*;

/// Crashes the start of these scenes at every point, then starts undisturbed and checks.
#[track_caller]
fn crash_every_start(scene: impl Fn() -> Scene, check: impl Fn(&mut Scene), steps: &[&str]) {
    let mut rehearsal = scene();
    assert!(rehearsal.daemon.start_to_crash(usize::MAX), "not that soon");
    rehearsal.daemon.kill9();
    for step in steps {
        assert!(
            !rehearsal.daemon.log.lines_with(&format!("crash point: {step}")).is_empty(),
            "{step} is no crash point of the start"
        );
    }
    for point in 1.. {
        let mut scene = scene();
        let ready = scene.daemon.start_to_crash(point);
        if ready {
            scene.daemon.kill9();
        }
        scene.daemon.await_leftovers();
        scene.daemon.restart();
        check(&mut scene);
        scene.assert_leaves_nothing();
        if ready {
            return;
        }
    }
}

/// A daemon that was never started.
fn empty() -> Scene {
    let mut scene = Scene::new();
    assert!(scene.daemon.terminate().success(), "{}", scene.daemon.log.text());
    for directory in ["state", "local"] {
        fs::remove_dir_all(scene.path(directory)).expect("remove what it made");
    }
    scene
}

/// A volume that is published and one that is there to be deleted.
fn two_volumes() -> Scene {
    let mut scene = Scene::new();
    scene.have("kept", 32 * MIB, mount("ext4"));
    scene.have("deleted", 8 * MIB, block());
    scene.stage(mount("ext4")).expect("stage");
    scene.publish(mount("ext4"), false).expect("publish");
    scene.write("target/file");
    assert!(scene.daemon.terminate().success(), "{}", scene.daemon.log.text());
    scene
}

/// The number of the crash point at which a daemon has just renamed a volume away.
fn point_half_way_through_a_deletion() -> usize {
    let mut scene = two_volumes();
    assert!(scene.daemon.start_to_crash(usize::MAX), "not that soon");
    scene.client().delete_volume(&delete(&scene.volumes[1])).expect("delete");
    scene.daemon.kill9();
    let points = Points::heard_by(&scene);
    let away = points.during.iter().rposition(|point| point == "rename").expect("the point");
    points.before + away + 1
}

/// Two volumes, one of them half deleted; a half-made object; a journal whose last line is torn; a stale
/// socket.
fn wreck(half_way: usize) -> Scene {
    let mut scene = two_volumes();
    assert!(scene.daemon.start_to_crash(half_way), "not that soon");
    let answer = scene.client().delete_volume(&delete(&scene.volumes[1]));
    assert!(scene.daemon.end_at_crash_point(&answer), "{answer:?}");
    let draft = scene.daemon.local_dir().join("pending/0123456789abcdef");
    fs::create_dir(&draft).expect("a draft");
    fs::write(draft.join("image"), "half").expect("its image");
    let journal = scene.path("state/journal");
    let mut journal = fs::File::options().append(true).open(journal).expect("open the journal");
    journal.write_all(&[0x55; 7]).expect("tear it");
    scene
}

#[test]
fn the_first_start_is_interrupted() {
    let check = |scene: &mut Scene| {
        scene.have("one", 8 * MIB, block());
        scene.assert_holds(1, 0);
    };
    crash_every_start(
        empty,
        check,
        &[
            "journal file created",
            "sync the journal directory",
            "make directory",
            "create file",
            "bind the socket",
            "socket bound",
        ],
    );
}

#[test]
fn recovery_is_interrupted() {
    let half_way = point_half_way_through_a_deletion();
    let check = |scene: &mut Scene| {
        scene.assert_holds(1, 0);
        scene.assert_nothing_twice();
        scene.assert_written("target/file");
        scene.write("target/more");
    };
    crash_every_start(
        || wreck(half_way),
        check,
        &["cut the journal", "remove file", "remove directory", "bind the socket"],
    );
}
