//! What is wrong with volumes, from the controller's point of view: what their storage says. What a node sees
//! is told by that node, unless the node is the storage.

use std::time::{Duration, Instant};

use crate::backend::{Backend, Condition, Fault, Page, Volume};
use crate::dispatch::Call;
use crate::error::Result;
use crate::ids::VolumeId;
use crate::secrets::Secrets;
use crate::volume::Operations;
use crate::volume::controller::list::Listed;
use crate::volume::request::{GetVolume, ListHealth};

impl Operations {
    /// What is wrong with a volume.
    pub fn volume_health(&self, call: &Call, request: &GetVolume) -> Result<Condition> {
        let (id, backend) = request.volume.get()?;
        let looked = self.look_closely(call, backend, id, &request.secrets)?;
        looked.ok_or_else(|| request.volume.absent())
    }

    /// A page of the volumes that are not well. Volumes are looked at for so long, but at least one of them;
    /// the next page goes on behind the last one, so a page may be empty and not the last.
    pub fn list_health(
        &self,
        call: &Call,
        ListHealth { page, secrets }: &ListHealth,
        looking: Duration,
    ) -> Result<Listed<(VolumeId, Fault)>> {
        let begun = Instant::now();
        self.pages(page, |backend, after, limit| {
            let Page { entries, next } = backend.volumes().list(call, (after, limit), &Err)?;
            let (mut unwell, mut left) = (Vec::new(), entries.into_iter());
            while let Some(volume) = left.next() {
                let found = self.look_leniently(call, backend.as_ref(), &volume, secrets);
                let key = backend.volumes().list_key(&volume.id);
                unwell.extend(found.map(|fault| (volume.id, fault)));
                if begun.elapsed() >= looking && left.len() > 0 {
                    return Ok(Page { entries: unwell, next: Some(key) });
                }
            }
            Ok(Page { entries: unwell, next })
        })
    }

    /// The condition of a volume that was just listed. One that cannot be looked at does not hide the others.
    fn look_leniently(
        &self,
        call: &Call,
        backend: &dyn Backend,
        listed: &Volume,
        secrets: &Secrets,
    ) -> Condition {
        match self.look_closely(call, backend, &listed.id, secrets) {
            // A volume that was deleted since is none.
            Ok(found) => found.flatten(),
            Err(error) => Fault::of_unreachable(&error).or_else(|| {
                log::warn!("volume {} could not be looked at: {error}", listed.id);
                listed.condition.clone().flatten()
            }),
        }
    }

    /// What the storage of a volume says of it; None if there is no such volume.
    fn look_closely(
        &self,
        call: &Call,
        backend: &dyn Backend,
        id: &VolumeId,
        secrets: &Secrets,
    ) -> Result<Option<Condition>> {
        let Some(volume) = backend.volumes().inspect(call, id, secrets)? else { return Ok(None) };
        let volume = match backend.traits().is_remote {
            true => volume,
            false => self.with_node_view(call, backend, volume),
        };
        Ok(Some(volume.condition.flatten()))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::backend::Reason;
    use crate::backend::rbd::tests::{ONE, controller_of, wanted};
    use crate::backend::rbd::tool::fake::Fault as Failure;
    use crate::error::Kind;
    use crate::volume::request::PageRequest;
    use crate::volume::tests::Scene;

    const LONG: Duration = Duration::from_secs(300);

    fn call() -> Call {
        Call::internal("test")
    }

    /// A daemon with three volumes, which knows them.
    fn three() -> (Scene, Vec<VolumeId>) {
        let scene = Scene::new();
        let made = {
            let volumes = scene.operations.backends.iter().next().unwrap().volumes();
            let make = |name: &str| volumes.create(&call(), &wanted(name, 1 << 20, None)).unwrap().id;
            ["a", "b", "c"].map(make).to_vec()
        };
        (scene, made)
    }

    /// Shuts a client of the volume out.
    fn harm(scene: &Scene, id: &VolumeId) {
        scene.cluster.watch(&scene.cluster.at(), &id.object, "10.0.0.5:0/5");
        scene.cluster.shut_out("10.0.0.5:0/5");
    }

    /// What is told on each page.
    fn pages(scene: &Scene, looking: Duration, max_entries: usize) -> Vec<Vec<(VolumeId, Reason)>> {
        let (mut all, mut token) = (Vec::new(), String::new());
        loop {
            let page = PageRequest { max_entries, token: std::mem::take(&mut token) };
            let request = ListHealth { page, secrets: Secrets::default() };
            let Listed { entries, next_token } =
                scene.operations.list_health(&call(), &request, looking).unwrap();
            all.push(entries.into_iter().map(|(id, fault)| (id, fault.reason)).collect());
            if next_token.is_empty() {
                return all;
            }
            token = next_token;
        }
    }

    #[test]
    fn only_volumes_that_are_not_well_are_listed() {
        let (scene, made) = three();
        assert!(pages(&scene, LONG, 0).concat().is_empty());
        harm(&scene, &made[1]);
        let harmed = (made[1].clone(), Reason::ClientShutOut);
        assert_eq!(pages(&scene, LONG, 0), [vec![harmed.clone()]]);
        // Whether the looks take too long or the page is full, every volume is looked at once.
        for (looking, most) in [(Duration::ZERO, 0), (LONG, 1), (Duration::ZERO, 1)] {
            let told = pages(&scene, looking, most);
            assert_eq!((told.len(), told.concat()), (3, vec![harmed.clone()]), "{told:?}");
        }
    }

    #[test]
    fn one_volume_is_told_as_its_storage_says() {
        let (scene, made) = three();
        harm(&scene, &made[1]);
        let health = |scene: &Scene, id: &str| {
            let volume = scene.operations.controller_volume(id.to_string());
            let request = GetVolume { volume, secrets: Secrets::default() };
            scene.operations.volume_health(&call(), &request)
        };
        let reason =
            |scene: &Scene, id: &VolumeId| health(scene, &id.to_string()).unwrap().map(|fault| fault.reason);
        assert_eq!(
            made.iter().map(|id| reason(&scene, id)).collect::<Vec<_>>(),
            [None, Some(Reason::ClientShutOut), None]
        );
        scene.cluster.fail_at(1, Failure::Before);
        assert_eq!(reason(&scene, &made[0]), Some(Reason::ClusterUnreachable));
        let gone = made[0].to_string().replace(&made[0].object, "csi-vol-0123456789abc");
        assert_eq!(health(&scene, &gone).unwrap_err().kind(), Kind::NotFound);
    }

    #[test]
    fn a_volume_that_cannot_be_looked_at_is_told_and_hides_no_other() {
        let (known, made) = three();
        let scene = Scene::of(known.cluster.clone(), controller_of(&known.cluster, ONE, &["ceph"]));
        harm(&scene, &made[2]);
        let told = (1..20).find_map(|at| {
            scene.cluster.fail_at(at, Failure::Before);
            let request = ListHealth {
                page: PageRequest { max_entries: 0, token: String::new() },
                secrets: Secrets::default(),
            };
            let listed = scene.operations.list_health(&call(), &request, LONG).ok()?.entries;
            let mut reasons: Vec<_> = listed.into_iter().map(|(_, fault)| fault.reason).collect();
            reasons.sort();
            (reasons.len() == 2).then_some(reasons)
        });
        assert_eq!(told, Some(vec![Reason::ClusterUnreachable, Reason::ClientShutOut]));
    }
}
