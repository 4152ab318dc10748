//! `snapshot create`, `list`, `show` and `delete`.

use serde::Serialize;
use serde_json::json;

use crate::cli::failure::CliResult;
use crate::cli::plugin::Plugin;
use crate::cli::report::{Report, fields, human, table};
use crate::cli::syntax::Given;
use crate::cli::values;
use crate::grpc::proto::csi_v1 as wire;

/// A snapshot as it is shown.
#[derive(Debug, Serialize)]
struct Shown {
    id: String,
    volume_id: String,
    size_bytes: i64,
    created: Option<String>,
    ready: bool,
}

impl From<wire::Snapshot> for Shown {
    fn from(snapshot: wire::Snapshot) -> Self {
        Self {
            id: snapshot.snapshot_id,
            volume_id: snapshot.source_volume_id,
            size_bytes: snapshot.size_bytes,
            created: snapshot.creation_time.into_option().and_then(|time| values::date(&time)),
            ready: snapshot.ready_to_use,
        }
    }
}

impl Shown {
    fn ready(&self) -> String {
        if self.ready { "yes" } else { "no" }.to_string()
    }

    fn row(&self) -> [String; 5] {
        let created = self.created.clone().unwrap_or_default();
        [self.id.clone(), self.volume_id.clone(), human(self.size_bytes), created, self.ready()]
    }

    fn text(&self) -> String {
        fields(&[
            ("id", self.id.clone()),
            ("volume", self.volume_id.clone()),
            ("size", format!("{} ({} bytes)", human(self.size_bytes), self.size_bytes)),
            ("created", self.created.clone().unwrap_or_default()),
            ("ready", self.ready()),
        ])
    }
}

/// Takes a snapshot; prints its ID.
pub fn create(plugin: &dyn Plugin, given: &Given) -> CliResult<Report> {
    let request = wire::CreateSnapshotRequest {
        source_volume_id: given.word(0).to_string(),
        name: given.word(1).to_string(),
        secrets: values::secrets(given)?,
        ..Default::default()
    };
    let shown = Shown::from(plugin.ask(&request)?.snapshot.unwrap_or_default());
    Ok(Report::new(shown.id.clone(), &shown))
}

/// Lists the snapshots, of all volumes or of one, all pages of them.
pub fn list(plugin: &dyn Plugin, given: &Given) -> CliResult<Report> {
    let secrets = values::secrets(given)?;
    let page = |starting_token| wire::ListSnapshotsRequest {
        source_volume_id: given.value("volume").unwrap_or_default().to_string(),
        secrets: secrets.clone(),
        starting_token,
        ..Default::default()
    };
    let mut snapshots = Vec::new();
    plugin.ask_all(page, |reply| {
        let snapshot = |it: wire::list_snapshots_response::Entry| it.snapshot.unwrap_or_default().into();
        snapshots.extend(reply.entries.into_iter().map(snapshot));
        reply.next_token
    })?;
    let rows: Vec<_> = snapshots.iter().map(Shown::row).collect();
    Ok(Report::new(table(&["ID", "VOLUME", "SIZE", "CREATED", "READY"], &rows), &snapshots))
}

/// Shows a snapshot.
pub fn show(plugin: &dyn Plugin, given: &Given) -> CliResult<Report> {
    let (snapshot_id, secrets) = (given.word(0).to_string(), values::secrets(given)?);
    let reply = plugin.ask(&wire::GetSnapshotRequest { snapshot_id, secrets, ..Default::default() })?;
    let shown = Shown::from(reply.snapshot.unwrap_or_default());
    Ok(Report::new(shown.text(), &shown))
}

