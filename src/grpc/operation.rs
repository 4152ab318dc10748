//! Plans for operations on volumes: what every protocol has in common.

use std::sync::Arc;

use crate::call::Call;
use crate::error::Result;
use crate::grpc::bridge::Plan;
use crate::locks::Identical;
use crate::volume::Volumes;
use crate::volume::lock_keys::Hold;

/// A plan that holds what `hold` says, joins the same request, and hands it to `work`: once, and again after
/// each time that it had to wait.
pub fn plan<Q, R>(
    volumes: &Arc<Volumes>,
    subject: &str,
    hold: Hold,
    request: Q,
    work: impl Fn(&Volumes, &Call, &Q) -> Result<R> + Send + 'static,
) -> Plan<R>
where
    Q: Identical + PartialEq + Sync,
    R: Send + 'static,
{
    let (volumes, request) = (Arc::clone(volumes), Arc::new(request));
    let same = Arc::clone(&request);
    let plan = Plan::new(subject, move |call: &Call| work(&volumes, call, &request)).locking(hold.keys, same);
    match hold.cluster {
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
