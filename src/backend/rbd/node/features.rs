//! Which features of an image the kernel can do.

use std::collections::BTreeSet;

use crate::error::{Error, Result};

/// Features by rbd's names, each at its bit (`RBD_FEATURE_…`, librbd/features.h).
const FEATURES: [&str; 12] = [
    "layering",
    "striping",
    "exclusive-lock",
    "object-map",
    "fast-diff",
    "deep-flatten",
    "journaling",
    "data-pool",
    "operations",
    "migrating",
    "non-primary",
    "dirty-cache",
];

/// Those of `features` whose bit is not in `supported`. A name that is not known here is left to the kernel
/// to judge.
fn unsupported(features: &BTreeSet<String>, supported: u64) -> Vec<&'static str> {
    let lacks = |(bit, name): (usize, &&'static str)| {
        (features.contains(*name) && supported & 1 << bit == 0).then_some(*name)
    };
    FEATURES.iter().enumerate().filter_map(lacks).collect()
}

/// Refuses an image with features that the kernel cannot do; `image` is its `POOL/NAMESPACE/NAME`.
pub(super) fn check(image: &str, features: &BTreeSet<String>, supported: u64) -> Result<()> {
    let lacking = unsupported(features, supported);
    if lacking.is_empty() {
        return Ok(());
    }
    Err(Error::precondition(format!(
        "this node's kernel cannot map {image}, which has {}: create the volume with the parameter \
         mounter=rbd-nbd or without them \
         in imageFeatures, or take them away with `rbd feature disable {image} {}`",
        lacking.join(", "),
        lacking.join(" ")
    )))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::error::Kind;

    /// Linux 6.1.
    const SUPPORTED: u64 = 0x1bf;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_the_kernel_can_do_is_fine() {
        let usual = set(&[
            "layering",
            "exclusive-lock",
            "object-map",
            "fast-diff",
            "deep-flatten",
            "operations",
            "data-pool",
        ]);
        check("rbd/a", &usual, SUPPORTED).unwrap();
        check("rbd/a", &BTreeSet::new(), 0).unwrap();
        check("rbd/a", &set(&["from-the-future"]), SUPPORTED).unwrap();
    }

    #[test]
    fn what_it_cannot_is_named_with_both_ways_out() {
        let error = check("rbd/n/a", &set(&["layering", "journaling", "migrating"]), SUPPORTED).unwrap_err();
        assert_eq!(error.kind(), Kind::Precondition);
        for words in [
            "has journaling, migrating:",
            "mounter=rbd-nbd",
            "`rbd feature disable rbd/n/a journaling migrating`",
        ] {
            assert!(error.message().contains(words), "{error}");
        }
    }

    #[test]
    fn an_older_kernel_can_do_less() {
        assert_eq!(unsupported(&set(&["layering", "object-map"]), 1), ["object-map"]);
    }
}
