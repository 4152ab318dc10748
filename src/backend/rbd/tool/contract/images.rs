//! Images, their metadata and their limits.

use std::collections::BTreeMap;
use std::time::SystemTime;

use super::*;

pub fn an_image_is_made_once_and_found_by_name_and_by_id(site: &Site) {
    let tool = site.tool();
    let image = NewImage { name: "a", size: SIZE, layout: &Layout::default(), metadata: &[] };
    let MadeImage::New(shown) = tool.create(&image).unwrap() else { panic!("the name is free") };
    assert_eq!(tool.create(&image).unwrap(), MadeImage::Taken);
    let info = site.info("a");
    assert!(shown.is_none_or(|shown| *shown == info));
    assert_eq!(tool.info(ImageRef::Id(&info.id)).unwrap().as_ref(), Some(&info));
    assert_eq!((info.name.as_str(), info.size, info.snapshots), ("a", SIZE, 0));
    assert_eq!((info.parent, info.mirroring), (None, None));
    assert_eq!(info.features, tool.pool_options().unwrap().unwrap().features);
    assert_eq!(info.largest, Layout::default().largest_size());
    assert!(info.created > SystemTime::UNIX_EPOCH);
    for absent in [ImageRef::Name("x"), ImageRef::Id("10ffffffffff")] {
        assert_eq!(tool.info(absent).unwrap(), None, "{absent}");
    }
}

pub fn a_layout_is_kept(site: &Site) {
    let tool = site.tool();
    let features = ["layering", "exclusive-lock", "object-map"].map(str::to_string);
    let layout = Layout {
        data_pool: Some("data".into()),
        features: Some(features.clone().into()),
        object_size: Some(1 << 20),
        striping: Some((1 << 16, 3)),
        is_default_data_pool: false,
    };
    let image = NewImage { name: "a", size: SIZE, layout: &layout, metadata: &[] };
    assert_ne!(tool.create(&image).unwrap(), MadeImage::Taken);
    let info = site.info("a");
    let implied = ["data-pool", "fast-diff", "striping"].map(str::to_string);
    assert_eq!(info.features, features.into_iter().chain(implied).collect());
    assert_eq!(info.largest, layout.largest_size());
    let layout = Layout { data_pool: Some("absent".into()), ..Layout::default() };
    assert_lacks("absent", "create", tool.create(&NewImage { name: "b", layout: &layout, ..image }));
}

pub fn metadata_is_any_text(site: &Site) {
    let tool = site.tool();
    let texts = ["plain", "two\nlines\n", "\"quotes\" and \\", "Größe 日本", "--option", "{\"a\":1}"];
    let metadata: Vec<(&str, &str)> = [".a", "b", "c/d", "-e", "f g", "ö"].into_iter().zip(texts).collect();
    let image = NewImage { name: "a", size: SIZE, layout: &Layout::default(), metadata: &metadata };
    tool.create(&image).unwrap();
    site.create("b");
    for (key, value) in &metadata {
        assert_eq!(tool.metadata("b", key).unwrap(), None, "{key}");
        assert_eq!(tool.set_metadata("b", key, "former").unwrap(), Changed::Done);
        assert_eq!(tool.set_metadata("b", key, value).unwrap(), Changed::Done);
    }
    let owned = |&(key, value): &(&str, &str)| (key.to_string(), value.to_string());
    let all: BTreeMap<String, String> = metadata.iter().map(owned).collect();
    for name in ["a", "b"] {
        for (key, value) in &metadata {
            assert_eq!(tool.metadata(name, key).unwrap().as_deref(), Some(*value), "{name} {key}");
        }
        assert_eq!(tool.all_metadata(name).unwrap().as_ref(), Some(&all), "{name}");
    }
    tool.create(&NewImage { name: "c", metadata: &[("empty", "")], ..image }).unwrap();
    assert_eq!(tool.metadata("c", "empty").unwrap().as_deref(), Some(""));
    site.create("d");
    assert_eq!(tool.all_metadata("d").unwrap(), Some(BTreeMap::new()));
    assert_eq!(tool.metadata("x", "b").unwrap(), None);
    assert_eq!(tool.all_metadata("x").unwrap(), None);
    assert_eq!(tool.set_metadata("x", "b", "c").unwrap(), Changed::Absent);
}

