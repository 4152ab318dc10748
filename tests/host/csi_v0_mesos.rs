//! The requests of Mesos 1.5 through CSI 0.1, from the plugin's start to the end of a volume, in its order
//! and with its paths. Its agent restarts plugins at any moment, and repeats the requests whose answer it
//! does not know.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use cephlet::proto::csi as wire;
use serde_json::Value;

use crate::support::machine::is_mounted;
use crate::support::v0::*;
use crate::support::{Daemon, Scratch, Setup};

/// The environment of the plugin's container: what the resource provider's configuration says, and what the
/// agent adds. The daemon's directories are those of the test.
fn environment(scratch: Scratch, endpoint: &str) -> Setup {
    let text = include_str!("../../packaging/mesos/local.json");
    let configuration: Value = serde_json::from_str(text).expect("the configuration is JSON");
    let command = &configuration["storage"]["plugin"]["containers"][0]["command"];
    let variables = command["environment"]["variables"].as_array().expect("variables");
    let local = scratch.path("state/local").display().to_string();
    let mut setup = Setup::within(Arc::new(scratch)).unset("CEPHLET_NODE_ID").set("CEPHLET_LOCAL_DIR", local);
    for variable in variables {
        let [name, value] = ["name", "value"].map(|key| variable[key].as_str().expect("a text"));
        if !name.ends_with("_DIR") {
            setup = setup.set(name, value);
        }
    }
    let sandbox = setup.scratch.path("sandbox").display().to_string();
    setup
        .set("CSI_ENDPOINT", endpoint)
        .set("MESOS_AGENT_ID", "6d1f0f2c-8d0e-4d0a-9a4f-5a6a6f3c9a11-S0")
        .set("MESOS_CONTAINER_IP", "10.0.0.1")
        .set("MESOS_SANDBOX", sandbox)
        .set("LIBPROCESS_IP", "10.0.0.1")
        .set("LIBPROCESS_PORT", "0")
}

/// An agent and its plugin.
struct Agent {
    daemon: Daemon,
    /// Where it told the plugin to listen.
    socket: PathBuf,
    client: Client,
    node: String,
    volume: wire::VolumeInfo,
    publish_volume_info: std::collections::HashMap<String, String>,
}

/// The answer to a step.
type Outcome = String;

