//! Names of volumes and snapshots in place of their IDs. The daemon knows what they stand for.

use crate::cli::failure::CliResult;
use crate::cli::plugin::Plugin;
use crate::cli::syntax::{Command, Given, SNAPSHOT, VOLUME};
use crate::cli::values;
use crate::grpc::proto::cephlet_operator_v1::FindByNameRequest;

/// What was given, with the ID of each volume and snapshot in the place of its name.
pub fn resolve(plugin: &dyn Plugin, command: &Command, given: Given) -> CliResult<Given> {
    given.replace(command, |kind, text, given| {
        if ![VOLUME, SNAPSHOT].contains(&kind) {
            return Ok(None);
        }
        let (text, is_snapshot) = (text.to_string(), kind == SNAPSHOT);
        let parameters = values::pairs(given, "parameter")?;
        let request = FindByNameRequest { text, is_snapshot, parameters, ..Default::default() };
        Ok(Some(plugin.ask(&request)?.id))
    })
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
    fn a_name_that_stands_for_nothing_changes_nothing() {
        let fake = Fake::default().refuses::<FindByNameRequest>(Error::not_found("no such volume"));
        assert_eq!(run(&fake, "volume delete web").unwrap_err().exit_code(), 3);
        assert!(fake.asked().is_empty());
    }
}