pub fn a_limit_of_zero_is_none(site: &Site) {
    let (tool, iops, bytes) = (site.tool(), "rbd_qos_iops_limit", "rbd_qos_bps_limit");
    site.create("a");
    assert_eq!(tool.set_limits("a", &[(iops, 100), (bytes, 0)]).unwrap(), Changed::Done);
    let limits = BTreeMap::from([("conf_rbd_qos_iops_limit".to_string(), "100".to_string())]);
    assert_eq!(tool.all_metadata("a").unwrap(), Some(limits));
    assert_eq!(tool.set_limits("a", &[(iops, 0)]).unwrap(), Changed::Done);
    assert_eq!(tool.all_metadata("a").unwrap(), Some(BTreeMap::new()));
    for limit in [0, 100] {
        assert_eq!(tool.set_limits("x", &[(iops, limit)]).unwrap(), Changed::Absent);
    }
}

pub fn lists_show_snapshots_and_parents(site: &Site) {
    let tool = site.tool();
    assert_eq!((tool.list().unwrap(), tool.names().unwrap()), (Vec::new(), Vec::new()));
    let (b, c) = (site.create("b"), site.create_with_snapshot("c"));
    assert_eq!(tool.resize("c", 2 * SIZE).unwrap(), Changed::Done);
    assert_eq!(tool.create_snapshot("c", "t").unwrap(), Some(Made::New));
    site.clone_image("c", &site.at, "a").unwrap();
    site.create("aside");
    site.others.put_aside("aside");
    assert_eq!(tool.names().unwrap(), ["a", "b", "c"]);
    let snapshots: Vec<ListedSnapshot> = site
        .snapshots("c")
        .into_iter()
        .map(|SnapshotInfo { name, size, .. }| ListedSnapshot { name, size })
        .collect();
    let told: Vec<(&str, u64)> = snapshots.iter().map(|it| (it.name.as_str(), it.size)).collect();
    assert_eq!(told, [("s", SIZE), ("t", 2 * SIZE)]);
    let parent = site.info("a").parent.expect("a clone has a parent");
    assert_eq!((parent.id.as_ref(), parent.in_trash), (Some(&c), false));
    let listed = |name: &str, id: String, size| ListedImage {
        name: name.into(),
        id,
        size,
        parent: None,
        snapshots: Vec::new(),
    };
    let clone =
        ListedImage { parent: Some(Parent { id: None, ..parent }), ..listed("a", site.info("a").id, SIZE) };
    let with_snapshots = ListedImage { snapshots, ..listed("c", c, 2 * SIZE) };
    assert_eq!(tool.list().unwrap(), [clone, listed("b", b, SIZE), with_snapshots]);
}

pub fn a_pool_has_options(site: &Site) {
    let options = site.tool().pool_options().unwrap().expect("the pool exists");
    let features = ["deep-flatten", "exclusive-lock", "fast-diff", "layering", "object-map"];
    assert_eq!(options.features, features.map(str::to_string).into());
    assert_eq!((options.data_pool, options.trashes_removed), (None, false));
    let absent = PoolRef { pool: "absent".into(), ..site.at.clone() };
    assert_eq!(site.tool_at(&absent).pool_options().unwrap(), None);
}