/// A step, and its name.
type Step = (&'static str, fn(&mut Agent) -> Outcome);

/// The steps in the agent's order. Each may be repeated.
const STEPS: [Step; 16] = [
    ("versions", Agent::versions),
    ("the controller's info", Agent::info),
    ("the controller's probe", Agent::probe_controller),
    ("the controller's capabilities", Agent::controller_capabilities),
    ("the node's info", Agent::info),
    ("the node's probe", Agent::probe_node),
    ("the node's capabilities", Agent::node_capabilities),
    ("the node's ID", Agent::node_id),
    ("capacity", Agent::capacity),
    ("list", Agent::list),
    ("create", Agent::create),
    ("validate", Agent::validate),
    ("publish to the node", Agent::controller_publish),
    ("publish on the node", Agent::node_publish),
    ("unpublish on the node", Agent::node_unpublish),
    ("take back from the node", Agent::controller_unpublish),
];

impl Agent {
    /// Starts the plugin with a socket in a short directory of its own, named in this form.
    fn start(form: &str) -> Self {
        let scratch = Scratch::new();
        let socket = scratch.path("mesos-csi-Xa3b9Q/endpoint.sock");
        let daemon = environment(scratch, &form.replace("{}", &socket.display().to_string())).start();
        let client = Client::connect(&socket);
        let (node, volume) = (String::new(), wire::VolumeInfo::default());
        Self { daemon, socket, client, node, volume, publish_volume_info: Default::default() }
    }

    /// The volume's directory, which the agent makes and removes.
    fn target(&self) -> PathBuf {
        let id = self.volume.id.replace(':', "%3A");
        self.daemon.path(&format!("work/csi/org.cephlet.csi/local/mounts/{id}/target"))
    }

    fn target_text(&self) -> String {
        self.target().display().to_string()
    }

    fn versions(&mut self) -> Outcome {
        let told = self
            .client
            .get_supported_versions(&wire::GetSupportedVersionsRequest::default())
            .expect("versions");
        assert!(told.supported_versions.contains(&version()), "{told:?}");
        format!("{told:?}")
    }

    fn info(&mut self) -> Outcome {
        let info = self
            .client
            .get_plugin_info(&wire::GetPluginInfoRequest { version: version(), ..Default::default() });
        format!("{:?}", info.expect("info"))
    }

    fn probe_controller(&mut self) -> Outcome {
        let request = wire::ControllerProbeRequest { version: version(), ..Default::default() };
        format!("{:?}", self.client.controller_probe(&request).expect("healthy"))
    }

    fn controller_capabilities(&mut self) -> Outcome {
        use wire::controller_service_capability::rpc::Type;
        let request = wire::ControllerGetCapabilitiesRequest { version: version(), ..Default::default() };
        let told = self.client.controller_get_capabilities(&request).expect("capabilities");
        // Without these two it offers no storage.
        for needed in [Type::LIST_VOLUMES, Type::GET_CAPACITY] {
            assert!(
                told.capabilities.iter().any(|capability| capability.rpc().type_.unwrap() == needed),
                "{needed:?}"
            );
        }
        format!("{told:?}")
    }

    fn probe_node(&mut self) -> Outcome {
        let request = wire::NodeProbeRequest { version: version(), ..Default::default() };
        format!("{:?}", self.client.node_probe(&request).expect("healthy"))
    }

    fn node_capabilities(&mut self) -> Outcome {
        let request = wire::NodeGetCapabilitiesRequest { version: version(), ..Default::default() };
        format!("{:?}", self.client.node_get_capabilities(&request).expect("capabilities"))
    }

    fn node_id(&mut self) -> Outcome {
        let request = wire::GetNodeIDRequest { version: version(), ..Default::default() };
        self.node = self.client.get_node_id(&request).expect("a node").node_id;
        self.node.clone()
    }

    /// For each profile: its capability and its parameters.
    fn capacity(&mut self) -> Outcome {
        let request = wire::GetCapacityRequest { volume_capabilities: vec![mount("xfs")], ..capacity() };
        assert!(self.client.get_capacity(&request).expect("capacity").available_capacity > mib(320));
        String::new()
    }

    /// One page only, in which an ID must not come twice.
    fn list(&mut self) -> Outcome {
        let all = self.client.list();
        assert!(all.len() <= 1, "{all:?}");
        format!("{all:?}")
    }

    fn create(&mut self) -> Outcome {
        let exact = range(mib(320), mib(320));
        let request = wire::CreateVolumeRequest {
            capacity_range: exact,
            ..volume_as("6f3c9a11-disk", 0, mount("xfs"))
        };
        self.volume = self.client.create(&request).expect("create");
        assert_eq!(self.volume.capacity_bytes, mib(320));
        format!("{:?}", self.volume)
    }

    fn validate(&mut self) -> Outcome {
        let volume_attributes = self.volume.attributes.clone();
        let request = wire::ValidateVolumeCapabilitiesRequest {
            volume_attributes,
            ..validate(&self.volume.id, &[mount("xfs")])
        };
        let told = self.client.validate_volume_capabilities(&request).expect("validate");
        assert!(told.supported, "{told:?}");
        format!("{told:?}")
    }

    fn controller_publish(&mut self) -> Outcome {
        let volume_attributes = self.volume.attributes.clone();
        let request = publish_to(&self.volume.id, &self.node, mount("xfs"));
        let request = wire::ControllerPublishVolumeRequest { volume_attributes, ..request };
        self.publish_volume_info =
            self.client.controller_publish_volume(&request).expect("publish").publish_volume_info;
        format!("{:?}", self.publish_volume_info)
    }

    fn node_publish(&mut self) -> Outcome {
        let request = wire::NodePublishVolumeRequest {
            publish_volume_info: self.publish_volume_info.clone(),
            volume_attributes: self.volume.attributes.clone(),
            ..publish(&self.volume.id, &self.target_text(), mount("xfs"))
        };
        self.client.publish(&request).expect("publish");
        assert!(is_mounted(&self.target()));
        let file = self.target().join("file");
        match fs::read_to_string(&file) {
            Ok(content) => assert_eq!(content, "data"),
            Err(_) => fs::write(&file, "data").expect("write"),
        }
        String::new()
    }

    /// The target is no longer mounted, but still there: the agent removes it with everything in it, and
    /// gives up if there is nothing.
    fn node_unpublish(&mut self) -> Outcome {
        let target = self.target();
        if !target.exists() {
            fs::create_dir_all(&target).expect("as if the agent had not come to remove it");
        }
        self.client
            .node_unpublish_volume(&unpublish(&self.volume.id, &self.target_text()))
            .expect("unpublish");
        assert!(!is_mounted(&target));
        fs::remove_dir(&target).expect("it is there, and empty");
        String::new()
    }

    fn controller_unpublish(&mut self) -> Outcome {
        self.client
            .controller_unpublish_volume(&unpublish_from(&self.volume.id, &self.node))
            .expect("take back");
        String::new()
    }

    /// A volume that was destroyed is gone, with everything that it needed.
    fn delete(&mut self) {
        self.client.delete_volume(&delete(&self.volume.id)).expect("delete");
        assert!(self.client.list().is_empty());
        assert!(crate::support::machine::images(&self.daemon.path("state")).is_empty());
        self.daemon.assert_node_is_clean();
    }

    /// The agent starts its plugin again, and sends the requests that it sends every plugin first.
    fn restart(&mut self, kill: bool) {
        if kill {
            self.daemon.kill9();
        }
        self.daemon.restart();
        self.client = Client::connect(&self.socket);
        STEPS[..8].iter().for_each(|(_, step)| drop(step(self)));
    }
}

#[test]
fn a_volume_lives_through_an_agent() {
    for form in ["unix://{}", "{}"] {
        let mut agent = Agent::start(form);
        STEPS.iter().for_each(|(_, step)| drop(step(&mut agent)));
        agent.delete();
        let beside = fs::read_dir(agent.socket.parent().expect("a directory")).expect("list").count();
        assert_eq!(beside, 1, "nothing is written beside the socket");
    }
}

/// The plugin ends after each step, which is then repeated as by an agent that did not write the answer down.
fn with_restarts(kill: bool) {
    let mut agent = Agent::start("unix://{}");
    for (name, step) in STEPS {
        let told = step(&mut agent);
        agent.restart(kill);
        assert_eq!(step(&mut agent), told, "{name}");
    }
    agent.restart(kill);
    agent.delete();
    agent.restart(kill);
    agent.delete();
}

#[test]
fn the_plugin_may_be_restarted_at_every_step() {
    with_restarts(false);
}

#[test]
fn the_plugin_may_be_killed_at_every_step() {
    with_restarts(true);
}
