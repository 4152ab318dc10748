#![allow(clippy::unwrap_used)]
use super::objects::{is_digits, key};
use super::*;

fn place() -> Place {
    Place { backend: "rbd".into(), cluster: "main".into(), pool: "vm s".into(), namespace: String::new() }
}

#[test]
fn volume_ids_survive_the_round_trip() {
    for incarnation in [None, Some("10309e725270".to_string())] {
        let id = VolumeId { place: place(), object: "web:disk/1%".into(), incarnation };
        assert_eq!(VolumeId::parse(&id.to_string()), Some(id));
    }
}

#[test]
fn snapshot_ids_survive_the_round_trip() {
    for object in [None, Some("web:disk/1@%".to_string())] {
        let (source, snapshot) = ("a@b".into(), "abcdefghij234-zyxw7654".into());
        let id = SnapshotId { place: place(), object, source, snapshot };
        assert_eq!(id.name_key(), "abcdefghij234");
        assert_eq!(SnapshotId::parse(&id.to_string()), Some(id));
    }
}

/// The format of IDs: it never changes.
#[test]
fn snapshot_ids_have_this_form() {
    for text in [
        "rbd:main:vms::csi-vol-web-abcdefghij234:10309e725270@abcdefghij234-zyxw7654",
        "rbd:main:vms:ns:web%3Adisk:10309e725270@abcdefghij234-zyxw7654",
        "local:node7:::5f0c5f0c5f0c5f0c@abcdefghij234-zyxw7654",
    ] {
        assert_eq!(SnapshotId::parse(text).unwrap().to_string(), text);
    }
}

#[test]
fn a_place_that_fits_leaves_room_for_the_longest_id() {
    let at = |cluster: usize| Place {
        cluster: "c".repeat(cluster),
        pool: "p".repeat(10),
        namespace: "n".repeat(10),
        ..place()
    };
    let longest = VOLUME.to_string() + &"s".repeat(MAX_SLUG) + "-" + &"k".repeat(KEY_DIGITS);
    let id = |place: Place, object: String| SnapshotId {
        place,
        object: Some(object),
        source: "i".repeat(20),
        snapshot: "abcdefghij234-zyxw7654".into(),
    };
    let most = MAX_RBD_PLACE - 20;
    assert!(at(most).fits(None, MAX_RBD_PLACE).is_ok() && at(most + 1).fits(None, MAX_RBD_PLACE).is_err());
    assert_eq!(id(at(most), longest.clone()).to_string().len(), MAX_ID);
    let registered = format!("{longest}.rrrr");
    assert!(
        at(most - 5).fits(Some("rrrr"), MAX_RBD_PLACE).is_ok()
            && at(most - 4).fits(Some("rrrr"), MAX_RBD_PLACE).is_err()
    );
    assert_eq!(id(at(most - 5), registered).to_string().len(), MAX_ID);
}

#[test]
fn text_we_never_gave_is_no_id() {
    let long = format!("rbd:main:p::{}", "x".repeat(128));
    for text in [
        "",
        "bogus",
        "rbd:main:p:",
        "rbd:main:p::",
        "rbd:main:p::o:",
        "rbd:main:p::o:1:2",
        ":a:b:c:d",
        "rbd:a:b::%zz",
        &long,
    ] {
        assert_eq!(VolumeId::parse(text), None, "{text}");
    }
    for text in [
        "rbd:main:p::o",
        "rbd:main:p::a@b",
        "rbd:main:p::@abcdefghij234-zyxw7654",
        "rbd:main:p::o:@abcdefghij234-zyxw7654",
        "rbd:main:p:::10@abcdefghij234-zyxw7654",
        "rbd:main:p::o:10:1@abcdefghij234-zyxw7654",
        "rbd:main:p::o:10@abcdefghij234",
        "rbd:main:p::o:10@abcdefghij234-zyxw765",
        "rbd:main:p::o:10@abcdefghij231-zyxw7654",
        "rbd:main:p::o:10@abcdefghij234-zyxw7654:",
    ] {
        assert_eq!(SnapshotId::parse(text), None, "{text}");
    }
}

#[test]
fn every_object_has_one_encoding_only() {
    assert_eq!(VolumeId::parse("rbd:m:p::%61"), None, "an encoded letter");
    assert_eq!(VolumeId::parse("rbd:m:p::a%2fb"), None, "lower-case digits");
    assert!(VolumeId::parse("rbd:m:p::a%2Fb").is_some());
}

#[test]
fn an_incarnation_left_out_means_any() {
    let any = VolumeId { place: place(), object: "o".into(), incarnation: None };
    assert!(any.means("1") && any.means("2"));
    let first = VolumeId { incarnation: Some("1".into()), ..any };
    assert!(first.means("1") && !first.means("2"));
}

#[test]
fn names_are_derived_from_instance_and_request() {
    assert_eq!(volume_object("default", "a"), volume_object("default", "a"));
    assert_ne!(volume_object("default", "a"), volume_object("other", "a"));
    assert_ne!(volume_object("ab", "c"), volume_object("a", "bc"));
    assert_ne!(snapshot_key("ab", "c"), snapshot_key("a", "bc"));
    assert_ne!(snapshot_key("default", "a"), key("volume", "default", "a"));
}

