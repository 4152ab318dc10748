//! Plans for operations on volumes: what every protocol has in common.

use std::sync::Arc;

use crate::dispatch::{Call, Identical};
use crate::error::Result;
use crate::grpc::bridge::Plan;
use crate::volume::Operations;
use crate::volume::lock_keys::LockSet;

/// A plan that holds what `locks` says, joins the same request, and hands it to `work`: once, and again after
/// each time that it had to wait.
pub fn plan<Q, R>(
    operations: &Arc<Operations>,
    locks: LockSet,
    request: Q,
    work: impl Fn(&Operations, &Call, &Q) -> Result<R> + Send + 'static,
) -> Plan<R>
where
    Q: Identical + PartialEq + Sync,
    R: Send + 'static,
{
    let (operations, request) = (Arc::clone(operations), Arc::new(request));
    let same = Arc::clone(&request);
    let LockSet { subject, cluster, keys } = locks;
    let plan = Plan::new(subject, move |call: &Call| work(&operations, call, &request)).locking(keys, same);
    match cluster {
        Some(cluster) => plan.within(cluster.into()),
        None => plan,
    }
}

/// A path in its one spelling, without a slash twice or at the end: paths are known by their text. What is no
/// absolute path stays as it is and is refused later.
pub fn path(text: String) -> String {
    let plain = !text.starts_with('/') || !(text.ends_with('/') || text.contains("//"));
    let parts = text.split('/').filter(|part| !part.is_empty());
    if plain { text } else { format!("/{}", parts.collect::<Vec<_>>().join("/")) }
}
