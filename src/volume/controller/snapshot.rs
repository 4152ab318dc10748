//! Taking, finding and deleting snapshots.

use crate::backend::{Deleted, NewSnapshot, Snapshot};
use crate::csi::{METADATA, Map};
use crate::dispatch::Call;
use crate::error::{Error, Result};
use crate::ids;
use crate::volume::Operations;
use crate::volume::deletion::Deleting;
use crate::volume::request::{CreateSnapshot, SnapshotById};

impl Operations {
    /// The snapshot that a request asks for.
    pub fn plan_snapshot(&self, request: CreateSnapshot) -> Result<NewSnapshot> {
        let source = self.controller_volume(request.source_volume_id);
        let (source, backend) = source.get()?;
        if let Some(unknown) = request.parameters.keys().find(|key| !key.starts_with(METADATA)) {
            return Err(Error::invalid(format!(
                "snapshots of {} volumes know no parameter {unknown:?}",
                backend.name()
            )));
        }
        let key = ids::snapshot_key(&self.instance, &request.name);
        let (name, secrets, requisite) = (request.name, request.secrets, request.topology.requisite);
        Ok(NewSnapshot { source: source.clone(), key, name, secrets, requisite })
    }

    /// Takes the snapshot, or answers with the one that the same request took before.
    pub fn create_snapshot(&self, call: &Call, new: &NewSnapshot) -> Result<Snapshot> {
        let backend = self.backend_of(&new.source.place)?;
        if !new.requisite.is_empty() {
            let source = backend.volumes().find(call, &new.source, &new.secrets)?;
            refuse_out_of_reach(&new.requisite, &source.map(|source| source.topology).unwrap_or_default())?;
        }
        backend.snapshots().create(call, new)
    }

    /// Deletes an unused snapshot. An ID that was never given out means an absent snapshot.
    pub fn delete_snapshot(&self, call: &Call, request: &SnapshotById) -> Result<Deleted> {
        let Some((id, backend)) = request.snapshot.find()? else { return Ok(Deleted::Absent) };
        self.with_deletion(backend, Deleting::Snapshot(id.clone()), |record| {
            record()?;
            backend.snapshots().delete(call, id, &request.secrets)
        })
    }

    /// One snapshot.
    pub fn get_snapshot(&self, call: &Call, request: &SnapshotById) -> Result<Snapshot> {
        let (id, backend) = request.snapshot.get()?;
        let snapshot = backend.snapshots().find(call, id, &request.secrets)?;
        snapshot.ok_or_else(|| request.snapshot.absent())
    }
}

/// Refuses a snapshot that has to be usable from one of `wanted`, if its volume is reachable from none of
/// them. `reachable` has the topologies from which the volume is; empty for everywhere.
fn refuse_out_of_reach(wanted: &[Map], reachable: &[Map]) -> Result<()> {
    let has_all = |from: &Map, way: &Map| way.iter().all(|(key, value)| from.get(key) == Some(value));
    let reaches = |from: &Map| reachable.iter().any(|way| has_all(from, way));
    match reachable.is_empty() || wanted.iter().any(reaches) {
        true => Ok(()),
        false => Err(Error::no_space(format!(
            "a snapshot is usable from where its volume is reachable, which is {reachable:?}, and \
             accessibility_requirements does not allow that: take it without them, or of another volume"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    #[test]
    fn a_snapshot_is_usable_from_where_its_volume_is_reachable() {
        let zone = |zone: &str| Map::from([("x/zone".to_string(), zone.to_string())]);
        let node =
            |name: &str| zone(name).into_iter().chain([("x/node".into(), "n1".into())]).collect::<Map>();
        for (wanted, reachable) in [
            (vec![zone("a")], vec![]),
            (vec![zone("b"), node("a")], vec![zone("a")]),
            (vec![node("b")], vec![zone("a"), zone("b")]),
        ] {
            refuse_out_of_reach(&wanted, &reachable).expect("it is reachable");
        }
        for wanted in [vec![node("b")], vec![Map::new()]] {
            let error = refuse_out_of_reach(&wanted, &[zone("a")]).expect_err("it is out of reach");
            assert_eq!(error.kind(), Kind::NoSpace);
        }
    }
}
