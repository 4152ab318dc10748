//! Which features of an image the kernel can do.

use std::collections::BTreeSet;

use super::MapOptions;
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

/// Those that who only reads must know, too (RBD_FEATURES_INCOMPATIBLE, librbd/features.h). Linux before 5.5
/// makes no difference, and refuses by itself.
const FOR_READERS: [&str; 4] = ["layering", "striping", "data-pool", "dirty-cache"];

/// Those that `rbd feature disable` takes (RBD_FEATURES_MUTABLE and RBD_FEATURES_DISABLE_ONLY,
/// librbd/Features.h).
const REMOVABLE: [&str; 5] = ["exclusive-lock", "object-map", "fast-diff", "deep-flatten", "journaling"];

/// Those of `features` that matter and whose bit is not in `supported`. A name that is not known here is left
/// to the kernel to judge.
fn unsupported(features: &BTreeSet<String>, supported: u64, read_only: bool) -> Vec<&'static str> {
    let lacks = |(bit, name): (usize, &&'static str)| {
        let matters = features.contains(*name) && (!read_only || FOR_READERS.contains(name));
        (matters && supported & 1 << bit == 0).then_some(*name)
    };
    FEATURES.iter().enumerate().filter_map(lacks).collect()
}

/// Refuses an image with features that the kernel cannot do; `image` is its `POOL/NAMESPACE/NAME`.
pub(super) fn check(image: &str, options: &MapOptions, supported: u64) -> Result<()> {
    let lacking = unsupported(&options.features, supported, options.read_only);
    if lacking.is_empty() {
        return Ok(());
    }
    let disable = match lacking.iter().all(|name| REMOVABLE.contains(name)) {
        true => {
            format!(", or take them away with `rbd feature disable {image} {}`", lacking.join(" "))
        }
        false => String::new(),
    };
    Err(Error::precondition(format!(
        "this node's kernel cannot map {image}, which has {}: create the volume with the parameter \
         mounter=rbd-nbd or without them in imageFeatures{disable}",
        lacking.join(", ")
    )))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::backend::rbd::node::Mounter;
    use crate::error::Kind;

    /// Linux 6.1.
    const SUPPORTED: u64 = 0x1bf;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(ToString::to_string).collect()
    }

    fn options(features: BTreeSet<String>, read_only: bool) -> MapOptions {
        MapOptions { mounter: Mounter::Kernel, options: Vec::new(), read_only, features }
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
        for (features, supported) in
            [(usual, SUPPORTED), (BTreeSet::new(), 0), (set(&["from-the-future"]), SUPPORTED)]
        {
            check("rbd/a", &options(features, false), supported).unwrap();
        }
    }

    #[test]
    fn to_read_it_need_not_know_what_matters_to_writers() {
        let copy = set(&["layering", "exclusive-lock", "non-primary"]);
        check("rbd/a", &options(copy.clone(), false), SUPPORTED).unwrap_err();
        check("rbd/a", &options(copy, true), SUPPORTED).unwrap();
        let striped = options(set(&["layering", "striping", "journaling"]), true);
        assert!(check("rbd/a", &striped, 1).unwrap_err().message().contains("has striping:"));
    }

    #[test]
    fn what_it_cannot_is_named_with_both_ways_out() {
        let features = set(&["layering", "journaling", "migrating"]);
        let error = check("rbd/n/a", &options(features, false), SUPPORTED).unwrap_err();
        assert_eq!(error.kind(), Kind::Precondition);
        for words in ["has journaling, migrating:", "mounter=rbd-nbd"] {
            assert!(error.message().contains(words), "{error}");
        }
        assert!(!error.message().contains("feature disable"), "it refuses migrating: {error}");
        let error =
            check("rbd/n/a", &options(set(&["layering", "journaling"]), false), SUPPORTED).unwrap_err();
        assert!(error.message().contains("`rbd feature disable rbd/n/a journaling`"), "{error}");
    }

    #[test]
    fn an_older_kernel_can_do_less() {
        assert_eq!(unsupported(&set(&["layering", "object-map"]), 1, false), ["object-map"]);
    }
}
