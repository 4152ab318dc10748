//! Volumes and snapshots by their names on the command line.

use serde_json::json;

use crate::support::Daemon;
use crate::support::cli::{done, json, refused};
use crate::support::machine::{exists, is_mounted};

#[test]
fn a_volume_lives_its_life_by_its_name() {
    let daemon = Daemon::start();
    let (id, target) = (done(&daemon, "volume create web --size 320M --fs xfs"), daemon.text("target"));
    done(&daemon, &format!("volume publish web {target}"));
    assert!(is_mounted(&daemon.path("target")));
    assert_eq!(json(&daemon, "volume show web")["id"], json!(id));
    done(&daemon, "volume expand web --size 400M");
    done(&daemon, &format!("volume unpublish web {target}"));
    assert!(!exists(&daemon.path("target")));
    let snapshot = done(&daemon, "snapshot create web before-upgrade");
    assert_eq!(json(&daemon, "snapshot show web@before-upgrade")["id"], json!(snapshot));
    assert_eq!(json(&daemon, "snapshot list --volume web")[0]["id"], json!(snapshot));
    let copy = done(&daemon, "volume create My_Copy --from-snapshot web@before-upgrade");
    let listed = done(&daemon, "volume list");
    let names: Vec<&str> = listed.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(names, ["NAME", "My_Copy", "web"]);
    let (status, said) = refused(&daemon, "volume expand web --size 1M --limit 2M");
    assert!(status == 9 && said.contains(&format!("\"web\" ({id})")), "{status} {said}");
    let shown = json(&daemon, "volume show My_Copy");
    assert_eq!((&shown["name"], &shown["source"]["id"]), (&json!("My_Copy"), &json!(snapshot)));
    done(&daemon, "snapshot delete web@before-upgrade");
    done(&daemon, "volume delete web");
    done(&daemon, &format!("volume delete {copy}"));
    assert_eq!(done(&daemon, "volume list"), "");
    daemon.assert_node_is_clean();
}

#[test]
fn a_name_that_means_nothing_is_refused() {
    let daemon = Daemon::start();
    done(&daemon, "volume create web --size 32M");
    for line in ["volume show blog", "volume delete blog", "volume create copy --from-volume blog"] {
        let (status, said) = refused(&daemon, line);
        assert!(
            status == 3 && said.contains("NOT_FOUND") && said.contains("\"blog\""),
            "{line}: {status} {said}"
        );
    }
    let (status, said) = refused(&daemon, "snapshot show web@before");
    assert!(status == 3 && said.contains("has no snapshot \"before\""), "{status} {said}");
    let (status, said) = refused(&daemon, "snapshot delete web");
    assert!(status == 2 && said.contains("VOLUME@NAME"), "{status} {said}");
    let (status, said) = refused(&daemon, "volume show web --parameter pool=fast");
    assert!(status == 2 || said.contains("\"pool\""), "{status} {said}");
    assert_eq!(json(&daemon, "volume list").as_array().map(Vec::len), Some(1));
}
