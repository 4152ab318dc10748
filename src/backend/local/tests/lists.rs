//! Lists, conditions and capacity.

use std::os::unix::fs::MetadataExt;

use super::*;
use crate::backend::SnapshotFilter;

fn names_of(it: &Fixture, after: &str, limit: usize) -> (Vec<String>, Option<String>) {
    let part = it.local.list(&it.call, (&format!("local:{after}"), limit), &Err).unwrap();
    let next = part.next.map(|key| key.strip_prefix("local:").unwrap().to_string());
    (part.entries.into_iter().map(|volume| volume.id.object).collect(), next)
}

#[test]
fn pages_follow_each_other_in_order() {
    let it = fixture();
    for name in ["a", "b", "c", "d", "e"] {
        it.volume(name, MIB);
    }
    let all = it.names("volumes");
    assert_eq!(names_of(&it, "", 0), (all.clone(), None));
    assert_eq!(names_of(&it, "", 5), (all.clone(), None), "a full last page is the last");
    assert_eq!(names_of(&it, "", 2), (all[..2].to_vec(), Some(all[1].clone())));
    assert_eq!(names_of(&it, &all[1], 2), (all[2..4].to_vec(), Some(all[3].clone())));
    assert_eq!(names_of(&it, &all[3], 2), (all[4..].to_vec(), None));
    assert_eq!(names_of(&it, &all[4], 2), (vec![], None));
}

#[test]
fn a_page_goes_on_after_a_volume_that_has_gone() {
    let it = fixture();
    let volumes: Vec<_> = ["a", "b", "c"].iter().map(|name| it.volume(name, MIB)).collect();
    let all = it.names("volumes");
    let second = volumes.iter().find(|volume| volume.id.object == all[1]).unwrap();
    it.delete(&second.id).unwrap();
    assert_eq!(names_of(&it, &all[1], 2), (vec![all[2].clone()], None));
}

#[test]
fn damage_is_a_condition_and_hides_nobody() {
    let it = fixture();
    let names = ["whole", "no record", "bad record", "newer", "no image", "short"];
    let volumes = names.map(|name| it.volume(name, 2 * MIB));
    std::fs::remove_file(it.path(&volumes[1], "record")).unwrap();
    std::fs::write(it.path(&volumes[2], "record"), "{\"version\":1}").unwrap();
    std::fs::write(it.path(&volumes[3], "record"), "{\"version\":2}").unwrap();
    std::fs::remove_file(it.image(&volumes[4])).unwrap();
    File::options().write(true).open(it.image(&volumes[5])).unwrap().set_len(MIB).unwrap();
    let listed = it.local.list(&it.call, ("", 0), &Err).unwrap().entries;
    let expected = [
        None,
        Some((Reason::RecordUnreadable, "record is missing")),
        Some((Reason::RecordUnreadable, "record: it is damaged")),
        Some((Reason::RecordUnreadable, "version 2")),
        Some((Reason::ImageMissing, "image is missing")),
        Some((Reason::ImageCutOff, "cut off")),
    ];
    for (volume, expected) in volumes.iter().zip(expected) {
        let condition = &listed.iter().find(|listed| listed.id.object == volume.id.object).unwrap().condition;
        let told = condition.as_ref().unwrap();
        assert_eq!(told.as_ref().map(|fault| fault.reason), expected.map(|(reason, _)| reason));
        assert!(told.iter().zip(expected).all(|(fault, (_, part))| fault.detail.contains(part)), "{told:?}");
    }
}

#[test]
fn a_volume_without_record_is_used_without_incarnation() {
    let it = fixture();
    let volume = it.volume("a", MIB);
    std::fs::remove_file(it.path(&volume, "record")).unwrap();
    refused(
        it.local.find(&it.call, &volume.id, &it.none),
        Kind::Internal,
        &["record is missing", &volume.id.key()],
    );
    refused(it.create(&it.new_volume("a", MIB)), Kind::Internal, &["record is missing"]);
    let any = crate::ids::VolumeId { incarnation: None, ..volume.id.clone() };
    let bare = it.local.find(&it.call, &any, &it.none).unwrap().unwrap();
    assert_eq!((bare.size, &bare.id), (MIB, &any));
    refused(it.snapshot("s", &bare), Kind::Precondition, &["record is missing"]);
    assert_eq!(it.delete(&any).unwrap(), crate::backend::Deleted::Gone);
}

