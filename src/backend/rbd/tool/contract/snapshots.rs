//! Snapshots, clones and the trash.

use super::*;

pub fn a_snapshot_is_taken_once_and_removed_once(site: &Site) {
    let (tool, id) = (site.tool(), site.create("a"));
    assert_eq!(site.snapshots("a"), []);
    assert_eq!(tool.create_snapshot("a", "s").unwrap(), Some(Made::New));
    assert_eq!(tool.create_snapshot("a", "s").unwrap(), Some(Made::Taken));
    assert_eq!(tool.create_snapshot("x", "s").unwrap(), None);
    tool.resize("a", 2 * SIZE).unwrap();
    tool.create_snapshot("a", "t").unwrap();
    let snapshots = site.snapshots("a");
    let told: Vec<_> = snapshots.iter().map(|it| (it.name.as_str(), it.size, it.trashed)).collect();
    assert_eq!(told, [("s", SIZE, false), ("t", 2 * SIZE, false)]);
    assert!(snapshots.iter().all(|it| it.created >= site.info("a").created), "{snapshots:?}");
    assert_eq!(tool.snapshots(ImageRef::Id(&id)).unwrap(), Some(snapshots));
    for absent in [ImageRef::Name("x"), ImageRef::Id("10ffffffffff")] {
        assert_eq!(tool.snapshots(absent).unwrap(), None);
        assert_eq!(tool.remove_snapshot(absent, "s").unwrap(), Removed::Absent);
    }
    assert_eq!(site.info("a").snapshots, 2);
    assert_eq!(tool.remove_snapshot(ImageRef::Name("a"), "s").unwrap(), Removed::Gone);
    assert_eq!(tool.remove_snapshot(ImageRef::Name("a"), "s").unwrap(), Removed::Absent);
    assert_eq!(tool.remove_snapshot(ImageRef::Id(&id), "t").unwrap(), Removed::Gone);
    assert_eq!(site.snapshots("a"), []);
}

pub fn a_snapshot_is_removed_by_its_number(site: &Site) {
    let (tool, id) = (site.tool(), site.create_with_snapshot("a"));
    let number = site.snapshots("a")[0].id;
    let remove = |id: &str, number| tool.remove_snapshot_by_number(id, number).unwrap();
    assert_eq!(remove(&id, number + 1000), RemovedByNumber::Absent);
    assert_eq!(remove("10ffffffffff", number), RemovedByNumber::Absent);
    site.clone_image("a", &site.at, "b").unwrap();
    assert_eq!(remove(&id, number), RemovedByNumber::Gone);
    assert!(site.snapshots("a")[0].trashed);
    assert_eq!(remove(&id, number), RemovedByNumber::Protected);
    assert_eq!(tool.remove("b").unwrap(), Removed::Gone);
    assert_eq!(remove(&id, number), RemovedByNumber::Absent);
    tool.create_snapshot("a", "t").unwrap();
    assert_eq!(remove(&id, site.snapshots("a")[0].id), RemovedByNumber::Gone);
    assert_eq!(site.snapshots("a"), []);
}

pub fn a_protected_snapshot_stays(site: &Site) {
    let (tool, id) = (site.tool(), site.create_with_snapshot("a"));
    site.others.protect("a", "s");
    let snapshots = site.snapshots("a");
    let error = tool.remove_snapshot(ImageRef::Name("a"), "s").unwrap_err();
    assert!(error.kind() == Kind::Precondition && error.message().contains("is protected"), "{error}");
    let by_number = tool.remove_snapshot_by_number(&id, snapshots[0].id).unwrap();
    assert_eq!((by_number, site.snapshots("a")), (RemovedByNumber::Protected, snapshots));
}

