//! Names of volumes and snapshots in place of their IDs. The daemon knows what they stand for.

use std::collections::BTreeMap;

use crate::cli::failure::CliResult;
use crate::cli::plugin::Plugin;
use crate::cli::report::Report;
use crate::cli::syntax::{Command, Given, SNAPSHOT, VOLUME};
use crate::cli::values;
use crate::grpc::proto::cephlet_operator_v1::FindByNameRequest;

/// Asks the daemon as a command does, with the IDs of volumes and snapshots in the place of their names. An
/// error names them by both.
pub fn ask(
    plugin: &dyn Plugin,
    command: &Command,
    ask: impl Fn(&dyn Plugin, &Given) -> CliResult<Report>,
    given: Given,
) -> CliResult<Report> {
    let given = resolve(plugin, command, given)?;
    ask(plugin, &given).map_err(|failure| failure.with_names(&given.names))
}

/// The name of a volume, or its ID where the name is not known.
pub fn of(plugin: &dyn Plugin, id: &str) -> String {
    let request = FindByNameRequest { text: id.to_string(), ..Default::default() };
    let found = plugin.ask(&request).ok().map(|found| found.name);
    found.filter(|name| !name.is_empty()).unwrap_or_else(|| id.to_string())
}

fn resolve(plugin: &dyn Plugin, command: &Command, given: Given) -> CliResult<Given> {
    let (mut resolved, mut names) = (given.clone(), BTreeMap::new());
    for (kind, text) in resolved.texts(command).filter(|(kind, _)| [VOLUME, SNAPSHOT].contains(kind)) {
        let (name, is_snapshot) = (text.clone(), kind == SNAPSHOT);
        let parameters = values::pairs(&given, "parameter")?;
        let request = FindByNameRequest { text: name, is_snapshot, parameters, ..Default::default() };
        let found = plugin.ask(&request)?;
        text.clone_from(&found.id);
        if !found.name.is_empty() {
            names.insert(found.id, found.name);
        }
    }
    resolved.names = names;
    Ok(resolved)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::cli::fake::{Fake, run};
    use crate::error::Error;
    use crate::grpc::proto::cephlet_operator_v1::FindByNameResponse;
    use crate::grpc::proto::csi_v1 as wire;

    const ID: &str = "rbd:main:rbd::csi-vol-web-abcdefghij234:10ab";

    fn found(id: &str) -> Fake {
        let reply = FindByNameResponse { id: id.into(), ..Default::default() };
        Fake::default().replies::<FindByNameRequest>(&reply)
    }

    #[test]
    fn a_name_becomes_the_id_that_the_daemon_knows() {
        let fake = found(ID);
        run(&fake, "volume delete web --parameter pool=fast").unwrap();
        assert_eq!(fake.request::<wire::DeleteVolumeRequest>().volume_id, ID);
        let asked: FindByNameRequest = fake.request();
        assert_eq!(
            (asked.text.as_str(), asked.is_snapshot, asked.parameters["pool"].as_str()),
            ("web", false, "fast")
        );
    }

    #[test]
    fn the_value_of_an_option_may_be_a_name() {
        let fake = found("local:node-1:::5f0c@abcdefghij234-zyxw7654");
        run(&fake, "volume create copy --from-snapshot web@before").unwrap();
        let asked: FindByNameRequest = fake.request();
        assert_eq!((asked.text.as_str(), asked.is_snapshot), ("web@before", true));
        let made: wire::CreateVolumeRequest = fake.request();
        assert!(made.volume_content_source.snapshot().snapshot_id.starts_with("local:"));
        assert_eq!(made.name, "copy", "a new name stands for nothing yet");
    }

    #[test]
    fn an_error_names_a_volume_by_its_name_and_its_id() {
        let reply = FindByNameResponse { id: ID.into(), name: "web".into(), ..Default::default() };
        let refusal = Error::precondition(format!("volume {ID} is published to node-1"));
        let fake = Fake::default()
            .replies::<FindByNameRequest>(&reply)
            .refuses::<wire::DeleteVolumeRequest>(refusal);
        let failure = run(&fake, "volume delete web").unwrap_err();
        let expected = format!("FAILED_PRECONDITION: volume \"web\" ({ID}) is published to node-1");
        assert_eq!((failure.to_string(), failure.exit_code()), (expected, 5));
    }

    #[test]
    fn a_name_that_stands_for_nothing_changes_nothing() {
        let fake = Fake::default().refuses::<FindByNameRequest>(Error::not_found("no such volume"));
        assert_eq!(run(&fake, "volume delete web").unwrap_err().exit_code(), 3);
        assert!(fake.asked().is_empty());
    }
}
