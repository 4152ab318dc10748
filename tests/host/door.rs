//! The socket: its forms, its owner, its services, and what misbehaving clients can do to it.

use std::fs;
use std::io::Write;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;

use cephlet::proto::csi_v1 as wire;
use protobuf::Message;
use sha2::{Digest, Sha256};

use crate::support::client::Client;
use crate::support::requests::*;
use crate::support::stub::Hanging;
use crate::support::{Code, Daemon, MIB, PATIENCE, Scratch, Setup, raw, refused};

#[test]
fn every_form_of_the_endpoint_works() {
    for form in ["unix://{}", "unix:{}", "{}"] {
        let setup = Setup::new();
        let path = setup.scratch.path("csi.sock").display().to_string();
        let daemon = setup.set("CSI_ENDPOINT", form.replace("{}", &path)).start();
        assert!(daemon.client().is_ready(), "{form}");
    }
}

/// Clients disagree about the authority of a unix socket: gRPC's libraries send "localhost", the path, or the
/// path escaped.
#[test]
fn any_authority_is_accepted() {
    let daemon = Daemon::start();
    for authority in ["localhost", "%2Frun%2Fcsi.sock", "csi.sock", "example.org:443", "[::1]", "x"] {
        let client = Client::connect_as(&daemon.path("csi.sock"), authority);
        assert!(client.is_ready(), "{authority}");
    }
}

#[test]
fn the_socket_is_its_owners_only() {
    let daemon = Setup::new().start();
    let found = fs::metadata(daemon.path("csi.sock")).expect("the socket");
    assert_eq!(found.permissions().mode() & 0o777, 0o600);
    assert_eq!(
        fs::read_dir(daemon.path(""))
            .expect("the directory")
            .flatten()
            .filter(|it| it.file_name().to_string_lossy().starts_with("csi."))
            .count(),
        1
    );
}

#[test]
fn the_directory_of_the_socket_is_made() {
    let setup = Setup::new();
    let path = setup.scratch.path("a/b/csi.sock");
    let daemon = setup.set("CSI_ENDPOINT", path.display()).start();
    assert!(Client::connect(&path).is_ready());
    drop(daemon);
}

#[test]
fn a_stale_socket_is_replaced_and_nothing_else() {
    let setup = Setup::new();
    let path = setup.scratch.path("csi.sock");
    drop(UnixListener::bind(&path).expect("leave a socket behind"));
    let mut daemon = setup.start();
    assert!(daemon.client().is_ready());
    daemon.kill9();
    daemon.restart();
    assert!(daemon.client().is_ready());
    assert!(daemon.terminate().success());
    fs::write(&path, "not a socket").expect("a file in its place");
    let (_, said) = daemon.setup.fail();
    assert!(said.contains(&daemon.text("csi.sock")) && said.contains("CSI_ENDPOINT"), "{said}");
    assert_eq!(fs::read_to_string(&path).expect("left alone"), "not a socket");
}

#[test]
fn a_server_that_is_alive_keeps_its_socket() {
    let setup = Setup::new();
    let path = setup.scratch.path("csi.sock");
    let alive = UnixListener::bind(&path).expect("somebody else's server");
    let (_, said) = setup.fail();
    assert!(said.contains("csi.sock"), "{said}");
    alive.set_nonblocking(true).expect("a mode");
    while alive.accept().is_ok() {}
    UnixStream::connect(&path).expect("it still answers");
}

/// Any user of the machine can take an abstract name, which is no file (unix(7), "Abstract sockets").
#[test]
fn nobody_else_can_keep_a_daemon_from_starting() {
    let setup = Setup::new();
    let path = setup.scratch.path("csi.sock");
    let digest = Sha256::digest(path.as_os_str().as_bytes());
    let name = [b"cephlet:".as_slice(), digest.as_slice()].concat();
    let taken = SocketAddr::from_abstract_name(name).expect("a name");
    let _taken = UnixListener::bind_addr(&taken).expect("take it");
    assert!(setup.start().client().is_ready());
}

