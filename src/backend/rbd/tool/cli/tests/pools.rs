use std::time::SystemTime;

use super::*;
use crate::backend::ceph::{ClusterTool, FreeSpace, ListedPool, ShutOut};
use crate::backend::rbd::tool::{ImageTool as _, Layout, NewImage, PoolOptions};

/// What `ceph df detail` says of a pool, without the fields that nobody reads.
fn usage(name: &str, stats: &str) -> String {
    format!(
        "\n{{\"stats\":{{\"total_bytes\":4294967296}},\"pools\":[{{\"name\":\"{name}\",\"id\":1,\"stats\":{{{stats}}}}}]}}\n"
    )
}

#[test]
fn room_is_what_space_and_quotas_leave() {
    let it = Fixture::new();
    let room = |stats: &str| {
        it.prints("ceph df detail --format=json", &usage("data", stats));
        it.free_space(&it.call, &it.at, "data").unwrap()
    };
    let free = r#""stored":980,"objects":48,"max_avail":4080139008,"quota_objects":0,"quota_bytes":0"#;
    assert_eq!(room(free), FreeSpace { available: 4_080_139_008, full: false });
    assert_eq!(
        room(r#""stored":980,"objects":48,"max_avail":4000,"quota_bytes":1000"#),
        FreeSpace { available: 20, full: false }
    );
    assert_eq!(
        room(r#""stored":9830470,"objects":8,"max_avail":4000,"quota_bytes":1000"#),
        FreeSpace { available: 0, full: true }
    );
    assert_eq!(
        room(r#""stored":1,"objects":8,"max_avail":4000,"quota_objects":8"#),
        FreeSpace { available: 0, full: true }
    );
    assert_eq!(room(r#""stored":1,"objects":8,"max_avail":0"#), FreeSpace { available: 0, full: true });
}

const OPTIONS: &str = "rbd config pool ls --format=json vms";

#[test]
fn options_are_the_pools_own_or_the_clusters() {
    let it = Fixture::new();
    let features = |names: &[&str]| names.iter().map(ToString::to_string).collect();
    let row = |(name, value, source): (&str, &str, &str)| {
        format!(r#"{{"name":"{name}","value":"{value}","source":"{source}"}}"#)
    };
    let read = |values: &[(&str, &str, &str)]| {
        let rows: Vec<String> = values.iter().copied().map(row).collect();
        it.prints(OPTIONS, &format!("[{}]", rows.join(",")));
        it.pool_options(&it.call, &it.at).unwrap().unwrap()
    };
    let clusters = [
        ("rbd_default_data_pool", "", "config"),
        ("rbd_default_features", "61", "config"),
        ("rbd_move_to_trash_on_remove", "true", "config"),
    ];
    let usual = ["layering", "exclusive-lock", "object-map", "fast-diff", "deep-flatten"];
    assert_eq!(read(&clusters), PoolOptions { features: features(&usual), ..PoolOptions::default() });
    let own = [
        ("rbd_default_data_pool", "ec", "pool"),
        ("rbd_default_features", "layering, striping", "pool"),
        ("rbd_move_to_trash_on_remove", "true", "pool"),
    ];
    assert_eq!(
        read(&own),
        PoolOptions {
            features: features(&["layering"]),
            data_pool: Some("ec".into()),
            trashes_removed: true
        }
    );
    it.fails(OPTIONS, 2, NO_POOL);
    assert_eq!(it.pool_options(&it.call, &it.team).unwrap(), None);
}

#[test]
fn a_default_data_pool_that_is_not_there_is_not_the_requests_fault() {
    let it = Fixture::new();
    let layout = Layout { data_pool: Some("ec".into()), is_default_data_pool: true, ..Layout::default() };
    let failed = "rbd: image creation failed\nrbd: import failed: (2) No such file or directory\n";
    let import =
        "rbd ~ import --no-progress --export-format=2 --path=/proc/self/fd/0 --dest-pool=vms --dest=web";
    it.fails(&format!("{import} --data-pool=ec"), 2, failed);
    let image = NewImage { name: "web", size: 4096, layout: &layout, metadata: &[] };
    let parts = ["rbd_default_data_pool", "no data pool \"ec\"", "parameter dataPool"];
    assert_error(it.create(&it.call, &it.at, &image), Kind::Precondition, &parts);
}

#[test]
fn a_pool_that_is_not_there_has_no_room() {
    let it = Fixture::new();
    it.prints("ceph df detail --format=json", &usage("data", r#""stored":1,"max_avail":4000"#));
    assert_error(it.free_space(&it.call, &it.at, "other"), Kind::Precondition, &["no pool \"other\""]);
}

#[test]
fn the_room_of_all_pools_is_one_question() {
    let it = Fixture::new();
    it.prints("ceph df detail --format=json", &usage("data", r#""stored":1,"max_avail":4000"#));
    let room = FreeSpace { available: 4000, full: false };
    assert_eq!(it.free_spaces(&it.call, &it.at.access).unwrap(), [("data".to_string(), room)].into());
}

#[test]
fn pools_are_listed_with_what_is_written_on_them_for_rbd() {
    let it = Fixture::new();
    let printed = r#"
[{"pool_name":"eu1","application_metadata":{"rbd":{"cephlet.zone":"eu-1"}}},
{"pool_name":"plain","application_metadata":{"rbd":{}}},{"pool_name":"fs","application_metadata":{"cephfs":{}}}]"#;
    it.prints("ceph osd pool ls detail --format=json", printed);
    let listed = |name: &str, labels: &[(&str, &str)]| ListedPool {
        name: name.into(),
        labels: labels.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect(),
    };
    let expected = [listed("eu1", &[("cephlet.zone", "eu-1")]), listed("plain", &[])];
    assert_eq!(it.pools(&it.call, &it.at.access).unwrap(), expected);
}

#[test]
fn who_is_shut_out_stands_in_two_lists() {
    let it = Fixture::new();
    let printed = "\n[{\"addr\":\"10.9.9.9:0/123456\",\"until\":\"2026-11-21T08:32:30.332627+0000\"}]\
        [{\"range\":\"10.9.8.0:0/24\",\"until\":\"2026-11-21T08:32:31.348015+0000\"}]";
    it.prints("ceph osd blocklist ls --format=json", printed);
    let entry = |address: &str, seconds| ShutOut {
        address: address.into(),
        until: SystemTime::UNIX_EPOCH + Duration::from_secs(seconds),
    };
    let listed = it.blocklist(&it.call, &it.at.access).unwrap();
    assert_eq!(listed, [entry("10.9.9.9:0/123456", 1_795_249_950), entry("10.9.8.0:0/24", 1_795_249_951)]);
}

#[test]
fn a_client_is_shut_out_for_years() {
    let it = Fixture::new();
    let access = &it.at.access;
    let add = "ceph osd blocklist add 10.9.9.9:0/42 315360000";
    it.prints(add, "");
    it.shut_out(&it.call, access, "10.9.9.9:0/42", 10).unwrap();
    it.fails(add, 13, "Error EACCES: access denied\n");
    let parts = ["shut out the client at 10.9.9.9:0/42", "`ceph auth caps client.cephlet mon 'profile rbd'"];
    assert_error(it.shut_out(&it.call, access, "10.9.9.9:0/42", 10), Kind::Precondition, &parts);
}

#[test]
fn older_clusters_call_it_by_another_name() {
    let it = Fixture::new();
    it.fails("ceph osd blocklist ls --format=json", 22, "Error EINVAL: invalid command\n");
    it.prints("ceph osd blacklist ls --format=json", "[]");
    assert_eq!(it.blocklist(&it.call, &it.at.access).unwrap(), []);
}

#[test]
fn a_cluster_that_is_not_reached_is_told_as_such_whatever_was_asked() {
    let it = Fixture::new();
    let parts = ["cluster \"main\" was not reached", "check that they run"];
    it.fails("ceph osd pool ls detail --format=json", 1, "timed out\n");
    assert_error(it.pools(&it.call, &it.at.access), Kind::Unavailable, &parts);
    it.fails("ceph df detail --format=json", 1, "timed out\n");
    assert_error(it.free_space(&it.call, &it.at, "vms"), Kind::Unavailable, &parts);
    it.fails("ceph osd blocklist ls --format=json", 1, "timed out\n");
    assert_error(it.blocklist(&it.call, &it.at.access), Kind::Unavailable, &parts);
}