pub fn a_clone_keeps_its_snapshot(site: &Site) {
    let (tool, id) = (site.tool(), site.create_with_snapshot("a"));
    let has_clones = |image: &str| tool.has_clones(image).unwrap();
    assert!(!has_clones("a"));
    let clone = |image: &str, name: &str| site.clone_image(image, &site.at, name).unwrap();
    assert_eq!(clone("a", "b"), Some(Made::New));
    assert_eq!(clone("a", "b"), Some(Made::Taken));
    assert_eq!(clone("b", "c"), None, "it has no snapshot");
    assert_eq!(clone("x", "c"), None);
    let parent = Parent {
        pool: site.at.pool.clone(),
        namespace: site.at.namespace.clone(),
        image: "a".into(),
        id: Some(id),
        snapshot: "s".into(),
        in_trash: false,
    };
    assert_eq!(site.info("b").parent.as_ref(), Some(&parent));
    assert_eq!(["a", "b", "x"].map(has_clones), [true, false, false]);
    assert_eq!(tool.remove("a").unwrap(), Removed::HasSnapshots);
    assert_eq!(tool.remove_snapshot(ImageRef::Name("a"), "s").unwrap(), Removed::Gone);
    assert_eq!(tool.remove_snapshot(ImageRef::Name("a"), "s").unwrap(), Removed::Absent);
    let snapshots = site.snapshots("a");
    assert!(snapshots.len() == 1 && snapshots[0].trashed && snapshots[0].name == "s", "{snapshots:?}");
    assert_eq!(site.info("a").snapshots, 1);
    assert_eq!(clone("a", "c"), None, "its snapshot is in the trash");
    let renamed = site.info("b").parent.unwrap();
    assert_ne!(renamed.snapshot, "s");
    assert_eq!(Parent { snapshot: "s".into(), ..renamed }, parent);
    assert_eq!(tool.create_snapshot("a", "s").unwrap(), Some(Made::New), "the name is free");
    assert!(has_clones("a"));
    assert_eq!(tool.flatten("b").unwrap(), Changed::Done);
    assert!(!has_clones("a"));
    let snapshots = site.snapshots("a");
    assert!(snapshots.len() == 1 && !snapshots[0].trashed, "{snapshots:?}");
    assert_eq!(site.info("b").parent, None);
    assert_eq!(tool.flatten("x").unwrap(), Changed::Absent);
    tool.flatten("b").unwrap_err();
}

pub fn a_clone_may_be_elsewhere(site: &Site) {
    let (tool, id) = (site.tool(), site.create_with_snapshot("a"));
    assert_eq!(site.clone_image("a", &site.beside, "a").unwrap(), Some(Made::New));
    assert_eq!(site.clone_image("a", &site.beside, "a").unwrap(), Some(Made::Taken));
    let beside = site.tool_at(&site.beside);
    let info = beside.info(ImageRef::Name("a")).unwrap().unwrap();
    let parent = info.parent.unwrap();
    assert_eq!((&parent.namespace, parent.id.as_ref()), (&site.at.namespace, Some(&id)));
    assert_eq!(beside.list().unwrap()[0].parent, Some(Parent { id: None, ..parent.clone() }));
    assert!(tool.has_clones("a").unwrap() && !beside.has_clones("a").unwrap());
    tool.remove_snapshot(ImageRef::Name("a"), "s").unwrap();
    site.others.put_aside("a");
    let trashed = beside.info(ImageRef::Name("a")).unwrap().unwrap().parent.unwrap();
    assert!(trashed.snapshot != "s" && trashed.in_trash, "{trashed:?}");
    assert_eq!(Parent { snapshot: "s".into(), in_trash: false, ..trashed }, parent);
    assert!(beside.list().unwrap()[0].parent.as_ref().is_some_and(|it| it.image == "a" && !it.in_trash));
    site.create_with_snapshot("b");
    let pool = PoolRef { pool: "absent".into(), ..site.at.clone() };
    let namespace = PoolRef { namespace: "absent".into(), ..site.at.clone() };
    let layout = Layout::default();
    for absent in [pool, namespace] {
        assert_lacks("absent", "clone to", site.clone_image("b", &absent, "c"));
        let from =
            NewClone { from: &absent, image: "b", snapshot: "s", to: &site.at, name: "c", layout: &layout };
        assert_lacks("absent", "clone from", tool.clone_image(&from));
    }
}

