use std::time::{Duration, UNIX_EPOCH};

use super::*;
use crate::backend::rbd::tool::*;
use crate::backend::size::LARGEST;
use crate::exec::Why;

const IMPORT: &str =
    "rbd ~ import --no-progress --export-format=2 --path=/proc/self/fd/0 --dest-pool=vms --dest=web";
const RM: &str = "rbd ~ rm --no-progress --pool=vms --image=web --rbd-move-to-trash-on-remove=false \
                  --rbd-move-parent-to-trash-on-remove=false";
const INFO: &str = "rbd info --format=json --pool=vms --image=web";
const RESIZE: &str = "rbd ~ resize --no-progress --pool=vms --image=web --size=2000001B";

const WEB: &str = r#"{"name":"web","id":"11a3a0064e19","size":2000000,"objects":33,"order":16,"object_size":65536,
    "snapshot_count":2,"data_pool":"second","block_name_prefix":"rbd_data.1.11a3a0064e19","format":2,
    "features":["layering","striping","exclusive-lock","data-pool","operations"],"op_features":["clone-child"],"flags":["object map invalid"],
    "create_timestamp":"Sat Nov 21 08:29:17 2026","access_timestamp":"Sat Nov 21 08:29:17 2026",
    "modify_timestamp":"Sat Nov 21 08:29:17 2026","parent":{"pool":"rbd","pool_namespace":"team","image":"t-full",
    "id":"10d95d6456b2","snapshot":"s1","trash":true,"overlap":2000000},"stripe_unit":8192,"stripe_count":3}"#;

fn web(layout: &Layout) -> NewImage<'_> {
    NewImage { name: "web", size: 1_000_003, layout, metadata: &[("cephlet.request", "{}")] }
}

#[test]
fn an_image_and_its_metadata_are_made_by_one_import() {
    let it = Fixture::new();
    let layout = Layout {
        data_pool: Some("ec".into()),
        features: Some(["layering".into(), "exclusive-lock".into()].into()),
        object_size: Some(65_536),
        striping: Some((8_192, 3)),
        is_default_data_pool: false,
    };
    it.prints(IMPORT, "");
    assert_ne!(it.at().create(&web(&Layout::default())).unwrap(), MadeImage::Taken);
    assert!(it.was(Class::Change));
    let stream = crate::backend::rbd::tool::cli::stream::empty_image(1_000_003, &[("cephlet.request", "{}")]);
    assert!(format!("{:?}", it.last()).contains(&format!(" {} bytes on stdin", stream.len())));
    let options = "--data-pool=ec --image-feature=exclusive-lock,layering --object-size=65536B \
                   --stripe-unit=8192B --stripe-count=3";
    let import = IMPORT.replace("--dest=", "--dest-namespace=team --dest=");
    it.prints(&format!("{import} {options}"), "");
    assert_ne!(it.team().create(&web(&layout)).unwrap(), MadeImage::Taken);
}

#[test]
fn a_taken_name_is_no_error() {
    let it = Fixture::new();
    let log = "rbd: image creation failed2026-11-21T08:29:14.583+0000 7f2210a9f380 -1 librbd: rbd image web \
               already exists\n";
    it.fails(IMPORT, 17, &format!("{log}\n\nrbd: import failed: (17) File exists\n"));
    assert_eq!(it.at().create(&web(&Layout::default())).unwrap(), MadeImage::Taken);
}

#[test]
fn a_request_that_names_what_is_not_there_is_told_how_to_make_it() {
    let it = Fixture::new();
    it.fails(IMPORT, 2, NO_POOL);
    let made = it.at().create(&web(&Layout::default()));
    assert_error(
        made,
        Kind::Precondition,
        &["make image vms/web", "`ceph osd pool create vms` and `rbd pool init vms`", "--parameter pool="],
    );
    it.fails(&IMPORT.replace("--dest=", "--dest-namespace=team --dest="), 2, NO_NAMESPACE);
    let made = it.team().create(&web(&Layout::default()));
    assert_error(
        made,
        Kind::Precondition,
        &["vms/team/web", "`rbd namespace create --pool vms --namespace team`"],
    );
    let layout = Layout { data_pool: Some("ec".into()), ..Layout::default() };
    let failed = "rbd: image creation failed\nrbd: import failed: (2) No such file or directory\n";
    it.fails(&format!("{IMPORT} --data-pool=ec"), 2, failed);
    assert_error(
        it.at().create(&web(&layout)),
        Kind::Precondition,
        &["no data pool \"ec\"", "--parameter dataPool="],
    );
}

