//! Requests for an RBD volume on a node whose kernel maps it: the daemon is killed at every step, or at a
//! sample of them, and started again at once, while the processes that it had started go on.
//!
//! For the VM of `tests/vm/run`, which has the driver; elsewhere every test fails.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cephlet::proto::csi_v1 as wire;

use super::remote::UNCHANGED;
use super::scene::{DATA, assert_journal_is_empty};
use super::trial::{Points, ask_until_death, await_answer, sample};
use crate::support::client::Answer;
use crate::support::machine::{mount_at, mounts_below, rbd_devices, run};
use crate::support::requests::*;
use crate::support::{Code, Daemon, LONG_PATIENCE, MIB, Setup, cluster};

/// A node, and an image that is given to it, in the default namespace of the pool `rbd`.
struct Scene {
    node: Daemon,
    image: String,
    image_id: String,
    /// The publish context of the controller; empty without one.
    told: HashMap<String, String>,
}

impl Scene {
    fn new(published: bool) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(1);
        let image = format!("crash-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        cluster().rbd(&["create", "--size", "32M", &image]);
        let info = cluster().rbd(&["info", "--format", "json", &image]);
        let info: serde_json::Value = serde_json::from_str(&info).expect("JSON");
        let image_id = info["id"].as_str().expect("its id").to_string();
        let node = Setup::new()
            .on(cluster(), "cephlet-node")
            .set("CEPHLET_SERVICES", "node")
            .in_own_session()
            .start();
        let mut scene = Self { node, image, image_id, told: HashMap::new() };
        if published {
            let controller =
                Setup::new().on(cluster(), "cephlet").set("CEPHLET_SERVICES", "controller").start();
            let request = publish_to(&scene.id(), "node-1");
            scene.told =
                controller.client().controller_publish_volume(&request).expect("give it").publish_context;
        }
        scene
    }

    fn id(&self) -> String {
        format!("rbd:ceph:rbd::{}:{}", self.image, self.image_id)
    }

    fn stage(&self) -> Answer<()> {
        let mut request = stage(&self.id(), &self.node.text("stage"), mount("ext4"));
        request.publish_context = self.told.clone();
        self.node.client().node_stage_volume(&request).map(drop)
    }

    fn publish(&self) -> Answer<()> {
        let (staging, target) = (self.node.text("stage"), self.node.text("target"));
        self.node
            .client()
            .node_publish_volume(&publish(&self.id(), &staging, &target, mount("ext4")))
            .map(drop)
    }

    fn unpublish(&self) -> Answer<()> {
        self.node.client().node_unpublish_volume(&unpublish(&self.id(), &self.node.text("target"))).map(drop)
    }

    fn unstage(&self) -> Answer<()> {
        self.node.client().node_unstage_volume(&unstage(&self.id(), &self.node.text("stage"))).map(drop)
    }

    fn expand(&self) -> Answer<()> {
        let request = node_expand(&self.id(), &self.node.text("stage"));
        let request = wire::NodeExpandVolumeRequest { capacity_range: range(64 * MIB, 0), ..request };
        self.node
            .client()
            .node_expand_volume(&request)
            .map(|reply| assert_eq!(reply.capacity_bytes, 64 * MIB))
    }

    /// Makes the image as it was at first.
    fn make_blank(&self) {
        cluster().rbd(&["resize", "--no-progress", "--allow-shrink", "--size", "0", &self.image]);
        cluster().rbd(&["resize", "--no-progress", "--size", "32M", &self.image]);
    }

    fn have_staged(&self) {
        self.stage().expect("stage");
        run(
            "sh",
            &[
                "-c",
                "printf %s \"$2\" > \"$1\" && sync -f \"$1\"",
                "write",
                &self.node.text("stage/file"),
                DATA,
            ],
        );
    }

    fn have_published(&self) {
        self.have_staged();
        self.publish().expect("publish");
    }