pub fn a_clone_inherits(site: &Site) {
    let tool = site.tool();
    let features = ["layering", "exclusive-lock", "object-map"].map(str::to_string);
    let layout = Layout { features: Some(features.into()), object_size: Some(1 << 20), ..Layout::default() };
    let image = NewImage { name: "a", size: SIZE, layout: &layout, metadata: &[("key", "value")] };
    tool.create(&image).unwrap();
    tool.create_snapshot("a", "s").unwrap();
    tool.resize("a", 2 * SIZE).unwrap();
    site.clone_image("a", &site.at, "b").unwrap();
    let (parent, clone) = (site.info("a"), site.info("b"));
    assert_eq!((clone.size, clone.snapshots, clone.largest), (SIZE, 0, parent.largest));
    assert_eq!(clone.features, parent.features);
    assert!(clone.features.contains("operations"), "{:?}", clone.features);
    assert_eq!(tool.metadata("b", "key").unwrap().as_deref(), Some("value"));
    let layout = Layout { data_pool: Some("absent".into()), ..Layout::default() };
    let (from, to) = (&site.at, &site.at);
    let clone = NewClone { from, image: "a", snapshot: "s", to, name: "c", layout: &layout };
    assert_lacks("absent", "clone", tool.clone_image(&clone));
}

pub fn features_are_disabled_and_enabled(site: &Site) {
    let tool = site.tool();
    site.create("a");
    let all = site.info("a").features;
    let features = ["object-map", "fast-diff"];
    assert_eq!(tool.disable_features("a", &features).unwrap(), Changed::Done);
    tool.disable_features("a", &features).unwrap_err();
    let left = site.info("a").features;
    assert_eq!(all.difference(&left).map(String::as_str).collect::<Vec<_>>(), ["fast-diff", "object-map"]);
    assert_eq!(tool.enable_features("a", &features).unwrap(), Changed::Done);
    tool.enable_features("a", &features).unwrap_err();
    assert_eq!(tool.rebuild_object_map("a").unwrap(), Changed::Done);
    assert_eq!(site.info("a").features, all);
    assert_eq!(tool.disable_features("x", &features).unwrap(), Changed::Absent);
    assert_eq!(tool.enable_features("x", &features).unwrap(), Changed::Absent);
    assert_eq!(tool.rebuild_object_map("x").unwrap(), Changed::Absent);
}

pub fn the_trash_is_purged_by_id(site: &Site) {
    let (tool, id) = (site.tool(), site.create_with_snapshot("a"));
    assert_eq!(tool.trash().unwrap(), []);
    assert_eq!(tool.purge(&id).unwrap(), Removed::Absent, "it is not in the trash");
    site.others.put_aside("a");
    assert_eq!(tool.trash().unwrap(), [Trashed { name: "a".into(), id: id.clone() }]);
    assert_eq!(tool.info(ImageRef::Name("a")).unwrap(), None);
    let info = tool.info(ImageRef::Id(&id)).unwrap().expect("an id finds it");
    assert_eq!((info.name.as_str(), info.size, info.snapshots), ("a", SIZE, 1));
    assert_eq!((tool.list().unwrap(), tool.names().unwrap()), (Vec::new(), Vec::new()));
    assert_eq!(tool.remove("a").unwrap(), Removed::Absent);
    assert_eq!(tool.purge(&id).unwrap(), Removed::HasSnapshots);
    assert_eq!(tool.remove_snapshot(ImageRef::Id(&id), "s").unwrap(), Removed::Gone);
    assert_eq!(tool.purge(&id).unwrap(), Removed::Gone);
    assert_eq!(tool.purge(&id).unwrap(), Removed::Absent);
    assert_eq!(tool.info(ImageRef::Id(&id)).unwrap(), None);
    let id = site.create("a");
    let client = site.others.open("a");
    site.others.put_aside("a");
    assert_eq!(tool.purge(&id).unwrap(), Removed::Watched);
    drop(client);
    assert_eq!(tool.purge(&id).unwrap(), Removed::Gone);
    assert_eq!(tool.trash().unwrap(), []);
}
