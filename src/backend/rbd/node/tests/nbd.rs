//! Images that rbd-nbd maps.

use super::*;

#[test]
fn a_device_of_rbd_nbd_bears_what_it_is() {
    let node = Node::new();
    let words = ["map", "--cookie", COOKIE, "--io-timeout=60", "vms/n1/web"];
    expect_tool(
        &node,
        Tool::RbdNbd,
        &words,
        1,
        "rbd-nbd: failed to open image: (2) No such file or directory",
    );
    let options = MapOptions { options: vec!["io-timeout=60".into()], ..options(Mounter::Nbd) };
    assert_eq!(node.map(&options).unwrap_err().kind(), Kind::NotFound);
    assert!(!format!("{:?}", node.runner.ran()).contains("AQBkey"));

    node.nbd_connects(2, COOKIE);
    node.runs(40, &["rbd-nbd", "map", "--cookie", COOKIE, "vms/n1/web"]);
    let mapping = node.map(&options).unwrap();
    assert_eq!((mapping.path.as_path(), mapping.image.as_str()), (Path::new("/dev/nbd2"), "1081c73c7e97"));
    assert_eq!(node.mapper.condition(&mapping), None);
    let by_name = Image { id: None, ..node.image() };
    assert_eq!(node.mapper.find(&by_name).unwrap(), Some(mapping));
    let newer = Image { id: Some("newer"), ..node.image() };
    assert_eq!(node.mapper.find(&newer).unwrap(), None);
}

#[test]
fn a_node_without_a_free_nbd_device_says_how_to_get_more() {
    let node = Node::new();
    let words = ["map", "--cookie", COOKIE, "vms/n1/web"];
    expect_tool(&node, Tool::RbdNbd, &words, 1, "rbd-nbd: failed to find unused device");
    let error = node.map(&options(Mounter::Nbd)).unwrap_err();
    assert_eq!(error.kind(), Kind::NoSpace, "{error}");
    for part in ["vms/n1/web", "modprobe nbd nbds_max=", "try-netlink"] {
        assert!(error.message().contains(part), "{error}");
    }
}

#[test]
fn a_device_that_has_lost_its_process_gets_another() {
    let node = Node::new();
    node.nbd_connects(2, COOKIE);
    let mapping = node.find().unwrap().unwrap();
    let told = node.mapper.condition(&mapping).unwrap();
    assert!(told.detail.contains("/dev/nbd2 has lost its rbd-nbd process"), "{told}");
    let words = ["attach", "--try-netlink", "--cookie", COOKIE, "--device", "/dev/nbd2", "vms/n1/web"];
    expect_tool(&node, Tool::RbdNbd, &words, 1, "rbd-nbd: attach failed");
    let error = node.map(&options(Mounter::Nbd)).unwrap_err();
    assert!(error.message().contains("/dev/nbd2 has lost its process"), "{error}");
}

