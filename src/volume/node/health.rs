//! What is wrong with volumes and with the storage, as this node sees them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::backend::within::{Look, found_within};
use crate::backend::{Backend, Condition, Fault, Reason};
use crate::dispatch::Call;
use crate::error::Result;
use crate::secrets::Secrets;
use crate::volume::Operations;
use crate::volume::request::NodeVolumeHealth;

/// How long a look at the storage may take.
const PATIENCE: Duration = Duration::from_millis(950);

impl Operations {
    /// What is wrong with a volume on this node. Of a volume that is not in use here, which perhaps could not
    /// be staged, and of storage on this node itself, the storage tells. Unless the request names a path, all
    /// paths are looked at.
    pub fn node_health(&self, call: &Call, request: &NodeVolumeHealth) -> Result<Condition> {
        let (id, backend) = request.volume.get()?;
        let volume = self.on_node(call, id, backend)?;
        let record = volume.record_in_use();
        if record.is_none() || !backend.traits().is_remote {
            let condition = match backend.volumes().inspect(call, id, &Secrets::default()) {
                Ok(found) => found.ok_or_else(|| request.volume.absent())?.condition.flatten(),
                Err(error) => Some(Fault::of_unreachable(&error).ok_or(error)?),
            };
            if condition.is_some() {
                return Ok(condition);
            }
        }
        let Some(record) = record else { return Ok(None) };
        let in_use = || record.uses.iter().filter(|it| !it.left_behind).map(|it| it.path.as_str());
        let asked = [request.publish_path.as_str(), &request.staging_path];
        let named: Vec<&str> = in_use().filter(|path| asked.contains(path)).collect();
        let paths = if named.is_empty() { in_use().collect() } else { named };
        let mut looks = paths.into_iter().map(|path| self.usage_at(&volume, path).map(|it| it.condition));
        looks.find(|found| !matches!(found, Ok(None))).unwrap_or(Ok(None))
    }

    /// What is wrong with the storage, as this node reaches it; each reason once.
    pub fn storage_health(&self) -> Vec<Fault> {
        let look = |backend: &Arc<dyn Backend>| -> Look<Vec<Fault>> {
            let backend = Arc::clone(backend);
            // Not the caller's call: a look that hangs would keep what that holds.
            let look = move || backend.storage_faults(&Call::internal("NodeGetStorageHealth"));
            Box::new(look)
        };
        faults_within(PATIENCE, self.backends.iter().map(|backend| (backend.name(), look(backend))))
    }
}

/// What looks find that take no longer than `patience`, each reason once. A backend whose look takes longer
/// counts as silent.
fn faults_within(
    patience: Duration,
    looks: impl Iterator<Item = (&'static str, Look<Vec<Fault>>)>,
) -> Vec<Fault> {
    let late = |name| {
        let detail = format!("the storage of backend {name:?} has not answered within a second");
        vec![Fault::new(Reason::StorageSilent, detail)]
    };
    let found = found_within(patience, looks).into_iter();
    by_reason(found.flat_map(|(name, faults)| faults.unwrap_or_else(|| late(name))).collect())
}

/// One fault for each reason, with all details.
fn by_reason(faults: Vec<Fault>) -> Vec<Fault> {
    let mut all: BTreeMap<Reason, BTreeSet<String>> = BTreeMap::new();
    for Fault { reason, detail } in faults {
        all.entry(reason).or_default().insert(detail);
    }
    let joined = |details: BTreeSet<String>| details.into_iter().collect::<Vec<_>>().join("; ");
    all.into_iter().map(|(reason, details)| Fault::new(reason, joined(details))).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn each_reason_is_told_once_with_everything_that_is_known() {
        let fault = |reason, detail: &str| Fault::new(reason, detail);
        let told = by_reason(vec![
            fault(Reason::MonitorsUnreachable, "b"),
            fault(Reason::LocalDiskNearlyFull, "full"),
            fault(Reason::MonitorsUnreachable, "a"),
            fault(Reason::MonitorsUnreachable, "b"),
        ]);
        let expected =
            [fault(Reason::MonitorsUnreachable, "a; b"), fault(Reason::LocalDiskNearlyFull, "full")];
        assert_eq!(told, expected);
    }

    #[test]
    fn every_look_is_awaited_that_ends_in_time() {
        let look = |reason: Reason| -> Look<Vec<Fault>> { Box::new(move || vec![reason.into()]) };
        let looks = [("a", look(Reason::LocalDiskFailed)), ("b", look(Reason::MonitorsMissing))];
        let told = faults_within(Duration::from_secs(300), looks.into_iter());
        assert_eq!(told, [Reason::LocalDiskFailed, Reason::MonitorsMissing].map(Fault::from));
    }

    #[test]
    fn a_look_that_hangs_is_told_and_not_awaited() {
        let (held, gate) = mpsc::channel::<()>();
        let hang: Look<_> = Box::new(move || {
            let _ = gate.recv();
            Vec::new()
        });
        let told = faults_within(Duration::from_millis(1), [("slow", hang)].into_iter());
        assert_eq!(told.iter().map(|fault| fault.reason).collect::<Vec<_>>(), [Reason::StorageSilent]);
        assert!(told[0].detail.contains("\"slow\""), "{told:?}");
        drop(held);
    }
}