/// A second daemon with the same settings except for these refuses to start and says why; the first one
/// serves on.
fn second_is_refused(differing: &[&str], says: &str) {
    let daemon = Daemon::start();
    let before = daemon.client().create(&volume("one")).expect("create");
    let mut second = Setup::within(Arc::clone(&daemon.setup.scratch));
    for key in differing {
        let other = daemon.text(&format!("second-{}.sock", key.to_lowercase()));
        second = second.set(key, other);
    }
    let (_, said) = second.fail();
    assert!(said.contains(says), "{said}");
    assert_eq!(daemon.client().create(&volume("one")).expect("the first serves on"), before);
    daemon.assert_well();
}

#[test]
fn one_daemon_a_state_directory() {
    second_is_refused(&["CSI_ENDPOINT", "CEPHLET_RUNTIME_DIR", "CEPHLET_LOCAL_DIR"], "CEPHLET_STATE_DIR");
}

#[test]
fn one_daemon_a_socket() {
    second_is_refused(&["CEPHLET_STATE_DIR", "CEPHLET_RUNTIME_DIR", "CEPHLET_LOCAL_DIR"], "CSI_ENDPOINT");
}

#[test]
fn one_controller_a_directory_of_volumes() {
    second_is_refused(&["CSI_ENDPOINT", "CEPHLET_STATE_DIR", "CEPHLET_RUNTIME_DIR"], "CEPHLET_LOCAL_DIR");
}

#[test]
fn what_is_not_offered_says_so() {
    let daemon = Daemon::start();
    let client = daemon.client();
    for method in [
        "/csi.v1.GroupController/GroupControllerGetCapabilities",
        "/csi.v1.GroupController/CreateVolumeGroupSnapshot",
        "/csi.v1.GroupController/DeleteVolumeGroupSnapshot",
        "/csi.v1.GroupController/GetVolumeGroupSnapshot",
        "/csi.v1.SnapshotMetadata/GetMetadataAllocated",
        "/csi.v1.SnapshotMetadata/GetMetadataDelta",
        "/csi.v1.Controller/Nothing",
        "/no.Service/Nothing",
        "/",
    ] {
        refused(raw::call(&client.channel, method, Vec::new()), Code::UNIMPLEMENTED, &[]);
    }
    let capabilities =
        client.get_plugin_capabilities(&Default::default()).expect("capabilities").capabilities;
    let services: Vec<i32> =
        capabilities.iter().filter(|it| it.has_service()).map(|it| it.service().type_.value()).collect();
    assert_eq!(services, [1, 2, 5], "controller and accessibility constraints, of snapshots too");
    assert!(capabilities.iter().any(|it| it.has_volume_expansion()));
}

#[test]
fn each_service_can_be_served_alone() {
    let controller = Setup::new().set("CEPHLET_SERVICES", "controller").start();
    controller.client().create(&volume("one")).expect("a controller");
    refused(controller.client().node_get_info(&Default::default()), Code::UNIMPLEMENTED, &[]);
    let node = Setup::new().set("CEPHLET_SERVICES", "node").start();
    assert_eq!(node.client().node_get_info(&Default::default()).expect("a node").node_id, "node-1");
    refused(node.client().create(&volume("one")), Code::UNIMPLEMENTED, &[]);
    let claims = |daemon: &Daemon| {
        let reply = daemon
            .client()
            .get_plugin_capabilities(&wire::GetPluginCapabilitiesRequest::default())
            .expect("capabilities");
        reply.capabilities.iter().any(|it| it.service().type_.value() == 1)
    };
    assert!(claims(&controller) && claims(&node), "all copies of a plugin claim the same");
    assert!(controller.client().is_ready() && node.client().is_ready());
}

#[test]
fn controller_and_node_may_be_two_daemons() {
    let scratch = Arc::new(Scratch::new());
    let controller = Setup::within(Arc::clone(&scratch)).set("CEPHLET_SERVICES", "controller").start();
    let id = controller.client().create(&volume("one")).expect("create").volume_id;
    let path = |name: &str| scratch.path(name).display().to_string();
    let node = Setup::within(Arc::clone(&scratch)).set("CEPHLET_SERVICES", "node");
    let node = node.set("CSI_ENDPOINT", path("node.sock")).set("CEPHLET_STATE_DIR", path("node-state"));
    let node = node.set("CEPHLET_RUNTIME_DIR", path("node-run")).start();
    let client = Client::connect(&scratch.path("node.sock"));
    client.node_stage_volume(&stage(&id, &path("stage"), mount("ext4"))).expect("stage");
    refused(controller.client().delete_volume(&delete(&id)), Code::FAILED_PRECONDITION, &[&id]);
    client.node_unstage_volume(&unstage(&id, &path("stage"))).expect("unstage");
    controller.client().delete_volume(&delete(&id)).expect("delete");
    drop(node);
}