/// The helper's next requests ask for the device's claim, and then for the processes that have it open.
fn expect_looks(node: &Node, claimed: bool, openers: Option<&str>) {
    let reply = format!(r#"{{"Ok":{claimed}}}"#);
    node.helper
        .expect(br#"{"IsClaimed":{"device":{"Unix":[47,100,101,118,47,110,98,100,50]}}}"#.as_slice(), reply);
    if let Some(openers) = openers {
        let question = br#"{"Openers":{"device":{"major":43,"minor":0}}}"#;
        node.helper.expect(question.as_slice(), format!(r#"{{"Ok":{openers}}}"#));
    }
}

const OWN_PROCESS: &str = r#"{"seen":[{"process":40,"name":"rbd-nbd"}],"hidden":0}"#;

#[test]
fn rbd_nbd_unmaps_only_what_nobody_uses() {
    let node = Node::new();
    node.nbd_connects(2, COOKIE);
    node.runs(40, &["rbd-nbd", "map", "--cookie", COOKIE, "vms/n1/web"]);
    let mapping = node.find().unwrap().unwrap();
    let of_others = r#"{"seen":[{"process":7,"name":"qemu"},{"process":40,"name":"rbd-nbd"}],"hidden":0}"#;
    let unseen = r#"{"seen":[{"process":40,"name":"rbd-nbd"}],"hidden":3}"#;
    for (claimed, openers) in [(true, None), (false, Some(of_others)), (false, Some(unseen))] {
        expect_looks(&node, claimed, openers);
        let error = node.mapper.unmap(&node.call, &mapping, None).expect_err("UNSAFE: it is in use");
        assert_eq!(error.kind(), Kind::Precondition, "{error}");
    }
    expect_looks(&node, false, Some(OWN_PROCESS));
    node.runner.expect(&["rbd-nbd", "-c", "/dev/null", "unmap", "/dev/nbd2"], "");
    node.mapper.unmap(&node.call, &mapping, None).unwrap();

    node.nbd_connects(2, "cephlet/main/vms/n1/other/1");
    node.mapper.unmap(&node.call, &mapping, None).unwrap();
}

#[test]
fn what_was_mapped_and_serves_nobody_is_not_given_out() {
    let mut node = Node::new();
    Nbd::on(&mut node, None);
    // rbd-nbd reports success, and ends.
    fs::remove_dir_all(node.dir.path().join("proc/40")).unwrap();
    expect_map_by_nbd(&node);
    let error = node.map(&options(Mounter::Nbd)).unwrap_err();
    assert!(error.kind() == Kind::Unavailable && error.message().contains("/dev/nbd2"), "{error}");
}

/// The effect of rbd-nbd on the kernel: `map` connects a device. `unmap` removes the device and ends its
/// process, which ends the lock.
struct Nbd {
    runner: Arc<FakeRunner>,
    sysfs: PathBuf,
    held: Mutex<Option<ByteLock>>,
}

impl Nbd {
    /// Has the node use this runner. `held` is the lock of a process of an earlier daemon.
    fn on(node: &mut Node, held: Option<ByteLock>) {
        let (runner, sysfs) = (node.runner.clone(), node.dir.path().join("sys"));
        node.runs(40, &["rbd-nbd", "map", "--cookie", COOKIE, "vms/n1/web"]);
        node.mapper.runner = Arc::new(Self { runner, sysfs, held: Mutex::new(held) });
    }
}

impl Runner for Nbd {
    fn run(&self, call: &Call, cmd: &Cmd) -> Result<Output, CommandError> {
        if cmd.to_string().contains(" unmap ") {
            fs::remove_file(self.sysfs.join("block/nbd2/pid")).unwrap();
            self.held.lock().take().into_iter().for_each(|held| held.give_back().unwrap());
        } else {
            connect(&self.sysfs, 2, COOKIE);
        }
        self.runner.run(call, cmd)
    }

    fn has(&self, tool: Tool) -> Result<(), CommandError> {
        self.runner.has(tool)
    }
}

fn expect_map_by_nbd(node: &Node) {
    let mut argv = reaching(&node.access, Tool::RbdNbd);
    argv.extend(["map", "--cookie", COOKIE, "vms/n1/web"].map(String::from));
    node.runner.expect(&argv.iter().map(String::as_str).collect::<Vec<_>>(), "/dev/nbd2\n");
}

fn expect_unmap_by_nbd(node: &Node) {
    expect_looks(node, false, Some(OWN_PROCESS));
    node.runner.expect(&["rbd-nbd", "-c", "/dev/null", "unmap", "/dev/nbd2"], "");
}

#[test]
fn what_rbd_nbd_has_mapped_must_have_the_name_afterwards() {
    for (id_now, kind) in [
        (Ok(Some("newer".to_string())), Kind::NotFound),
        (Ok(None), Kind::NotFound),
        (Err(Error::unavailable("no answer")), Kind::Unavailable),
    ] {
        let mut node = Node::new();
        Nbd::on(&mut node, None);
        expect_map_by_nbd(&node);
        expect_unmap_by_nbd(&node);
        let error = node.map_while(&options(Mounter::Nbd), &|| id_now.clone()).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(
            error.message().contains("1081c73c7e97") && node.mapper.is_absent(&node.image()).unwrap(),
            "{error}"
        );
    }
}

#[test]
fn what_a_map_that_was_broken_off_has_left_is_given_to_nobody() {
    let mut node = Node::new();
    let left = node.mapper.lock(&node.call, &node.image()).unwrap();
    node.nbd_connects(2, COOKIE);
    Nbd::on(&mut node, Some(left));
    assert_eq!(node.find().unwrap(), None);
    expect_unmap_by_nbd(&node);
    expect_map_by_nbd(&node);
    let mapping = node.map(&options(Mounter::Nbd)).unwrap();
    assert_eq!(node.find().unwrap(), Some(mapping));

    let left = node.mapper.lock(&node.call, &node.image()).unwrap();
    Nbd::on(&mut node, Some(left));
    expect_unmap_by_nbd(&node);
    node.mapper.ensure_unmapped(&node.call, &node.image()).unwrap();
}