#[test]
fn a_layout_that_rbd_refuses_is_the_requests_fault() {
    let it = Fixture::new();
    it.fails(IMPORT, 22, "rbd: image creation failed\nrbd: import failed: (22) Invalid argument\n");
    assert_error(it.at().create(&web(&Layout::default())), Kind::InvalidArgument, &["stripeUnit"]);
    it.fails(IMPORT, 1, "rbd: the argument for option '--image-feature' is invalid\n");
    assert_error(it.at().create(&web(&Layout::default())), Kind::InvalidArgument, &["imageFeatures"]);
}

#[test]
fn a_change_that_waits_for_an_osd_asks_whether_the_pool_is_full() {
    let it = Fixture::new();
    let timed_out = "rbd: image creation failed\nrbd: import failed: (110) Connection timed out\n";
    for (quota, kind) in [(1_000_000, Kind::NoSpace), (0, Kind::Timeout)] {
        it.fails(IMPORT, 110, timed_out);
        let pool = format!(
            r#"{{"name":"vms","stats":{{"stored":9830470,"max_avail":4069262080,"quota_bytes":{quota}}}}}"#
        );
        it.prints("ceph df detail --format=json", &format!("\n{{\"pools\":[{pool}]}}\n"));
        assert_error(it.at().create(&web(&Layout::default())), kind, &["make image vms/web"]);
    }
}

#[test]
fn a_cluster_that_is_not_reached_is_asked_nothing_more() {
    let it = Fixture::new();
    let failures = [
        (
            110,
            "monclient(hunting): authenticate timed out after 20\n\nrbd: couldn't connect to the cluster!\n",
        ),
        // The same exit status as for a layout that rbd refuses.
        (22, "unable to parse addrs in 'nohost'\nrbd: couldn't connect to the cluster!\n"),
    ];
    for (status, said) in failures {
        it.fails(IMPORT, status, said);
        assert_error(it.at().create(&web(&Layout::default())), Kind::Unavailable, &["was not reached"]);
    }
}

#[test]
fn names_that_rbd_would_take_apart_are_refused() {
    let it = Fixture::new();
    for name in ["", "a/b", "a@b"] {
        assert_error(it.at().info(ImageRef::Name(name)), Kind::InvalidArgument, &["name of an RBD image"]);
    }
    it.prints("rbd info --format=json --pool=vms --image=-v", WEB);
    it.at().info(ImageRef::Name("-v")).unwrap();
}