/// Waits until the daemon has hardly more descriptors and threads than these: a few come and go by
/// themselves. Each probe lets gRPC work.
#[track_caller]
fn await_at_most(daemon: &Daemon, client: &Client, descriptors: usize, threads: usize) {
    let end = std::time::Instant::now() + PATIENCE;
    while daemon.descriptors() > descriptors + 4 || daemon.threads() > threads + 4 {
        assert!(
            std::time::Instant::now() < end,
            "{} descriptors of {descriptors}, {} threads of {threads}",
            daemon.descriptors(),
            daemon.threads()
        );
        assert!(client.is_ready());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn short_connections_leave_nothing_behind() {
    let daemon = Daemon::start();
    let client = daemon.client();
    for _ in 0..3 {
        assert!(daemon.client().is_ready());
    }
    assert!(client.is_ready());
    let (descriptors, threads) = (daemon.descriptors(), daemon.threads());
    for _ in 0..300 {
        assert!(daemon.client().is_ready());
    }
    await_at_most(&daemon, &client, descriptors, threads);
}

#[test]
fn no_reply_is_lost() {
    let daemon = Daemon::start();
    let client = daemon.client();
    let id = client.create(&volume("one")).expect("create").volume_id;
    std::thread::scope(|scope| {
        for _ in 0..10 {
            scope.spawn(|| {
                for _ in 0..500 {
                    assert!(client.is_ready());
                    client.controller_get_volume(&get(&id)).expect("a reply");
                }
            });
        }
    });
    assert_eq!(
        daemon.log.await_lines("/csi.v1.Controller/ControllerGetVolume", 5000).len(),
        5000,
        "one line an rpc"
    );
}

#[test]
fn clients_that_talk_nonsense_or_nothing_block_no_others() {
    let daemon = Daemon::start();
    let client = daemon.client();
    assert!(client.is_ready());
    let (descriptors, threads) = (daemon.descriptors(), daemon.threads());
    let says: [&[u8]; 4] = [b"", b"PRI * HTTP/2.0\r\n", &[0xff; 4096], b"GET / HTTP/1.1\r\n\r\n"];
    let clients: Vec<UnixStream> = (0..64)
        .map(|number| {
            let mut stream = UnixStream::connect(daemon.path("csi.sock")).expect("connect");
            // The daemon may hang up before everything is said.
            let _ = stream.write_all(says[number % says.len()]);
            stream
        })
        .collect();
    client.create(&volume("one")).expect("others are served");
    assert!(daemon.client().is_ready(), "and new ones");
    drop(clients);
    await_at_most(&daemon, &client, descriptors, threads);
    daemon.assert_well();
}

#[test]
fn clients_that_go_away_hold_no_worker() {
    let scratch = Arc::new(Scratch::new());
    let stub = Hanging::new(&scratch, "mkfs.ext4");
    let daemon = Setup::within(scratch).set("CEPHLET_TOOL_PATH", stub.tool_path()).start();
    let client = daemon.client();
    let id = client.create(&volume("stuck")).expect("create").volume_id;
    let request = stage(&id, &daemon.text("stage"), mount("ext4"));
    let bytes = request.write_to_bytes().expect("encodes");
    // A channel that is dropped before it is connected never sends its call.
    let clients: Vec<Client> = (0..20).map(|_| daemon.client()).collect();
    let begin = |client: &Client| raw::begin(&client.channel, "/csi.v1.Node/NodeStageVolume", bytes.clone());
    let calls: Vec<_> = clients.iter().map(begin).collect();
    stub.await_start();
    drop((calls, clients));
    for number in 0..10 {
        client.create(&volume_as(&format!("v{number}"), MIB, block())).expect("others are served");
    }
    stub.release();
    client.node_stage_volume(&request).expect("what was begun is finished");
    client.node_unstage_volume(&unstage(&id, &daemon.text("stage"))).expect("unstage");
    daemon.assert_node_is_clean();
}
