use super::*;
use crate::backend::rbd::tool::*;

#[test]
fn flatten_can_be_broken_off() {
    let it = Fixture::new();
    let flatten = "rbd ~ flatten --no-progress --pool=vms --image=web";
    let go = || it.flatten(&it.call, &it.at, "web");
    it.prints(flatten, "");
    assert_eq!(go().unwrap(), Changed::Done);
    assert!(it.was(Class::Breakable));
    it.fails(
        flatten,
        22,
        "librbd::Operations: image has no parent\n\nrbd: flatten error: (22) Invalid argument\n",
    );
    assert_eq!(go().unwrap(), Changed::Done, "a repeat");
    it.fails(flatten, 2, NO_IMAGE);
    assert_eq!(go().unwrap(), Changed::Absent);
}

#[test]
fn features_are_switched_and_the_object_map_is_rebuilt() {
    let it = Fixture::new();
    let map = ["object-map", "fast-diff"];
    let commands = [
        "rbd ~ feature disable --pool=vms --image=web object-map fast-diff",
        "rbd ~ feature enable --pool=vms --image=web object-map fast-diff",
        "rbd ~ object-map rebuild --no-progress --pool=vms --image=web",
    ];
    for (number, command) in commands.into_iter().enumerate() {
        let go = || match number {
            0 => it.disable_features(&it.call, &it.at, "web", &map),
            1 => it.enable_features(&it.call, &it.at, "web", &map),
            _ => it.rebuild_object_map(&it.call, &it.at, "web"),
        };
        it.prints(command, "");
        assert_eq!(go().unwrap(), Changed::Done);
        assert_eq!(it.was(Class::Breakable), number == 2);
        it.fails(command, 2, NO_IMAGE);
        assert_eq!(go().unwrap(), Changed::Absent);
        it.fails(command, 22, "rbd: failed to update image features: (22) Invalid argument\n");
        assert_error(go(), Kind::Internal, &["image vms/web"]);
    }
}
