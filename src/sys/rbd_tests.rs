//! Tests of `rbd`, on a directory that looks like sysfs. The virtual machine tests the real driver.

#![allow(clippy::unwrap_used)]

use super::*;

/// A directory with the driver's files and no mapped image.
fn bus() -> (tempfile::TempDir, Bus) {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("bus/rbd/devices")).unwrap();
    for file in ["add", "add_single_major", "remove", "remove_single_major"] {
        fs::write(dir.path().join("bus/rbd").join(file), "").unwrap();
    }
    let bus = Bus::at(dir.path());
    (dir, bus)
}

/// Adds a mapped image, as Linux 6.1 shows it.
fn map(root: &Path, number: u32, name: &str, namespace: &str, image_id: &str) {
    let device = root.join(format!("bus/rbd/devices/{number}"));
    let block = root.join(format!("block/rbd{number}"));
    fs::create_dir_all(&device).unwrap();
    fs::create_dir_all(&block).unwrap();
    let config = format!("10.77.0.1:6789,10.77.0.2:6789 name=admin,key=client.admin rbd {name} -");
    let fsid = "9fe80cc8-5ab8-4f68-acd1-df900f7b4b22";
    let attributes = [
        ("pool", "rbd"),
        ("pool_ns", namespace),
        ("name", name),
        ("image_id", image_id),
        ("current_snap", "-"),
        ("cluster_fsid", fsid),
        ("client_id", "client4158"),
        ("config_info", &config),
    ];
    for (attribute, value) in attributes {
        fs::write(device.join(attribute), format!("{value}\n")).unwrap();
    }
    for (attribute, value) in [("ro", "0"), ("dev", &format!("254:{}", number * 16)), ("size", "131072")] {
        fs::write(block.join(attribute), format!("{value}\n")).unwrap();
    }
}

#[test]
fn mapped_images_are_read_in_order() {
    let (dir, bus) = bus();
    for (number, name) in [(10, "c"), (2, "b"), (0, "a")] {
        map(dir.path(), number, name, "", &format!("id{number}"));
    }
    let found = bus.mapped().unwrap();
    assert_eq!(found.iter().map(|image| image.number).collect::<Vec<_>>(), [0, 2, 10]);
    let image = &found[1];
    assert_eq!((image.pool.as_str(), image.namespace.as_str(), image.name.as_str()), ("rbd", "", "b"));
    assert_eq!((image.image_id.as_str(), image.snapshot.as_str(), image.read_only), ("id2", "-", false));
    assert_eq!(image.monitors, ["10.77.0.1:6789", "10.77.0.2:6789"]);
    assert!(!image.has_own_client);
    assert_eq!((image.client.as_str(), image.path()), ("client4158", PathBuf::from("/dev/rbd2")));
    assert_eq!(bus.device_number(2).unwrap(), DeviceNumber { major: 254, minor: 32 });
    assert_eq!(bus.device_size(2).unwrap(), 64 << 20);
}

#[test]
fn a_device_that_goes_meanwhile_is_passed_over() {
    let (dir, bus) = bus();
    map(dir.path(), 0, "a", "n1", "id0");
    map(dir.path(), 1, "b", "", "id1");
    fs::remove_file(dir.path().join("bus/rbd/devices/1/image_id")).unwrap();
    let found = bus.mapped().unwrap();
    assert_eq!(found.iter().map(|image| image.namespace.as_str()).collect::<Vec<_>>(), ["n1"]);
    assert_eq!(bus.read(7).unwrap(), None);
}

#[test]
fn an_older_kernel_tells_less() {
    let (dir, bus) = bus();
    map(dir.path(), 0, "a", "", "id0");
    for attribute in ["pool_ns", "cluster_fsid", "config_info"] {
        fs::remove_file(dir.path().join("bus/rbd/devices/0").join(attribute)).unwrap();
    }
    let image = bus.read(0).unwrap().unwrap();
    assert_eq!((image.namespace.as_str(), image.fsid.as_str(), image.monitors.len()), ("", "", 0));
}

#[test]
fn a_driver_that_is_not_loaded_has_mapped_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let bus = Bus::at(dir.path());
    assert!(!bus.is_loaded() && bus.mapped().unwrap().is_empty());
}

#[test]
fn the_files_of_a_single_major_are_preferred() {
    let (dir, bus) = bus();
    let text = |file: &str| fs::read_to_string(dir.path().join("bus/rbd").join(file)).unwrap();
    bus.add("m name=u rbd a -").unwrap();
    bus.remove(3).unwrap();
    assert_eq!((text("add_single_major").as_str(), text("add").as_str()), ("m name=u rbd a -", ""));
    assert_eq!((text("remove_single_major").as_str(), text("remove").as_str()), ("3", ""));
    for file in ["add_single_major", "remove_single_major"] {
        fs::remove_file(dir.path().join("bus/rbd").join(file)).unwrap();
    }
    bus.add("m name=u rbd b -").unwrap();
    bus.remove(4).unwrap();
    assert_eq!((text("add").as_str(), text("remove").as_str()), ("m name=u rbd b -", "4"));
}

#[test]
fn an_image_is_known_by_its_id() {
    let (dir, bus) = bus();
    map(dir.path(), 0, "a", "n1", "id0");
    let mapped = bus.read(0).unwrap().unwrap();
    let fsid = mapped.fsid.clone();
    let is = |mapped: &MappedImage, fsid: Option<&str>| mapped.is(("rbd", "n1", "id0"), fsid);
    assert!(is(&mapped, None) && is(&mapped, Some(&fsid)), "it was renamed, or its monitors have moved");
    assert!(!is(&mapped, Some("g")), "the same id in another cluster");
    assert!(is(&MappedImage { fsid: String::new(), ..mapped.clone() }, Some("g")), "an older kernel");
    assert!(!is(&MappedImage { image_id: "1".into(), ..mapped.clone() }, None));
    assert!(!is(&MappedImage { pool: "b".into(), ..mapped.clone() }, None));
    assert!(!is(&MappedImage { namespace: String::new(), ..mapped.clone() }, None));
    assert!(!is(&MappedImage { snapshot: "s".into(), ..mapped }, None));
}

#[test]
fn a_line_has_no_more_words_than_it_should() {
    let options = |text: &[&str]| text.iter().map(ToString::to_string).collect::<Vec<_>>();
    let line = add_line(
        "1.2.3.4:6789",
        &options(&["name=admin", "key=client.admin", "_pool_ns=n1", "ro"]),
        "rbd",
        "a",
    );
    assert_eq!(line.unwrap(), "1.2.3.4:6789 name=admin,key=client.admin,_pool_ns=n1,ro rbd a -");
    for option in ["queue_depth=1,secret=x", "a b", "a\nb", ""] {
        assert_eq!(add_line("m", &options(&[option]), "rbd", "a").unwrap_err(), option);
    }
    assert_eq!(add_line("m", &[], "two words", "a").unwrap_err(), "two words");
    assert_eq!(add_line("m", &[], "rbd", "").unwrap_err(), "");
}