#[test]
fn an_image_tells_of_itself() {
    let it = Fixture::new();
    it.prints(INFO, WEB);
    let parent = Parent {
        pool: "rbd".into(),
        namespace: "team".into(),
        image: "t-full".into(),
        id: Some("10d95d6456b2".into()),
        snapshot: "s1".into(),
        in_trash: true,
    };
    let expected = ImageInfo {
        name: "web".into(),
        id: "11a3a0064e19".into(),
        size: 2_000_000,
        largest: LARGEST,
        snapshots: 2,
        features: ["layering", "striping", "exclusive-lock", "data-pool", "operations"]
            .map(String::from)
            .into(),
        created: UNIX_EPOCH + Duration::from_secs(1_795_249_757),
        parent: Some(parent),
        mirroring: None,
    };
    assert_eq!(it.at().info(ImageRef::Name("web")).unwrap(), Some(expected));
    assert!(it.was(Class::Question));
    it.prints("rbd info --format=json --pool=vms --namespace=team --image-id=11a3a0064e19", WEB);
    assert!(it.team().info(ImageRef::Id("11a3a0064e19")).unwrap().is_some());
    let mirrored = WEB.replacen('{', r#"{"mirroring":{"mode":"snapshot","state":"enabled"},"#, 1);
    it.prints("rbd info --format=json --pool=vms --image=web", &mirrored);
    assert!(it.at().info(ImageRef::Name("web")).unwrap().unwrap().mirroring.is_some());
}

#[test]
fn only_an_image_that_cannot_be_found_is_absent() {
    let it = Fixture::new();
    it.fails(INFO, 2, NO_IMAGE);
    assert_eq!(it.at().info(ImageRef::Name("web")).unwrap(), None);
    it.fails(INFO, 2, NO_POOL);
    assert_error(it.at().info(ImageRef::Name("web")), Kind::Precondition, &["no pool \"vms\""]);
    it.fails(INFO, 1, "rbd: error opening image web: (1) Operation not permitted\n");
    assert!(it.at().info(ImageRef::Name("web")).is_err());
    it.prints(INFO, "{\"name\":");
    assert_error(it.at().info(ImageRef::Name("web")), Kind::Internal, &["`rbd info`"]);
}

#[test]
fn metadata_is_read_and_set() {
    let it = Fixture::new();
    let get = || it.at().metadata("web", "k");
    for (printed, value) in [("a\nb\n\n", "a\nb\n"), ("\n", "")] {
        it.prints("rbd image-meta get --pool=vms --image=web -- k", printed);
        assert_eq!(get().unwrap(), Some(value.to_string()));
    }
    let no_key = "failed to get metadata k of image : (2) No such file or directory\nrbd: getting metadata \
                  failed: (2) No such …\n";
    for absent in [no_key, NO_IMAGE] {
        it.fails("rbd image-meta get --pool=vms --image=web -- k", 2, absent);
        assert_eq!(get().unwrap(), None);
    }
    it.prints("rbd ~ image-meta set --pool=vms --image=web -- k -v", "");
    assert_eq!(it.at().set_metadata("web", "k", "-v").unwrap(), Changed::Done);
    it.fails("rbd ~ image-meta set --pool=vms --image=web -- k -v", 2, NO_IMAGE);
    assert_eq!(it.at().set_metadata("web", "k", "-v").unwrap(), Changed::Absent);
}

#[test]
fn a_pool_is_listed_by_one_process() {
    let it = Fixture::new();
    let printed = r#"[{"image":"t-full","id":"10d95d6456b2","size":2000000,"format":2},
        {"image":"t-full","id":"10d95d6456b2","snapshot":"s2","snapshot_id":7,"size":1000,"format":2,"protected":"false"},
        {"image":"t-c2","id":"11a3a0064e19","size":2000000,"parent":{"pool":"rbd","pool_namespace":"","image":"t-full",
         "snapshot":"5ffa168e-d509-4eee-8f00-554507e17677"},"format":2}]"#;
    it.prints("rbd ls --long --format=json --pool=vms", printed);
    let parent = Parent {
        pool: "rbd".into(),
        namespace: String::new(),
        image: "t-full".into(),
        id: None,
        snapshot: "5ffa168e-d509-4eee-8f00-554507e17677".into(),
        in_trash: false,
    };
    let entry = |name: &str, id: &str| ListedImage {
        name: name.into(),
        id: id.into(),
        size: 2_000_000,
        parent: None,
        snapshots: Vec::new(),
    };
    let expected = [
        ListedImage { parent: Some(parent), ..entry("t-c2", "11a3a0064e19") },
        ListedImage {
            snapshots: vec![ListedSnapshot { name: "s2".into(), size: 1_000 }],
            ..entry("t-full", "10d95d6456b2")
        },
    ];
    assert_eq!(it.at().list().unwrap(), expected);
    it.prints("rbd ls --long --format=json --pool=vms --namespace=team", "[]");
    assert!(it.team().list().unwrap().is_empty());
    it.fails("rbd ls --long --format=json --pool=vms --namespace=team", 2, NO_NAMESPACE);
    assert_error(it.team().list(), Kind::Precondition, &["rbd namespace create"]);
}

#[test]
fn an_image_that_cannot_be_opened_hides_no_other() {
    let it = Fixture::new();
    let argv = argv("rbd ls --long --format=json --pool=vms");
    it.runner.expect_error(
        &argv.iter().map(String::as_str).collect::<Vec<_>>(),
        Why::Failed {
            status: 2,
            stdout: br#"[{"image":"k47","id":"2d4bfe3d2e23","size":4096,"format":2}]"#.to_vec(),
            stderr_tail:
                "rbd: error opening k53: (2) No such file or directory\nrbd: listing images failed: \
                          (2) No such …\n"
                    .into(),
        },
    );
    let names: Vec<_> = it.at().list().unwrap().into_iter().map(|entry| entry.name).collect();
    assert_eq!(names, ["k47"]);
}

#[test]
fn a_removal_ends_as_rbd_says() {
    let it = Fixture::new();
    it.prints(RM, "");
    assert_eq!(it.at().remove("web").unwrap(), Removed::Gone);
    assert!(!it.was(Class::Lasting));
    it.prints(&RM.replace(" --no-progress", ""), "");
    assert_eq!(it.at().remove_large("web").unwrap(), Removed::Gone);
    assert!(it.was(Class::Lasting), "it has all the time it needs");
    it.fails(RM, 16, "rbd: error: image still has watchers\n");
    assert_eq!(it.at().remove("web").unwrap(), Removed::Watched);
    it.fails(RM, 39, "rbd: image has snapshots - these must be deleted …\n");
    assert_eq!(it.at().remove("web").unwrap(), Removed::HasSnapshots);
}

#[test]
fn a_removal_of_what_another_removes_finds_it_absent() {
    let it = Fixture::new();
    let absent = "rbd: delete error: (2) No such file or directory\n";
    // One of several removals at the same time may exit with 116.
    for (status, said) in [(2, absent), (116, "rbd: delete error: (116) Stale file handle\n")] {
        it.fails(RM, status, said);
        assert_eq!(it.at().remove("web").unwrap(), Removed::Absent);
    }
}