pub fn an_image_is_removed_unless_it_is_needed(site: &Site) {
    let tool = site.tool();
    site.create_with_snapshot("a");
    assert_eq!(tool.remove("a").unwrap(), Removed::HasSnapshots);
    assert_eq!(tool.remove_large("a").unwrap(), Removed::HasSnapshots);
    tool.remove_snapshot(ImageRef::Name("a"), "s").unwrap();
    assert_eq!(tool.watchers("a").unwrap(), Some(Vec::new()));
    let client = site.others.open("a");
    let watchers = tool.watchers("a").unwrap().unwrap();
    assert!(!watchers.is_empty() && watchers.iter().all(|it| !it.is_kernel), "{watchers:?}");
    assert_eq!(tool.remove("a").unwrap(), Removed::Watched);
    assert_eq!(tool.remove_large("a").unwrap(), Removed::Watched);
    drop(client);
    assert_eq!(tool.watchers("a").unwrap(), Some(Vec::new()));
    assert_eq!(tool.remove("a").unwrap(), Removed::Gone);
    assert_eq!(tool.remove("a").unwrap(), Removed::Absent);
    assert_eq!(tool.watchers("a").unwrap(), None);
    site.create("a");
    assert_eq!(tool.remove_large("a").unwrap(), Removed::Gone);
    assert_eq!(tool.remove_large("a").unwrap(), Removed::Absent);
}

pub fn a_renamed_image_keeps_its_id(site: &Site) {
    let (tool, id) = (site.tool(), site.create("a"));
    site.create("taken");
    for (from, to, answer) in [
        ("a", "taken", Renamed::Taken),
        ("a", "a", Renamed::Taken),
        ("x", "y", Renamed::Absent),
        ("x", "taken", Renamed::Absent),
        ("a", "b", Renamed::Done),
        ("a", "b", Renamed::Absent),
    ] {
        assert_eq!(tool.rename(from, to).unwrap(), answer, "{from} to {to}");
    }
    assert_eq!(site.info("b").id, id);
    assert_eq!(tool.info(ImageRef::Id(&id)).unwrap().unwrap().name, "b");
    assert_eq!(tool.info(ImageRef::Name("a")).unwrap(), None);
}

pub fn a_second_name_goes_without_the_image(site: &Site) {
    let (tool, id) = (site.tool(), site.create("a"));
    site.others.add_name("a", "b");
    assert_eq!((site.info("b").name, site.info("b").id), ("b".into(), id.clone()));
    assert_eq!(tool.names().unwrap(), ["a"]);
    let image = NewImage { name: "b", size: SIZE, layout: &Layout::default(), metadata: &[] };
    assert_eq!(tool.create(&image).unwrap(), MadeImage::Taken);
    tool.remove_name("b").unwrap();
    assert_eq!(tool.info(ImageRef::Name("b")).unwrap(), None);
    assert_eq!(site.info("a").id, id);
    tool.remove_name("b").unwrap();
}

pub fn an_image_only_grows(site: &Site) {
    let tool = site.tool();
    site.create("a");
    for size in [SIZE, 3 * SIZE, 3 * SIZE] {
        assert_eq!(tool.resize("a", size).unwrap(), Changed::Done);
        assert_eq!(site.info("a").size, size);
    }
    assert_eq!(tool.resize("a", SIZE).unwrap_err().kind(), Kind::OutOfRange);
    assert_eq!(site.info("a").size, 3 * SIZE);
    assert_eq!(tool.resize("x", SIZE).unwrap(), Changed::Absent);
}

pub fn what_a_kill_left_is_among_the_names_alone(site: &Site) {
    let (tool, id) = (site.tool(), site.create("going"));
    site.others.half_make("half");
    site.others.half_remove("going");
    assert_eq!(tool.names().unwrap(), ["going", "half"]);
    assert_eq!((tool.list().unwrap(), tool.trash().unwrap()), (Vec::new(), Vec::new()));
    assert_eq!(tool.info(ImageRef::Id(&id)).unwrap().unwrap().name, "going");
    assert_eq!(tool.purge(&id).unwrap(), Removed::Absent);
    for name in ["going", "half"] {
        let image = NewImage { name, size: SIZE, layout: &Layout::default(), metadata: &[] };
        assert_eq!(tool.create(&image).unwrap(), MadeImage::Taken);
        assert_eq!(tool.info(ImageRef::Name(name)).unwrap(), None);
        assert_eq!(tool.metadata(name, "key").unwrap(), None);
        assert_eq!(tool.all_metadata(name).unwrap(), None);
        assert_eq!(tool.set_metadata(name, "key", "value").unwrap(), Changed::Absent);
        assert_eq!(tool.resize(name, 2 * SIZE).unwrap(), Changed::Absent);
        assert_eq!(tool.watchers(name).unwrap(), None);
        assert_eq!(tool.create_snapshot(name, "s").unwrap(), None);
        assert_eq!(tool.snapshots(ImageRef::Name(name)).unwrap(), None);
        assert_eq!(tool.remove(name).unwrap(), Removed::Gone);
    }
    assert_eq!(tool.names().unwrap(), [""; 0]);
    assert_eq!(tool.info(ImageRef::Id(&id)).unwrap(), None);
}