/// The format of the names that volumes have: it never changes.
#[test]
fn a_volume_is_named_after_its_request() {
    let names = [
        ("default", "a", "csi-vol-a-gciv3thahqwq4"),
        ("other", "a", "csi-vol-a-difvbqgsuik6z"),
        ("default", "pvc-1", "csi-vol-pvc-1-wmyridowt6hsf"),
        ("default", "Web Data (Prod)", "csi-vol-web-data-prod-bj5z7mezlpkim"),
        ("default", "a-very-long-volume-name", "csi-vol-a-very-long-volu-gdn5xpblxresh"),
        ("default", "データ", "csi-vol-jzjxr2pfdufas"),
        ("default", "--", "csi-vol-ekds42p5aaxah"),
    ];
    for (instance, name, object) in names {
        assert_eq!(volume_object(instance, name), object);
        let key = object.rsplit_once('-').unwrap().1;
        assert_eq!(volume_key(object), Some(key));
    }
    for other in [
        "gciv3thahqwq4",
        "csi-vol-gciv3thahqwq",
        "csi-vol-gciv3thahqwq1",
        "csi-vol--gciv3thahqwq4",
        "csi-vol-A-gciv3thahqwq4",
        "csi-vol-a--b-gciv3thahqwq4",
        "csi-vol-seventeen-letters-gciv3thahqwq4",
        "csi-vol-a-gciv3thahqwq4.",
    ] {
        assert_eq!(volume_key(other), None, "{other}");
    }
}

#[test]
fn the_objects_of_a_volume_tell_its_name_where_that_is_readable() {
    for object in
        ["csi-vol-a-gciv3thahqwq4", "csi-vol-a-gciv3thahqwq4.rbd", "csi-vol-a-gciv3thahqwq4-zyxw7654"]
    {
        assert_eq!((slug_of(object), is_object(object)), (Some("a"), true), "{object}");
        assert!(is_named("default", "a", object), "{object}");
        assert!(
            !is_named("other", "a", object),
            "a name of one instance may mean another volume in the next"
        );
        assert!(!is_named("default", "A", object), "names that look alike are others");
        assert_eq!(common_object("default", object), "csi-vol-a-gciv3thahqwq4");
    }
    assert_eq!(slug_of("csi-vol-jzjxr2pfdufas"), Some(""));
    // The slug looks like a key.
    assert_eq!(slug_of("csi-vol-gciv3thahqwq4-difvbqgsuik6z"), Some("gciv3thahqwq4"));
    for other in ["a", "csi-vol-a", "csi-vol-a-gciv3thahqwq4.", "csi-vol-a-gciv3thahqwq4.rbd-zyxw7654x:"] {
        assert_eq!((slug_of(other), is_object(other)), (None, false), "{other}");
        assert_eq!(common_object("default", other), volume_object("default", other));
    }
}

/// The format of the keys of snapshots: it never changes.
#[test]
fn a_snapshot_has_the_key_of_its_request() {
    for (instance, name, key) in [
        ("default", "a", "ql52exernztj2"),
        ("other", "a", "pbutrgxczvf3f"),
        ("default", "before-upgrade", "gfqur3g4or26z"),
        ("default", "データ", "dqxl5txha5fyh"),
    ] {
        assert_eq!(snapshot_key(instance, name), key);
        assert_eq!(key_of_drawn(&format!("{key}-zyxw7654")), Some(key));
    }
}

#[test]
fn drawn_digits_differ() {
    let [one, other] = [draw().unwrap(), draw().unwrap()];
    assert!(
        is_digits(&one, DRAWN_DIGITS) && is_digits(&other, DRAWN_DIGITS) && one != other,
        "{one} {other}"
    );
}

#[test]
fn a_registered_object_says_where_wherever_it_lies() {
    let object = registered(&volume_object("default", "a"), "names: all");
    let unregistered = volume_object("default", "a");
    let key = volume_key(&unregistered).unwrap();
    assert_eq!(registration(&object), Some((key, "names: all".to_string())));
    assert_eq!(volume_key(&object), Some(key));
    let elsewhere = Place { pool: "fast".into(), ..place() };
    assert_eq!(elsewhere.lock_key(&object), place().lock_key(&object));
    assert_ne!(elsewhere.key(&object), place().key(&object));
    for other in [&volume_object("default", "a"), "web.rbd", "csi-vol-1.rbd", &format!("{object}%zz")] {
        assert_eq!(registration(other), None, "{other}");
        assert_eq!(place().lock_key(other), place().key(other));
    }
}

/// CephFS claims the name of a snapshot once for all groups of a file system.
#[test]
fn creations_of_one_snapshot_name_in_two_groups_exclude_each_other() {
    let other = Place { namespace: "other".into(), ..place() };
    assert_eq!(SnapshotId::lock_key(&other, "key"), SnapshotId::lock_key(&place(), "key"));
    assert_ne!(SnapshotId::lock_key(&place(), "key"), SnapshotId::lock_key(&place(), "another"));
}
