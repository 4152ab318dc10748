//! Through csi-addons. No storage for it is set up here, but wrong requests are refused all the same.

use cephlet::proto::replication as wire;

use super::{Case, all_refused};
use crate::support::addons::{Client, source};
use crate::support::client::Answer;
use crate::support::requests::map;

/// Wrong values of parameters, by the parameters' names.
const PARAMETERS: [(&str, &[&str]); 7] = [
    ("mirroringMode", &["pool", "Snapshot", "snapshot "]),
    ("schedulingInterval", &["0m", "30", "-1m", "90s", "1w", "1.5h", "abc"]),
    ("schedulingStartTime", &["bogus", "25:00:00", "2026-11-22", "14:00:00+1"]),
    ("flattenMode", &["maybe"]),
    ("force", &["yes"]),
    ("acceptLoss", &["1"]),
    ("schedulinginterval", &["5m"]),
];

/// Texts that are no network to shut out.
const NO_NETWORKS: [&str; 12] = [
    "",
    "host",
    "10.0.0.300",
    "10.0.0.0/33",
    "10.0.0/24",
    "10.0.0.7:0/42",
    "fd00::/129",
    "::ffff:10.0.0.7",
    "0.0.0.0/0",
    "::/0",
    "0.0.0.0",
    "10.0.0.1-10.0.0.9",
];

/// Each change, of this volume and with these parameters.
fn changes(client: &Client, id: &str, parameters: &[(&str, &str)]) -> [Answer<()>; 5] {
    let parameters = map(parameters);
    let enable = wire::EnableVolumeReplicationRequest {
        replication_source: source(id),
        parameters: parameters.clone(),
        ..Default::default()
    };
    let disable = wire::DisableVolumeReplicationRequest {
        replication_source: source(id),
        parameters: parameters.clone(),
        ..Default::default()
    };
    let promote = wire::PromoteVolumeRequest {
        replication_source: source(id),
        parameters: parameters.clone(),
        ..Default::default()
    };
    let demote = wire::DemoteVolumeRequest {
        replication_source: source(id),
        parameters: parameters.clone(),
        ..Default::default()
    };
    let resync =
        wire::ResyncVolumeRequest { replication_source: source(id), parameters, ..Default::default() };
    [
        client.ask(&enable).map(drop),
        client.ask(&disable).map(drop),
        client.ask(&promote).map(drop),
        client.ask(&demote).map(drop),
        client.ask(&resync).map(drop),
    ]
}

fn info(client: &Client, id: &str) -> Answer<()> {
    let asked =
        wire::GetVolumeReplicationInfoRequest { replication_source: source(id), ..Default::default() };
    client.ask(&asked).map(drop)
}

fn destination(client: &Client, id: &str) -> Answer<()> {
    let asked =
        wire::GetReplicationDestinationInfoRequest { replication_source: source(id), ..Default::default() };
    client.ask(&asked).map(drop)
}

#[test]
fn the_volume_that_is_replicated_is_named() {
    all_refused(|daemon, _| {
        let client = Client::of(daemon);
        let questions = [info(&client, ""), destination(&client, "")];
        changes(&client, "", &[]).into_iter().chain(questions).map(|answer| ("volume_id", answer)).collect()
    });
}

#[test]
fn two_names_of_a_volume_agree() {
    all_refused(|daemon, id| {
        let asked = wire::PromoteVolumeRequest {
            volume_id: format!("{id}x"),
            replication_source: source(id),
            ..Default::default()
        };
        let answer = Client::of(daemon).ask(&asked);
        vec![("replication_source", answer.map(drop))]
    });
}

#[test]
fn parameters_of_replication_are_checked_before_anything_is_asked() {
    all_refused(|daemon, id| {
        let client = Client::of(daemon);
        let pairs =
            PARAMETERS.into_iter().flat_map(|(name, values)| values.iter().map(move |value| (name, *value)));
        pairs
            .flat_map(|(name, value)| {
                // A time of the day requires an interval.
                let interval = ("schedulingInterval", "5m");
                let parameters = if name == "schedulingInterval" {
                    vec![(name, value)]
                } else {
                    vec![interval, (name, value)]
                };
                changes(&client, id, &parameters).map(|answer| -> Case { (name, answer) })
            })
            .collect()
    });
}

#[test]
fn parameters_of_replication_go_together() {
    all_refused(|daemon, id| {
        let client = Client::of(daemon);
        let alone = changes(&client, id, &[("schedulingStartTime", "14:00:00")]);
        let both = changes(&client, id, &[("mirroringMode", "journal"), ("schedulingInterval", "5m")]);
        alone.into_iter().chain(both).map(|answer| ("schedulingInterval", answer)).collect()
    });
}

#[test]
fn what_cannot_be_fenced_is_named() {
    all_refused(|daemon, _| {
        let client = Client::of(daemon);
        let many: Vec<String> =
            (0..257).map(|number| format!("10.0.{}.{}", number / 256, number % 256)).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let lists = NO_NETWORKS.map(|network| vec!["10.0.0.7", network]).into_iter().chain([vec![], many]);
        let mut cases: Vec<Case> = lists
            .flat_map(|networks| [client.fence(&networks), client.unfence(&networks)])
            .map(|answer| ("cidrs", answer))
            .collect();
        for (name, parameters) in [
            ("allowSelf", vec![("allowSelf", "yes")]),
            ("allowself", vec![("allowself", "true")]),
            ("cluster", vec![("clusterID", "one"), ("cluster", "two")]),
        ] {
            cases.push((name, client.fence_with(&parameters, &["10.0.0.7"])));
        }
        cases
    });
}
