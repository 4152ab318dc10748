//! `volume publish`, `unpublish` and `reclaim`.

use protobuf::MessageField;
use serde_json::json;

use crate::cli::failure::CliResult;
use crate::cli::plugin::Plugin;
use crate::cli::report::Report;
use crate::cli::syntax::Given;
use crate::cli::{values, volume};
use crate::grpc::proto::cephlet_operator_v1 as operator;
use crate::grpc::proto::csi_v1 as wire;

/// Publishes a volume to this node and mounts it at a path.
pub fn publish(plugin: &dyn Plugin, given: &Given) -> CliResult<Report> {
    let request = operator::PublishHereRequest {
        volume_id: given.word(0).to_string(),
        target_path: target(given)?,
        volume_capability: MessageField::some(volume::capability(given)?),
        readonly: given.has("read-only"),
        secrets: values::secrets(given)?,
        ..Default::default()
    };
    let node_id = plugin.ask(&request)?.node_id;
    let json = json!({"id": request.volume_id, "node_id": node_id, "target_path": request.target_path});
    Ok(Report::new("", &json))
}

/// Unmounts a volume from a path. With the last path the volume leaves this node.
pub fn unpublish(plugin: &dyn Plugin, given: &Given) -> CliResult<Report> {
    let request = operator::UnpublishHereRequest {
        volume_id: given.word(0).to_string(),
        target_path: target(given)?,
        secrets: values::secrets(given)?,
        ..Default::default()
    };
    let detached = plugin.ask(&request)?.has_left;
    let json = json!({"id": request.volume_id, "target_path": request.target_path, "detached": detached});
    Ok(Report::new("", &json))
}

fn target(given: &Given) -> CliResult<String> {
    values::path_text(&values::path(given.word(1))?)
}

/// Takes a volume back from a node, as an orchestrator would.
pub fn reclaim(plugin: &dyn Plugin, given: &Given) -> CliResult<Report> {
    let (id, node) = (given.word(0), given.word(1));
    plugin.ask(&wire::ControllerUnpublishVolumeRequest {
        volume_id: id.to_string(),
        node_id: node.to_string(),
        secrets: values::secrets(given)?,
        ..Default::default()
    })?;
    Ok(Report::new("", &json!({"id": id, "node_id": node})))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::cli::fake::{Fake, run};
    use crate::error::Error;

    #[test]
    fn a_publish_asks_for_what_the_options_say() {
        let node = operator::PublishHereResponse { node_id: "n1".into(), ..Default::default() };
        let fake = Fake::default().replies::<operator::PublishHereRequest>(&node);
        let secrets = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(secrets.path(), "userKey=hidden\n").unwrap();
        let line = format!(
            "volume publish v1 /mnt//a/ --fs xfs --flags noatime --read-only --secrets {}",
            secrets.path().display()
        );
        let report = run(&fake, &line).unwrap();
        assert_eq!(fake.asked(), ["PublishHere"]);
        let asked: operator::PublishHereRequest = fake.request();
        assert_eq!((asked.volume_id.as_str(), asked.target_path.as_str()), ("v1", "/mnt/a"));
        assert_eq!((asked.readonly, asked.secrets["userKey"].as_str()), (true, "hidden"));
        let mount = asked.volume_capability.mount();
        assert_eq!((mount.fs_type.as_str(), mount.mount_flags.as_slice()), ("xfs", &["noatime".into()][..]));
        let json = json!({"id": "v1", "node_id": "n1", "target_path": "/mnt/a"});
        assert_eq!((report.text.as_str(), report.json), ("", json));
        let wrong = Fake::default();
        assert_eq!(run(&wrong, "volume publish v1 /mnt/a --mode rw").unwrap_err().exit_code(), 2);
        assert!(wrong.asked().is_empty());
    }

    #[test]
    fn an_unpublish_says_whether_the_volume_has_left_the_node() {
        for has_left in [true, false] {
            let reply = operator::UnpublishHereResponse { has_left, ..Default::default() };
            let fake = Fake::default().replies::<operator::UnpublishHereRequest>(&reply);
            let report = run(&fake, "volume unpublish v1 /mnt/a").unwrap();
            assert_eq!(report.json, json!({"id": "v1", "target_path": "/mnt/a", "detached": has_left}));
        }
    }

    #[test]
    fn a_refusal_is_the_daemons_own() {
        let full = Fake::default().refuses::<operator::PublishHereRequest>(Error::no_space("full"));
        let failure = run(&full, "volume publish v1 /mnt/a").unwrap_err();
        assert_eq!((failure.exit_code(), failure.to_string().as_str()), (7, "RESOURCE_EXHAUSTED: full"));
    }

    #[test]
    fn a_volume_is_reclaimed_from_the_node_that_is_named() {
        let fake = Fake::default();
        let report = run(&fake, "volume reclaim v1 n2").unwrap();
        let asked: wire::ControllerUnpublishVolumeRequest = fake.request();
        assert_eq!((asked.volume_id.as_str(), asked.node_id.as_str()), ("v1", "n2"));
        assert_eq!((report.text.as_str(), report.json), ("", json!({"id": "v1", "node_id": "n2"})));
    }
}
