//! Whether a node can map anything at all.

use super::*;

/// A node without the kernel's driver.
fn bare() -> Node {
    let node = Node::new();
    fs::remove_dir_all(node.dir.path().join("sys/bus/rbd")).unwrap();
    node
}

#[test]
fn a_container_starts_no_rbd_nbd_and_does_not_advise_it() {
    let mut node = bare();
    node.mapper.in_container = true;
    node.write("sys/module/nbd", &[]);
    for refused in [node.mapper.usable(), node.map(&options(Mounter::Nbd)).map(drop)] {
        let said = refused.unwrap_err().to_string();
        assert!(said.contains("would end with this container") && !said.contains("mounter="), "{said}");
    }
    assert_eq!(node.runner.ran().len(), 0);
}

/// The tests run as root, as the daemon does.
#[test]
fn a_node_is_usable_with_one_of_the_drivers_there_or_to_be_loaded() {
    let loadable = |node: &Node, name: &str| {
        node.write("modules", &[("modules.dep", &format!("kernel/drivers/block/{name}.ko:"))]);
    };
    Node::new().mapper.usable().unwrap();
    let node = bare();
    let refused = node.mapper.usable().unwrap_err();
    let parts = ["modprobe rbd", "no module", "modprobe nbd"];
    assert!(
        refused.kind() == Kind::Precondition && parts.iter().all(|part| refused.message().contains(part)),
        "{refused}"
    );
    node.write("sys/module/nbd", &[]);
    node.mapper.usable().unwrap();
    node.runner.lack(Tool::RbdNbd);
    assert!(node.mapper.usable().unwrap_err().message().contains("rbd-nbd was not found"));
    loadable(&node, "rbd");
    node.mapper.usable().unwrap();
    node.runner.lack(Tool::Modprobe);
    assert!(node.mapper.usable().unwrap_err().message().contains("modprobe was not found"));
    let node = bare();
    loadable(&node, "nbd");
    node.mapper.usable().unwrap();
}
