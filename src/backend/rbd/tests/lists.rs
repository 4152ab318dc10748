//! Lists: complete, stable, and cheap.

use super::publish::refused;
use super::*;
use crate::backend::Page;
use crate::backend::ceph::FreeSpace;
use crate::backend::rbd::tool::fake::Fault;
use crate::backend::rbd::tool::*;
use crate::error::{Error, Kind};

/// A cluster: its name, its pools, its namespaces, and whether it has a key of its own.
type Configured<'a> = (&'a str, &'a [&'a str], &'a [&'a str], bool);

/// A controller of clusters that are all the one in memory.
fn controller_of(cluster: &FakeCluster, configured: &[Configured<'_>]) -> Rbd {
    let texts = |list: &[&str]| list.iter().map(|it| it.to_string()).collect::<Vec<_>>();
    let make = |(name, pools, namespaces, own): &Configured<'_>| Cluster {
        credentials: own.then(|| Credentials { user: "csi".into(), key: Some(Secret::new("c2VjcmV0")) }),
        pools: texts(pools),
        namespaces: texts(namespaces),
        ..Cluster::named(name)
    };
    let clusters: Vec<Cluster> = configured.iter().map(make).collect();
    Rbd::new(
        Arc::new(Clusters::of(clusters)),
        Arc::new(cluster.clone()),
        mapper(),
        (identity("node7", ONE), true, Timing::default()),
        background(cluster, ONE),
    )
}

fn add(rbd: &Rbd, cluster: &str, pool: &str, namespace: &str, name: &str) -> Volume {
    let place = Place {
        backend: "rbd".into(),
        cluster: cluster.into(),
        pool: pool.into(),
        namespace: namespace.into(),
    };
    create(rbd, &NewVolume { place, ..wanted(name, GIB, None) }).unwrap()
}

fn list(rbd: &Rbd, after: &str, limit: usize) -> Page<Volume> {
    rbd.volumes().list(&call(), (after, limit), &Err).unwrap()
}

fn ids(part: &Page<Volume>) -> Vec<String> {
    part.entries.iter().map(|volume| volume.id.to_string()).collect()
}

/// All pages of `limit` entries; `between` runs after each page but the last.
fn pages(rbd: &Rbd, limit: usize, mut between: impl FnMut()) -> Vec<String> {
    let (mut all, mut after) = (Vec::new(), String::new());
    loop {
        let part = list(rbd, &after, limit);
        assert!(part.entries.len() <= limit);
        all.extend(ids(&part));
        match part.next {
            Some(next) => after = next,
            None => return all,
        }
        between();
    }
}

#[test]
fn everything_of_all_clusters_pools_and_namespaces_is_listed_once_and_in_order() {
    let cluster = FakeCluster::new();
    cluster.add_pool("p-1");
    cluster.add_namespace("p-1", "team");
    let rbd = controller_of(
        &cluster,
        &[("a-b", &["rbd"], &[""], true), ("a", &["p-1"], &[], true), ("b", &[], &[], false)],
    );
    for name in ["one", "two", "three"] {
        add(&rbd, "a", "p-1", "", name);
        add(&rbd, "a", "p-1", "team", name);
        add(&rbd, "a-b", "rbd", "", name);
    }
    let all = ids(&list(&rbd, "", 0));
    assert_eq!(all.len(), 9);
    let keys: Vec<String> = list(&rbd, "", 0).entries.iter().map(|volume| volume.id.key()).collect();
    assert!(keys.is_sorted(), "{keys:?}");
    for limit in 1..=10 {
        assert_eq!(pages(&rbd, limit, || ()), all, "pages of {limit}");
    }
}

#[test]
fn only_volumes_are_listed() {
    let cluster = FakeCluster::new();
    let rbd = controller(&cluster, ONE);
    let volume = add(&rbd, "ceph", "rbd", "", "a");
    let key = "abcdefghij234";
    for name in [
        format!("csi-tmp-0000aaaa-{key}-zyxw7654"),
        "csi-held-1".into(),
        "web".into(),
        "csi-vol-1".into(),
        format!("csi-vol-{key}x"),
    ] {
        let image = NewImage { name: &name, size: GIB, layout: &Default::default(), metadata: &[] };
        cluster.here().create(&image).unwrap();
    }
    let part = list(&rbd, "", 0);
    assert_eq!(ids(&part), [volume.id.to_string()]);
    assert_eq!((part.entries[0].size, &part.entries[0].condition, part.next), (GIB, &None, None));
}

