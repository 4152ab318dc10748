use super::*;
use crate::backend::ceph::{ClusterTool, FreeSpace};
use crate::backend::rbd::tool::{ImageTool as _, Layout, NewImage, PoolOptions};

/// What `ceph df detail` prints about a pool, without the fields that cephlet does not read.
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
        it.at().pool_options().unwrap().unwrap()
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
    assert_eq!(it.team().pool_options().unwrap(), None);
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
    assert_error(it.at().create(&image), Kind::Precondition, &parts);
}

#[test]
fn a_pool_that_is_not_there_has_no_room() {
    let it = Fixture::new();
    it.prints("ceph df detail --format=json", &usage("data", r#""stored":1,"max_avail":4000"#));
    it.prints("ceph osd pool ls --format=json", r#"["data"]"#);
    assert_error(it.free_space(&it.call, &it.at, "other"), Kind::Precondition, &["no pool \"other\""]);
}

#[test]
fn the_manager_is_awaited_that_counts_a_new_pool_later() {
    let it = Fixture::new();
    let counted = usage("data", r#""stored":1,"max_avail":4000"#);
    it.prints("ceph df detail --format=json", r#"{"pools":[]}"#);
    it.prints("ceph osd pool ls --format=json", r#"["data"]"#);
    for counted in [r#"{"pools":[]}"#, &counted] {
        it.prints("ceph df detail --format=json", counted);
    }
    assert_eq!(it.free_space(&it.call, &it.at, "data").unwrap().available, 4000);
}