#[test]
fn a_full_pool_lets_nothing_be_removed_though_rm_says_absent() {
    let it = Fixture::new();
    let said = "librbd::trash::MoveRequest: handle_trash_add: failed to add image to trash: (122) Disk quota \
                exceeded\n\n\
        rbd: delete error: (2) No such file or directory\n";
    it.fails(RM, 2, said);
    assert_error(
        it.at().remove("web"),
        Kind::NoSpace,
        &["remove image vms/web", "ceph osd pool set-quota vms"],
    );
}

#[test]
fn an_image_is_renamed() {
    let it = Fixture::new();
    let rename = "rbd ~ rename --pool=vms --namespace=team --image=web --dest-pool=vms --dest-namespace=team \
                  --dest=shop";
    let go = || it.team().rename("web", "shop");
    it.prints(rename, "");
    assert_eq!(go().unwrap(), Renamed::Done);
    // As it was seen: librbd's log came between the words.
    it.fails(
        rename,
        2,
        "rbd: rename error: 2026-11-21T08:29:15.467+0000 7f1e34b0b380 -1 librbd: …\n\n(2) No such file or \
         directory\n",
    );
    assert_eq!(go().unwrap(), Renamed::Absent);
    it.fails(rename, 17, "rbd: rename error: (17) File exists\n");
    assert_eq!(go().unwrap(), Renamed::Taken);
    it.fails(rename, 2, NO_NAMESPACE);
    assert_error(go(), Kind::Precondition, &["rename image vms/team/web to shop"]);
}

#[test]
fn an_image_grows_and_never_shrinks() {
    let it = Fixture::new();
    let go = || it.at().resize("web", 2_000_001);
    it.prints(RESIZE, "");
    assert_eq!(go().unwrap(), Changed::Done);
    it.fails(RESIZE, 22, "rbd: new size is equal to original size \n");
    assert_eq!(go().unwrap(), Changed::Done, "a repeat");
    it.fails(RESIZE, 2, NO_IMAGE);
    assert_eq!(go().unwrap(), Changed::Absent);
    it.fails(RESIZE, 22, "rbd: shrinking an image is only allowed with the --allow-shrink flag\n");
    assert_error(go(), Kind::OutOfRange, &["larger than 2000001 bytes"]);
}

#[test]
fn clients_are_told_by_address() {
    let it = Fixture::new();
    let status = "rbd status --format=json --pool=vms --image=web";
    let go = || it.at().watchers("web");
    it.prints(
        status,
        r#"{"watchers":[{"address":"127.0.0.1:0/3486094362","client":4860,"cookie":139995599877104},
            {"address":"127.0.0.1:0/7","client":4861,"cookie":18446462598732840961}]}"#,
    );
    let watcher = |address: &str, client: &str, is_kernel| Watcher {
        address: address.into(),
        client: client.into(),
        is_kernel,
    };
    let librbd = watcher("127.0.0.1:0/3486094362", "client.4860", false);
    assert_eq!(go().unwrap(), Some(vec![librbd, watcher("127.0.0.1:0/7", "client.4861", true)]));
    it.fails(status, 2, NO_IMAGE);
    assert_eq!(go().unwrap(), None);
}

#[test]
fn each_limit_takes_a_process_and_zero_takes_it_away() {
    let it = Fixture::new();
    let limits = [("rbd_qos_iops_limit", 100), ("rbd_qos_bps_limit", 0)];
    let set = "rbd ~ config image set --pool=vms --image=web rbd_qos_iops_limit 100";
    it.prints(set, "");
    let remove = "rbd ~ config image remove --pool=vms --image=web rbd_qos_bps_limit";
    it.fails(remove, 2, "rbd: failed to remove rbd_qos_bps_limit: (2) No such file or directory\n");
    assert_eq!(it.at().set_limits("web", &limits).unwrap(), Changed::Done);
    it.fails(set, 2, NO_IMAGE);
    assert_eq!(it.at().set_limits("web", &limits).unwrap(), Changed::Absent);
}

#[test]
fn an_image_that_goes_while_it_is_looked_at_is_absent() {
    let it = Fixture::new();
    let info = "rbd info --format=json --pool=vms --image=web";
    it.fails(info, 2, "librbd::image::RefreshRequest: …\n\nrbd: info: (2) No such file or directory\n");
    it.fails(info, 2, NO_IMAGE);
    assert_eq!(it.at().info(ImageRef::Name("web")).unwrap(), None);
}

#[test]
fn names_are_told_without_opening_images() {
    let it = Fixture::new();
    it.prints("rbd ls --format=json --pool=vms --namespace=team", r#"["web","csi-tmp-1"]"#);
    assert_eq!(it.team().names().unwrap(), ["web", "csi-tmp-1"]);
}