    /// Asserts that the volume is mounted at these places and at its real mount, from one device.
    #[track_caller]
    fn assert_mounted(&self, at: &[&str]) {
        let mounts = mounts_below(&self.node.path(""));
        assert_eq!(mounts.len(), at.len() + 1, "{mounts:?}");
        assert!(at.iter().all(|name| mount_at(&self.node.path(name)).is_some()), "{mounts:?}");
        assert_eq!(rbd_devices(&self.image).len(), 1, "UNSAFE: it is mapped otherwise than once");
    }

    #[track_caller]
    fn assert_holds_data(&self, at: &str) {
        assert_eq!(run("cat", &[&self.node.text(&format!("{at}/file"))]), DATA, "UNSAFE: wrong data");
    }

    /// Whether a process holds a lock for mapping an image.
    fn is_being_mapped(&self) -> bool {
        let Ok(file) = fs::metadata(self.node.path("run/map-locks")) else { return false };
        let inode = format!(":{}", file.ino());
        let locks = fs::read_to_string("/proc/locks").expect("/proc/locks");
        locks.split_whitespace().any(|word| word.ends_with(&inode))
    }

    /// Takes everything back, and asserts that nothing is left.
    #[track_caller]
    fn clear(&self) {
        self.unpublish().expect("unpublish");
        self.unstage().expect("unstage");
        let mounts = mounts_below(&self.node.path(""));
        assert!(mounts.is_empty(), "UNSAFE: still mounted: {mounts:?}");
        assert!(rbd_devices(&self.image).is_empty(), "UNSAFE: it is mapped still");
        assert!(!self.is_being_mapped(), "UNSAFE: it is being mapped still");
        assert!(!self.node.path("target").exists(), "we made it");
        if self.told.is_empty() {
            assert_eq!(cluster().holders("rbd", &self.image_id), "", "UNSAFE: a lock is left");
        }
        self.node.assert_well();
    }
}

/// A request to be tried.
struct Trial {
    /// Whether a controller published the volume to the node.
    published: bool,
    /// Kill only at points that come after this one; none for all.
    after: Option<&'static str>,
    /// Makes what exists before each trial.
    have: fn(&Scene),
    ask: fn(&Scene) -> Answer<()>,
    /// What must be true once the request has succeeded.
    check: fn(&Scene),
}

impl Trial {
    #[track_caller]
    fn run(&self) {
        let mut scene = Scene::new(self.published);
        // An undisturbed run makes what is made once and stays.
        (self.have)(&scene);
        (self.ask)(&scene).expect("undisturbed");
        scene.clear();
        let points = self.rehearse(&mut scene);
        let points = sample(points);
        // Steps that are repeated during a wait have points, too: not every trial passes as many.
        let crashes = points.iter().filter(|(number, _)| self.crash_at(&mut scene, *number)).count();
        assert!(2 * crashes >= points.len(), "only {crashes} of {points:?}");
        assert!(scene.node.terminate().success());
        assert_journal_is_empty(&scene.node);
        cluster().rbd(&["rm", "--no-progress", &scene.image]);
    }

    /// The points at which to kill, counted from the start of the daemon, and their names.
    #[track_caller]
    fn rehearse(&self, scene: &mut Scene) -> Vec<(usize, String)> {
        let from = self.start_to_crash(scene, usize::MAX);
        self.insist(scene, from);
        let Points { before, during } = Points::heard_in(&await_answer(&scene.node.log, from));
        (self.check)(scene);
        scene.clear();
        let first =
            self.after.map_or(0, |after| during.iter().rposition(|point| point == after).expect("the point"));
        let worth = |at: &usize| *at == first || !UNCHANGED.contains(&during[*at].as_str());
        let points: Vec<_> =
            (first..during.len()).filter(worth).map(|at| (before + at + 1, during[at].clone())).collect();
        assert!(points.len() > 3, "{during:?}");
        points
    }