#[test]
fn pages_are_stable_while_volumes_come_and_go() {
    let cluster = FakeCluster::new();
    let rbd = controller(&cluster, ONE);
    let all: Vec<Volume> = (0..20).map(|k| add(&rbd, "ceph", "rbd", "", &format!("v{k}"))).collect();
    let (gone, staying) = all.split_at(8);
    let mut gone = gone.iter();
    let mut fresh = 100..;
    let told = pages(&rbd, 3, || {
        if let Some(volume) = gone.next() {
            cluster.here().remove(&volume.id.object).unwrap();
        }
        add(&rbd, "ceph", "rbd", "", &format!("v{}", fresh.next().unwrap()));
    });
    for volume in staying {
        assert_eq!(told.iter().filter(|id| **id == volume.id.to_string()).count(), 1, "{}", volume.id);
    }
    let mut once = told.clone();
    once.dedup();
    assert_eq!(told, once);
}

#[test]
fn a_page_costs_one_process_a_pool_and_asks_no_more_pools_than_it_needs() {
    let cluster = FakeCluster::new();
    cluster.add_pool("other");
    let rbd = controller(&cluster, ONE);
    for k in 0..4 {
        add(&rbd, "ceph", "rbd", "", &format!("v{k}"));
        add(&rbd, "ceph", "other", "", &format!("v{k}"));
    }
    cluster.forget_steps();
    list(&rbd, "", 0);
    // Whether images are mirrored is asked only once in a while.
    let asked =
        ["pools", "namespaces other", "namespaces rbd", "list", "mirrored_images", "list", "mirrored_images"];
    assert_eq!(cluster.steps(), asked);
    cluster.forget_steps();
    let first = list(&rbd, "", 3);
    assert_eq!(cluster.steps(), ["list"]);
    let second = list(&rbd, &first.next.unwrap(), 3);
    assert_eq!(
        cluster.steps().len(),
        3,
        "the second page has the last of one pool and the first of the next"
    );
    cluster.forget_steps();
    list(&rbd, &second.next.unwrap(), 3);
    assert_eq!(cluster.steps(), ["list"], "the first pool is over");
    cluster.forget_steps();
    let named = controller_of(&cluster, &[("ceph", &["rbd"], &[""], true)]);
    assert_eq!(list(&named, "", 0).entries.len(), 4);
    assert_eq!(cluster.steps(), ["list", "mirrored_images"]);
}

#[test]
fn a_pool_that_was_used_is_listed_before_the_cluster_tells_of_it_and_forgotten_when_it_is_gone() {
    let cluster = FakeCluster::new();
    let rbd = controller(&cluster, ONE);
    assert_eq!(list(&rbd, "", 0).entries.len(), 0);
    cluster.add_pool("fresh");
    add(&rbd, "ceph", "fresh", "", "a");
    assert_eq!(list(&rbd, "", 0).entries.len(), 1);
}

#[test]
fn what_cannot_be_listed_fails_the_list_and_names_cluster_and_pool() {
    let cluster = FakeCluster::new();
    let rbd = controller_of(&cluster, &[("main", &["rbd", "nope"], &[""], true)]);
    refused(rbd.volumes().list(&call(), ("", 0), &Err), Kind::Precondition, &["\"main\"", "\"nope\""]);
    let rbd = controller_of(&cluster, &[("main", &["rbd"], &[""], true)]);
    cluster.fail_at(1, Fault::Before);
    refused(rbd.volumes().list(&call(), ("", 0), &Err), Kind::Timeout, &["\"main\"", "\"rbd\""]);
    let rbd = controller_of(&cluster, &[("main", &[], &[], true)]);
    cluster.fail_at(1, Fault::Before);
    refused(rbd.volumes().list(&call(), ("", 0), &Err), Kind::Timeout, &["\"main\""]);
    assert_eq!(list(&rbd, "", 0).entries.len(), 0);
}