/// Deletes a snapshot.
pub fn delete(plugin: &dyn Plugin, given: &Given) -> CliResult<Report> {
    let (id, secrets) = (given.word(0), values::secrets(given)?);
    plugin.ask(&wire::DeleteSnapshotRequest {
        snapshot_id: id.to_string(),
        secrets,
        ..Default::default()
    })?;
    Ok(Report::new("", &json!({"id": id})))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::cli::fake::{Fake, run};
    use crate::error::Error;
    use protobuf::MessageField;
    use protobuf::well_known_types::timestamp::Timestamp;

    fn snapshot(id: &str) -> wire::Snapshot {
        wire::Snapshot {
            snapshot_id: id.into(),
            source_volume_id: "v1".into(),
            size_bytes: 1 << 30,
            creation_time: MessageField::some(Timestamp { seconds: 1_795_240_879, ..Default::default() }),
            ready_to_use: true,
            ..Default::default()
        }
    }

    #[test]
    fn a_new_snapshot_is_its_id_or_all_of_it_as_json() {
        let reply = wire::CreateSnapshotResponse {
            snapshot: MessageField::some(snapshot("s1")),
            ..Default::default()
        };
        let fake = Fake::default().replies::<wire::CreateSnapshotRequest>(&reply);
        let report = run(&fake, "snapshot create v1 nightly").unwrap();
        assert_eq!(report.rendered(false), "s1\n");
        let json = json!({"id": "s1", "volume_id": "v1", "size_bytes": 1 << 30, "created": "2026-11-21T06:01:19Z", "ready": true});
        assert_eq!(report.json, json);
        let request: wire::CreateSnapshotRequest = fake.request();
        assert_eq!((request.source_volume_id.as_str(), request.name.as_str()), ("v1", "nightly"));
    }

    #[test]
    fn the_list_is_a_table_of_one_volume_or_of_all() {
        let entry = |id| wire::list_snapshots_response::Entry {
            snapshot: MessageField::some(snapshot(id)),
            ..Default::default()
        };
        let reply =
            wire::ListSnapshotsResponse { entries: vec![entry("s1"), entry("s2")], ..Default::default() };
        let fake = Fake::default().replies::<wire::ListSnapshotsRequest>(&reply);
        assert_eq!(
            run(&fake, "snapshot list --volume v1").unwrap().text,
            "ID  VOLUME  SIZE   CREATED               READY\n\
             s1  v1      1 GiB  2026-11-21T06:01:19Z  yes\n\
             s2  v1      1 GiB  2026-11-21T06:01:19Z  yes"
        );
        assert_eq!(fake.request::<wire::ListSnapshotsRequest>().source_volume_id, "v1");
    }

    #[test]
    fn all_pages_of_the_list_are_read() {
        let entry = |id| wire::list_snapshots_response::Entry {
            snapshot: MessageField::some(snapshot(id)),
            ..Default::default()
        };
        let page = |id, next: &str| wire::ListSnapshotsResponse {
            entries: vec![entry(id)],
            next_token: next.into(),
            ..Default::default()
        };
        let fake = Fake::default()
            .replies::<wire::ListSnapshotsRequest>(&page("s1", "after s1"))
            .replies::<wire::ListSnapshotsRequest>(&page("s2", ""));
        let report = run(&fake, "snapshot list --volume v1").unwrap();
        assert_eq!((report.json[0]["id"].as_str(), report.json[1]["id"].as_str()), (Some("s1"), Some("s2")));
        let last: wire::ListSnapshotsRequest = fake.request();
        assert_eq!((last.starting_token.as_str(), last.source_volume_id.as_str()), ("after s1", "v1"));
    }

    #[test]
    fn show_is_one_field_a_line() {
        let reply =
            wire::GetSnapshotResponse { snapshot: MessageField::some(snapshot("s1")), ..Default::default() };
        let report =
            run(&Fake::default().replies::<wire::GetSnapshotRequest>(&reply), "snapshot show v1@s1").unwrap();
        assert!(
            report.text.starts_with("id:       s1\nvolume:   v1\nsize:     1 GiB (1073741824 bytes)\n"),
            "{}",
            report.text
        );
        let missing = Fake::default().refuses::<wire::GetSnapshotRequest>(Error::not_found("no"));
        assert_eq!(run(&missing, "snapshot show v1@s1").unwrap_err().exit_code(), 3);
    }

    #[test]
    fn a_snapshot_whose_time_is_not_known_has_none() {
        assert_eq!(Shown::from(wire::Snapshot::default()).created, None);
        assert_eq!(values::date(&Timestamp { seconds: -1, ..Default::default() }), None);
    }

    #[test]
    fn a_deletion_is_silent() {
        let report = run(&Fake::default(), "snapshot delete v1@s1").unwrap();
        assert_eq!((report.text.as_str(), report.json), ("", json!({"id": "v1@s1"})));
    }
}