    /// Starts the daemon anew, to die at this point, and returns how many lines are in its log before.
    #[track_caller]
    fn start_to_crash(&self, scene: &mut Scene, point: usize) -> usize {
        (self.have)(scene);
        assert!(scene.node.terminate().success(), "{}", scene.node.log.text());
        let from = scene.node.log.len();
        assert!(scene.node.start_to_crash(point), "not that soon");
        from
    }

    /// One trial; false if the request was answered before the daemon came to this point.
    #[track_caller]
    fn crash_at(&self, scene: &mut Scene, point: usize) -> bool {
        let from = self.start_to_crash(scene, point);
        let answer = ask_until_death(&scene.node.log, from, point, || (self.ask)(scene));
        let crashed = scene.node.end_at_crash_point(&answer);
        scene.node.restart();
        self.insist(scene, from);
        self.insist(scene, from);
        scene.node.await_leftovers();
        (self.check)(scene);
        scene.clear();
        crashed
    }

    /// Repeats the request until it succeeds. It may be refused for now while a process of the former daemon
    /// still works on it.
    #[track_caller]
    fn insist(&self, scene: &Scene, from: usize) {
        let until = Instant::now() + LONG_PATIENCE;
        while let Err(failure) = (self.ask)(scene) {
            let for_now =
                matches!(failure.code, Code::ABORTED | Code::UNAVAILABLE | Code::FAILED_PRECONDITION);
            assert!(
                for_now && Instant::now() < until,
                "{failure:?}\n{}",
                scene.node.log.after(from).join("\n")
            );
            thread::sleep(Duration::from_millis(100));
        }
    }
}

#[test]
fn a_blank_image_is_staged() {
    let check = |scene: &Scene| scene.assert_mounted(&["stage"]);
    Trial { published: true, after: None, have: Scene::make_blank, ask: Scene::stage, check }.run();
}

#[test]
#[ignore = "long: tests/run --full"]
fn an_image_is_published() {
    let check = |scene: &Scene| {
        scene.assert_mounted(&["stage", "target"]);
        scene.assert_holds_data("target");
    };
    Trial { published: true, after: None, have: Scene::have_staged, ask: Scene::publish, check }.run();
}

#[test]
#[ignore = "long: tests/run --full"]
fn an_image_is_unpublished() {
    let check = |scene: &Scene| {
        scene.assert_mounted(&["stage"]);
        scene.assert_holds_data("stage");
    };
    Trial { published: true, after: None, have: Scene::have_published, ask: Scene::unpublish, check }.run();
}

#[test]
#[ignore = "long: tests/run --full"]
fn an_image_is_unstaged() {
    let check = |scene: &Scene| {
        assert!(rbd_devices(&scene.image).is_empty());
        scene.stage().expect("stage again");
        scene.assert_holds_data("stage");
    };
    Trial { published: true, after: None, have: Scene::have_staged, ask: Scene::unstage, check }.run();
}

#[test]
#[ignore = "long: tests/run --full"]
fn an_image_that_the_node_locked_itself_is_unlocked() {
    let check = |scene: &Scene| assert!(rbd_devices(&scene.image).is_empty());
    Trial {
        published: false,
        after: Some("remove directory"),
        have: Scene::have_staged,
        ask: Scene::unstage,
        check,
    }
    .run();
}

#[test]
#[ignore = "long: tests/run --full"]
fn an_image_in_use_grows() {
    let have = |scene: &Scene| {
        scene.make_blank();
        scene.have_staged();
        cluster().rbd(&["resize", "--no-progress", "--size", "64M", &scene.image]);
    };
    let check = |scene: &Scene| {
        scene.assert_holds_data("stage");
        let size = rustix::fs::statvfs(scene.node.path("stage")).expect("statvfs");
        let size = size.f_blocks * size.f_frsize;
        assert!(size > 50 << 20, "{size}");
    };
    Trial { published: true, after: None, have, ask: Scene::expand, check }.run();
}