#[test]
fn a_list_of_what_can_be_reached_goes_on_without_the_rest() {
    let cluster = FakeCluster::new();
    cluster.add_pool("ssd");
    let rbd =
        controller_of(&cluster, &[("a", &["nope", "rbd"], &[""], true), ("b", &["rbd", "ssd"], &[""], true)]);
    let kept = add(&rbd, "a", "rbd", "", "kept").id.to_string();
    let missing = std::cell::RefCell::new(Vec::new());
    let list = || {
        missing.take();
        let unlisted = |error: Error| {
            missing.borrow_mut().push(error.to_string());
            Ok(())
        };
        ids(&rbd.volumes().list(&call(), ("", 0), &unlisted).unwrap())
    };
    // Both names of clusters mean the one in memory.
    let other = format!("rbd:b:{}", kept.strip_prefix("rbd:a:").unwrap());
    assert_eq!(list(), [kept.clone(), other]);
    assert!(matches!(missing.take().as_slice(), [only] if only.contains("\"nope\"")));

    cluster.forget_steps();
    list();
    let lists = cluster.steps().iter().position(|step| step == "list").unwrap();
    cluster.fail_at(lists as u64 + 3, Fault::Before);
    assert_eq!(list(), [kept]);
    let said = missing.take();
    assert!(said.len() == 2 && said[1].contains("\"b\"") && said[1].contains("\"rbd\""), "{said:?}");
}

#[test]
fn a_list_tells_the_source_of_copies_and_without_a_record_what_the_image_says() {
    let cluster = FakeCluster::new();
    let rbd = controller(&cluster, ONE);
    let parent = add(&rbd, "ceph", "rbd", "", "parent");
    let shot = snapshot(&rbd, &parent.id, "s").unwrap();
    let of_snapshot = create(&rbd, &wanted("one", GIB, Some(Origin::Snapshot(shot.id.clone())))).unwrap();
    let of_volume = create(&rbd, &wanted("two", GIB, Some(Origin::Volume(parent.id.clone())))).unwrap();
    // A deleted snapshot has a random name, as the one has through which a volume is copied.
    let copied = Some(Source::Volume(parent.id.to_string()));
    for (rbd, copied) in [(rbd, copied), (controller(&cluster, TWO), None)] {
        let entries = list(&rbd, "", 0).entries;
        let source = |id: &VolumeId| entries.iter().find(|it| it.id == *id).unwrap().source.clone();
        assert_eq!(source(&parent.id), None);
        assert_eq!(source(&of_snapshot.id), Some(Source::Snapshot(shot.id.to_string())));
        assert_eq!(source(&of_volume.id), copied);
    }
}

#[test]
fn room_is_that_of_the_pool_that_takes_the_data() {
    let cluster = FakeCluster::new();
    cluster.add_pool("ec");
    cluster.set_room("ec", FreeSpace { available: 5000, full: false });
    let rbd = controller(&cluster, ONE);
    let room = |pairs: &[(&str, &str)]| {
        let parameters = pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        rbd.volumes().capacity(&call(), &parameters, &[], None)
    };
    let plain = room(&[]).unwrap();
    assert_eq!((plain.available, plain.largest, plain.smallest), (1 << 40, 1 << 40, 4096));
    let of_data = room(&[("dataPool", "ec")]).unwrap();
    assert_eq!((of_data.available, of_data.largest), (5000, 4096));
    cluster.set_room("ec", FreeSpace { available: 1 << 60, full: false });
    let mapped = 256_000_000 << 22;
    assert_eq!(room(&[("pool", "ec")]).unwrap().largest, mapped, "what an object map can hold");
    assert_eq!(room(&[("pool", "ec"), ("objectSize", "8M")]).unwrap().largest, 2 * mapped);
    let mapless = ("imageFeatures", "layering,exclusive-lock");
    assert_eq!(room(&[("pool", "ec"), mapless]).unwrap().largest, 1 << 60);
    cluster.set_room("ec", FreeSpace { available: 5000, full: true });
    assert_eq!(room(&[("pool", "ec")]).unwrap().available, 0);
    refused(room(&[("poool", "x")]), Kind::InvalidArgument, &["poool"]);
}
