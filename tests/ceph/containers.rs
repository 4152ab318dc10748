//! The images of packaging/oci as containers under podman, in a VM whose process 1 is systemd and which has
//! no part of Ceph: volumes are seen by the host and by other containers, and outlive the container.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::Stdio;

use cephlet::proto::csi_v1 as wire;

use crate::controllers::settle;
use crate::support::machine::{exists, is_mounted, limited, run, run_within, text};
use crate::support::requests::*;
use crate::support::{Client, LONG_PATIENCE, MIB, PATIENCE, await_that, cluster};

/// Where `tests/run` has the images made.
const IMAGES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/target/tests/images");
const STATE: &str = "/var/lib/cephlet";
const STAGE: &str = "/srv/stage";
const TARGET: &str = "/srv/target";
const FILE: &str = "/srv/target/file";

fn podman(arguments: &[&str]) -> String {
    let options = ["--cgroup-manager", "cgroupfs"];
    run_within(LONG_PATIENCE, "podman", &[&options, arguments].concat())
}

/// Whether a program of a container succeeds.
fn succeeds(container: &str, program: &[&str]) -> bool {
    let words = ["--cgroup-manager", "cgroupfs", "exec", container];
    let mut command = limited(PATIENCE, "podman");
    let status = command.args(words).args(program).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.expect("podman").success()
}

/// The images, memory for them and for local volumes, from which loop devices can read, and the cluster in
/// /etc/ceph.
fn prepare(images: &[&str]) {
    run("mount", &["--make-rshared", "/"]);
    // The containers have no modules of the host's kernel.
    run("modprobe", &["--all", "loop", "rbd", "ceph"]);
    for directory in ["/var/lib/containers", STATE] {
        fs::create_dir_all(directory).expect("make a directory");
        run("mount", &["-t", "tmpfs", "-o", "size=2g", "tmpfs", directory]);
    }
    for image in images {
        podman(&["load", "--quiet", "--input", &format!("{IMAGES}/cephlet-{image}-0.0.1.oci.tar")]);
    }
    run("sh", &["-c", "cd /bin && tar --create --file /tmp/busybox.tar busybox"]);
    podman(&["import", "--quiet", "/tmp/busybox.tar", "consumer"]);
    run("install", &["-D", "-m", "644", text(&cluster().conf()), "/etc/ceph/ceph.conf"]);
    for user in ["cephlet", "cephlet-node", "cephlet-fs", "cephlet-fs-node"] {
        run("install", &["-m", "600", text(&cluster().keyring(user)), "/etc/ceph/"]);
    }
}

/// A container of cephlet.
struct Container {
    name: &'static str,
    client: Client,
}

impl Container {
    /// Starts it with these settings, its state and its runtime directory in `part` of those of the host.
    fn start(name: &'static str, image: &str, part: &str, settings: &[&str]) -> Self {
        let (state, runtime) = (format!("{STATE}/{part}"), format!("/run/cephlet/{part}"));
        for directory in [&state, &runtime] {
            fs::create_dir_all(directory).expect("make a directory");
        }
        let (state, runtime) =
            (format!("{state}:{STATE}:rshared"), format!("{runtime}:/run/cephlet:rshared"));
        let tag = format!("localhost/cephlet-{image}:0.0.1");
        let volumes = [&state, &runtime, "/srv:/srv:rshared", "/dev:/dev", "/etc/ceph:/etc/ceph:ro"];
        let volumes = volumes.iter().flat_map(|volume| ["--volume", volume]);
        let settings = settings.iter().flat_map(|setting| ["--env", setting]);
        let options = ["run", "--detach", "--name", name, "--network", "host", "--log-driver", "k8s-file"];
        // A controller mounts nothing.
        let options = options.into_iter().chain((image == "node").then_some("--privileged"));
        podman(&options.chain(volumes).chain(settings).chain([tag.as_str()]).collect::<Vec<_>>());
        await_that("it serves", || match succeeds(name, &["cephlet", "probe"]) {
            true => Ok(()),
            false => Err(run("sh", &["-c", &format!("podman logs {name} 2>&1")])),
        });
        Self { name, client: Client::connect(&Path::new("/run/cephlet").join(part).join("csi.sock")) }
    }

    fn stage(&self, volume: &Volume) {
        let mut request = stage(&volume.id, STAGE, volume.capability.clone());
        request.publish_context = volume.context.clone();
        self.client.node_stage_volume(&request).expect("stage");
    }

    fn publish(&self, volume: &Volume) {
        let mut request = publish(&volume.id, STAGE, TARGET, volume.capability.clone());
        request.publish_context = volume.context.clone();
        self.client.node_publish_volume(&request).expect("publish");
    }

    fn kill(self) {
        podman(&["kill", "--signal", "KILL", self.name]);
        podman(&["wait", self.name]);
    }
}

/// A volume, and what its controller tells the node.
struct Volume {
    id: String,
    capability: wire::VolumeCapability,
    context: HashMap<String, String>,
}

