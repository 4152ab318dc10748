#![allow(clippy::unwrap_used)]

use super::*;
use crate::error::Kind;

fn domains(text: &str) -> Domains {
    Domains::new(text.split(',').filter_map(|pair| pair.split_once('='))).unwrap()
}

fn pools(all: &[(&str, &str)]) -> Vec<DomainPool> {
    let pool = |(name, at): &(&str, &str)| DomainPool {
        name: name.to_string(),
        data_pool: None,
        domains: domains(at),
    };
    all.iter().map(pool).collect()
}

fn wishes(preferred: &[&str], requisite: &[&str]) -> Wishes {
    let all = |texts: &[&str]| texts.iter().map(|text| domains(text)).collect();
    Wishes { preferred: all(preferred), requisite: all(requisite) }
}

/// The rounds as text: the pools with their domains in common with the wish, and `!` for a stated domain.
fn rounds(wishes: &Wishes, pools: &[DomainPool]) -> Vec<String> {
    let show = |round: &Round<'_>| {
        let pools: Vec<String> = round.pools.iter().map(|(pool, at)| format!("{}:{at}", pool.name)).collect();
        format!("{}{}", pools.join(" "), if round.is_told { "!" } else { "" })
    };
    wishes.rounds(pools).iter().map(show).collect()
}

#[test]
fn preferred_domains_come_in_their_order_and_then_all_requisite_ones() {
    let pools = pools(&[("a", "zone=1"), ("b", "zone=2"), ("c", "region=eu,zone=3")]);
    let both = wishes(&["region=eu,zone=3,rack=r", "zone=1"], &["zone=1", "zone=2"]);
    assert_eq!(rounds(&both, &pools), ["!", "a:zone=1!", "a:zone=1 b:zone=2"], "c is not requisite");
    let any = wishes(&["region=eu,zone=3,rack=r"], &[]);
    assert_eq!(rounds(&any, &pools)[0], "c:region=eu,zone=3!");
    assert_eq!(rounds(&wishes(&[], &["region=eu"]), &pools), ["c:region=eu!"], "one domain is told");
    assert_eq!(rounds(&wishes(&["zone=9"], &["rack=r"]), &pools), ["!", "!"]);
    assert_eq!(
        rounds(&wishes(&["zone=9"], &[]), &pools[..2]),
        ["!", "a:zone=1 b:zone=2"],
        "only a preference"
    );
    assert_eq!(rounds(&Wishes::default(), &pools[..2]), ["a:zone=1 b:zone=2"], "any of them");
}

#[test]
fn nodes_of_one_domain_ask_for_one_domain() {
    let node = |name: &str| {
        let pairs = [("org.x/zone", "1"), ("org.x/node", name), ("org.x/takes.zone.2", "true")];
        pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
    };
    let requirement = TopologyRequirement { requisite: vec![node("a"), node("b")], preferred: Vec::new() };
    let wishes = Wishes::new("org.x", &requirement);
    assert_eq!(rounds(&wishes, &pools(&[("a", "zone=1")])), ["a:zone=1!"]);
}

#[test]
fn a_pool_without_domains_is_reachable_from_everywhere() {
    let pools = pools(&[("a", ""), ("b", "zone=2")]);
    assert_eq!(rounds(&wishes(&["zone=2"], &[]), &pools), ["a: b:zone=2!", "a: b:zone=2"]);
    assert_eq!(rounds(&wishes(&[], &["zone=1"]), &pools), ["a:!"]);
}

#[test]
fn pools_are_drawn_by_their_room() {
    assert_eq!(pick(&[1, 0, 3], 0), Some(0));
    assert_eq!((pick(&[1, 0, 3], 1), pick(&[1, 0, 3], 3), pick(&[1, 0, 3], 4)), (Some(2), Some(2), Some(0)));
    assert_eq!((pick(&[0, 0], 5), pick(&[], 5)), (None, None), "full pools are left out");
    assert_eq!(pick(&[u64::MAX, u64::MAX], u64::MAX), Some(1));
}

#[test]
fn pools_are_read_as_ceph_csi_writes_them() {
    let text = r#"[{"poolName":"a","dataPool":"ec","domainSegments":[{"domainLabel":"region","value":"eu"},
        {"domainLabel":"zone","value":"eu-1"}]}, {"poolName":"b","domainSegments":[]}]"#;
    let read = parse_constrained_pools(text).unwrap();
    let first = DomainPool {
        name: "a".into(),
        data_pool: Some("ec".into()),
        domains: domains("region=eu,zone=eu-1"),
    };
    assert_eq!((&read[0], read[1].name.as_str(), read[1].domains.is_empty()), (&first, "b", true));
    for (wrong, what) in [
        ("", "poolName"),
        ("[]", "names no pool"),
        (r#"{"poolName":"a"}"#, "poolName"),
        (r#"[{"poolName":"a"}]"#, "domainSegments"),
        (r#"[{"poolName":"a","domainSegments":[{"domainLabel":"zo.ne","value":"x"}]}]"#, "pool \"a\""),
        (r#"[{"poolName":"a","pool":"b","domainSegments":[]}]"#, "unknown field"),
        (
            r#"[{"poolName":"a","domainSegments":[{"domainLabel":"z","value":"1"},{"domainLabel":"z","value":"2"}]}]"#,
            "twice",
        ),
    ] {
        let error = parse_constrained_pools(wrong).unwrap_err();
        assert_eq!(error.kind(), Kind::InvalidArgument);
        assert!(error.message().contains(what), "{wrong}: {error}");
    }
}

#[test]
fn labels_on_pools_are_domains() {
    let pool = |labels: &[(&str, &str)]| ListedPool {
        name: "a".into(),
        labels: labels.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect(),
    };
    let found = labelled(&pool(&[("cephlet.zone", "eu-1"), ("other", "x")])).unwrap();
    assert_eq!(found.domains, domains("zone=eu-1"));
    assert_eq!(labelled(&pool(&[("other", "x")])), None);
    assert_eq!(labelled(&pool(&[("cephlet.zone", "eu 1")])), None, "it is passed over, with a warning");
}