pub fn what_a_kill_left_in_the_trash_is_where_it_was(site: &Site) {
    let (tool, going, aside) = (site.tool(), site.create("going"), site.create("aside"));
    site.others.half_purge("going", true);
    site.others.half_purge("aside", false);
    assert_eq!(tool.names().unwrap(), ["going"]);
    let in_trash: Vec<String> = tool.trash().unwrap().into_iter().map(|it| it.id).collect();
    assert_eq!((tool.list().unwrap(), &in_trash), (Vec::new(), &vec![aside.clone()]));
    assert_eq!(tool.info(ImageRef::Name("going")).unwrap(), None);
    assert_eq!(tool.remove("going").unwrap(), Removed::Gone);
    assert_eq!(tool.purge(&aside).unwrap(), Removed::Gone);
    assert_eq!((tool.names().unwrap(), tool.trash().unwrap()), (Vec::new(), Vec::new()));
    for id in [going, aside] {
        assert_eq!(tool.info(ImageRef::Id(&id)).unwrap(), None);
    }
}

pub fn what_is_missing_is_named(site: &Site) {
    let pool = PoolRef { pool: "absent-pool".into(), ..site.at.clone() };
    let namespace = PoolRef { namespace: "absent-namespace".into(), ..site.at.clone() };
    let image = NewImage { name: "a", size: SIZE, layout: &Layout::default(), metadata: &[] };
    let by_name = ImageRef::Name("a");
    site.create_with_snapshot("source");
    for (at, name) in [(&pool, &pool.pool), (&namespace, &namespace.namespace)] {
        let tool = site.tool_at(at);
        assert_lacks(name, "create", tool.create(&image));
        assert_lacks(name, "clone", site.clone_image("source", at, "a"));
        assert_lacks(name, "info", tool.info(by_name));
        assert_lacks(name, "info by id", tool.info(ImageRef::Id("1")));
        assert_lacks(name, "metadata", tool.metadata("a", "b"));
        assert_lacks(name, "all_metadata", tool.all_metadata("a"));
        assert_lacks(name, "set_metadata", tool.set_metadata("a", "b", "c"));
        assert_lacks(name, "set_limits", tool.set_limits("a", &[("rbd_qos_iops_limit", 1)]));
        assert_lacks(name, "list", tool.list());
        assert_lacks(name, "names", tool.names());
        assert_lacks(name, "remove", tool.remove("a"));
        assert_lacks(name, "rename", tool.rename("a", "b"));
        assert_lacks(name, "resize", tool.resize("a", SIZE));
        assert_lacks(name, "watchers", tool.watchers("a"));
        assert_lacks(name, "create_snapshot", tool.create_snapshot("a", "s"));
        assert_lacks(name, "snapshots", tool.snapshots(by_name));
        assert_lacks(name, "snapshots by id", tool.snapshots(ImageRef::Id("1")));
        assert_lacks(name, "remove_snapshot", tool.remove_snapshot(by_name, "s"));
        assert_lacks(name, "has_clones", tool.has_clones("a"));
        assert_lacks(name, "remove_snapshot_by_number", tool.remove_snapshot_by_number("1", 1));
        assert_lacks(name, "flatten", tool.flatten("a"));
        assert_lacks(name, "trash", tool.trash());
        assert_lacks(name, "purge", tool.purge("1"));
    }
}
