//! Chains of clones.
