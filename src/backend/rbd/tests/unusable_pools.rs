//! Pools that the user may not use for a while: what exists there is not taken for gone.

use super::topology::{three_zones, wanted_in};
use super::*;
use crate::error::Kind;

/// Each controller was just started, and remembers nothing of the volume.
#[test]
fn a_volume_that_cannot_be_seen_keeps_its_name() {
    let cluster = three_zones();
    let new = wanted_in("a", &["1"], &[]);
    let made = create(&controller(&cluster, ONE), &new).unwrap();
    let before = cluster.dump();
    cluster.forbid_pool("one", true);
    for _ in 0..2 {
        let refused = create(&controller(&cluster, ONE), &new).unwrap_err();
        assert_eq!(refused.kind(), Kind::Precondition, "{refused}");
        assert_eq!(cluster.dump(), before, "UNSAFE: the claim of a volume");
    }
    create(&controller(&cluster, ONE), &wanted_in("a", &["2"], &[])).unwrap_err();
    cluster.forbid_pool("one", false);
    let again = create(&controller(&cluster, ONE), &wanted_in("a", &["2"], &[])).unwrap();
    assert_eq!(again.id, made.id, "UNSAFE: two volumes of a name");
}

#[test]
fn a_copy_is_found_though_its_source_cannot_be_used_any_more() {
    let cluster = FakeCluster::new();
    cluster.add_pool("two");
    let source = NewVolume { place: place("two"), ..wanted("source", GIB, None) };
    let source = create(&controller(&cluster, ONE), &source).unwrap().id;
    let copy = wanted("copy", GIB, Some(Origin::Volume(source)));
    let made = create(&controller(&cluster, ONE), &copy).unwrap();
    cluster.forbid_pool("two", true);
    assert_eq!(create(&controller(&cluster, ONE), &copy).unwrap().id, made.id);
}