/// A volume is used while containers come and go: `next` starts another in place of the one before.
fn outlives_its_containers(volume: &Volume, node: Container, next: impl Fn(&'static str) -> Container) {
    node.stage(volume);
    node.publish(volume);
    assert!(is_mounted(Path::new(TARGET)), "the host does not see what is mounted in the container");
    fs::write(FILE, "written").expect("write");
    let consumer = ["run", "--detach", "--name", "consumer", "--network", "none", "--log-driver", "k8s-file"];
    let see = ["--volume", "/srv:/srv:rslave", "consumer", "/busybox", "sleep", "infinity"];
    podman(&[&consumer[..], &see].concat());
    let is_seen = || podman(&["exec", "consumer", "/busybox", "cat", FILE]);
    assert_eq!(is_seen(), "written");

    node.kill();
    assert_eq!(
        (fs::read_to_string(FILE).expect("read").as_str(), is_seen().as_str()),
        ("written", "written")
    );
    fs::write(FILE, "while there is no container").expect("write");
    let second = next("second");
    second.stage(volume);
    second.publish(volume);
    assert_eq!(is_seen(), "while there is no container", "UNSAFE: another file system is there");
    podman(&["stop", second.name]);
    assert_eq!(is_seen(), "while there is no container");

    let third = next("third");
    third.client.node_unpublish_volume(&unpublish(&volume.id, TARGET)).expect("unpublish");
    assert!(!is_mounted(Path::new(TARGET)) && !exists(Path::new(TARGET)), "it is published still");
    assert!(!succeeds("consumer", &["/busybox", "cat", FILE]), "the other container has it still");
    third.client.node_unstage_volume(&unstage(&volume.id, STAGE)).expect("unstage");
    podman(&["rm", "--force", "--time", "0", "consumer"]);
    podman(&["stop", third.name]);
    podman(&["rm", "first", "second", "third"]);
}

/// The files that loop devices are attached to.
fn attached() -> Vec<String> {
    let devices = fs::read_dir("/sys/block").expect("sysfs").flatten();
    devices.filter_map(|device| fs::read_to_string(device.path().join("loop/backing_file")).ok()).collect()
}

#[test]
#[ignore = "a VM of its own: tests/run --full"]
fn a_local_volume_outlives_its_container() {
    prepare(&["node"]);
    let start = |name| Container::start(name, "node", "local", &["CEPHLET_BACKENDS=local"]);
    let first = start("first");
    let id = first.client.create(&volume("web")).expect("create").volume_id;
    let volume = Volume { id, capability: mount("ext4"), context: HashMap::new() };
    outlives_its_containers(&volume, first, start);
    assert_eq!(attached(), Vec::<String>::new());
    let last = start("last");
    last.client.delete_volume(&delete(&volume.id)).expect("delete");
    podman(&["rm", "--force", last.name]);
}

/// The node's container has no program of Ceph: the kernel does it all. The controller is another container.
fn of_ceph(backend: &str, users: [&str; 2], capability: wire::VolumeCapability) {
    prepare(&["node", "controller"]);
    let backends = format!("CEPHLET_BACKENDS={backend}");
    let [of_controller, of_node] = users.map(|user| format!("CEPHLET_CEPH_USER={user}"));
    let controller =
        Container::start("controller", "controller", "controller", &[backends.as_str(), &of_controller]);
    let settings = ["CEPHLET_SERVICES=node", &backends, &of_node];
    let start = |name| Container::start(name, "node", "node", &settings);
    let first = start("first");
    for program in ["rbd", "ceph", "rados", "python3"] {
        let has = |container| succeeds(container, &[program, "--version"]);
        assert!(has("controller") && !has("first"), "{program}");
    }
    let request = volume_as("web", 32 * MIB, capability.clone());
    let id = controller.client.create(&request).expect("create").volume_id;
    let node = first.client.node_get_info(&wire::NodeGetInfoRequest::default()).expect("its name").node_id;
    let mut request = publish_to(&id, &node);
    request.volume_capability = Some(capability.clone()).into();
    let told = controller.client.controller_publish_volume(&request).expect("give it to the node");
    let volume = Volume { id, capability, context: told.publish_context };
    outlives_its_containers(&volume, first, start);
    assert_eq!(fs::read_dir("/sys/bus/rbd/devices").expect("the driver").count(), 0);
    let taken = controller.client.controller_unpublish_volume(&unpublish_from(&volume.id, &node));
    taken.expect("take it back");
    settle(|| controller.client.delete_volume(&delete(&volume.id)));
    podman(&["rm", "--force", controller.name]);
}

#[test]
#[ignore = "a VM of its own: tests/run --full"]
fn an_image_of_ceph_outlives_its_container() {
    of_ceph("rbd", ["cephlet", "cephlet-node"], mount("ext4"));
}

#[test]
#[ignore = "a VM of its own: tests/run --full"]
fn a_subvolume_of_ceph_outlives_its_container() {
    of_ceph("cephfs", ["cephlet-fs", "cephlet-fs-node"], mount(""));
}