#[test]
fn snapshots_are_listed_by_page_and_by_volume() {
    let it = fixture();
    let (a, b) = (it.volume("a", MIB), it.volume("b", MIB));
    for name in ["1", "2", "3"] {
        it.snapshot(name, &a).unwrap();
        it.snapshot(&format!("{name}b"), &b).unwrap();
    }
    let list = |filter: &SnapshotFilter, after: &str, limit| {
        it.local.snapshots().list(&it.call, filter, &Secrets::default(), after, limit).unwrap()
    };
    assert_eq!(list(&SnapshotFilter::All, "", 0).entries.len(), 6);
    let mut found = Vec::new();
    let mut after = String::new();
    loop {
        let part = list(&SnapshotFilter::Of(a.id.clone()), &after, 2);
        assert!(part.entries.len() <= 2);
        found.extend(part.entries);
        match part.next {
            Some(next) => after = next,
            None => break,
        }
    }
    assert_eq!(found.len(), 3);
    assert!(found.iter().all(|snapshot| snapshot.source == a.id));
    std::fs::write(it.root.join("snapshots").join(it.names("snapshots")[0].clone()).join("record"), "x")
        .unwrap();
    assert_eq!(list(&SnapshotFilter::All, "", 0).entries.len(), 5, "a damaged one hides no other");
}

#[test]
fn capacity_is_what_is_free_and_not_promised() {
    let mounted = Mounted::new(&["mkfs.ext4", "-q", "-b", "4096", "-m", "0"], 64 * MIB);
    let it = Fixture::at(mounted.path.join("local"));
    let before = it.local.capacity(&it.call, &Map::new(), &[], None).unwrap();
    assert_eq!(before.smallest, MIB);
    assert_eq!(before.largest % 4096, 0);
    let volume = it.volume("a", 8 * MIB);
    it.snapshot("s", &volume).unwrap();
    let after = it.local.capacity(&it.call, &Map::new(), &[], None).unwrap();
    let taken = before.available - after.available;
    assert!((16 * MIB..17 * MIB).contains(&taken), "{taken} bytes for a volume and a snapshot of 8 MiB each");
    assert!(after.largest > before.largest - MIB);
    it.volume("b", 40 * MIB);
    assert_eq!(
        it.local.capacity(&it.call, &Map::new(), &[], None).unwrap().available,
        0,
        "more is promised than is free"
    );
    refused(
        it.local.capacity(&it.call, &Map::from([("x".into(), "y".into())]), &[], None),
        Kind::InvalidArgument,
        &["\"x\""],
    );
}

#[test]
fn a_full_file_system_is_a_condition_of_what_is_promised() {
    let mounted = Mounted::tiny_ext4();
    let it = Fixture::at(mounted.path.join("local"));
    let volume = it.volume("a", 4 * MIB);
    let free = it.local.capacity(&it.call, &Map::new(), &[], None).unwrap().largest;
    let ballast = File::create(mounted.path.join("ballast")).unwrap();
    rustix::fs::fallocate(&ballast, rustix::fs::FallocateFlags::empty(), 0, free - MIB / 4).unwrap();
    assert!(ballast.metadata().unwrap().blocks() > 0);
    let told = it.find(&volume).unwrap().condition.flatten().unwrap();
    assert!(told.detail.contains("4194304 more are promised"), "{told}");
}

#[test]
fn a_look_at_the_disk_tells_when_it_fails_or_runs_full() {
    let it = fixture();
    for (space, expected) in [
        (Some((100, 5)), None),
        (Some((100, 4)), Some(Reason::LocalDiskNearlyFull)),
        (None, Some(Reason::LocalDiskFailed)),
    ] {
        *it.loops.space.lock() = space;
        let told = it.local.storage_faults(&it.call);
        assert_eq!(told.iter().map(|fault| fault.reason).collect::<Vec<_>>(), Vec::from_iter(expected));
    }
}

#[test]
fn a_disk_that_hangs_is_not_looked_at_twice() {
    let it = fixture();
    let mut hanging = it.loops.space.lock();
    *hanging = Some((100, 100));
    std::thread::scope(|scope| {
        let first = scope.spawn(|| it.local.storage_faults(&Call::internal("test")));
        while !it.loops.is_asked.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        let told = it.local.storage_faults(&it.call);
        assert_eq!(told, [Reason::StorageSilent.into()]);
        drop(hanging);
        assert_eq!(first.join().unwrap(), []);
    });
    assert_eq!(it.local.storage_faults(&it.call), [], "it answers again");
}
