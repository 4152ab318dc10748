//! fence.FenceController of csi-addons.

use ipnet::IpNet;
use protobuf::Message;

use crate::backend::Fencing;
use crate::dispatch::Call;
use crate::error::Result;
use crate::grpc::Services;
use crate::grpc::bridge::{Answer, Asked, Caller};
use crate::grpc::proto::fence as wire;
use crate::grpc::v1::decode::{map, secrets};
use crate::volume::lock_keys::LockSet;
use crate::volume::request::FenceRequest;

impl Services {
    /// A change waits for others of the same cluster; a read-only request locks nothing.
    fn run_on_fences<R: Message>(
        &self,
        caller: Caller<'_, R>,
        request: FenceRequest,
        work: impl FnOnce(&dyn Fencing, &Call, &str, &FenceRequest) -> Result<R>,
    ) -> Answer {
        let fences = self.operations.fences()?;
        let cluster = fences.cluster(request.cluster.as_deref())?;
        let networks: Vec<String> = request.networks.iter().map(ToString::to_string).collect();
        let mut locks = LockSet::of_fences(&cluster, &networks.join(", "));
        if networks.is_empty() {
            locks.keys.clear();
        }
        caller.run(locks, request, |call, request| work(fences, call, &cluster, request))
    }
}

/// Shuts hosts out of a cluster's storage, and lets them in again. Every copy answers for its own host's
/// addresses.
impl wire::FenceController for Services {
    fn fence_cluster_network(&self, (caller, request): Asked<wire::FenceClusterNetworkRequest>) -> Answer {
        self.ensure_controller()?;
        let request =
            FenceRequest::change(&map(request.parameters), secrets(request.secrets), &texts(request.cidrs))?;
        self.run_on_fences(caller, request, |fences, call, cluster, request| {
            let FenceRequest { networks, allow_self, secrets, .. } = request;
            fences.fence(call, cluster, networks, *allow_self, secrets).map(|()| Default::default())
        })
    }

    fn unfence_cluster_network(
        &self,
        (caller, request): Asked<wire::UnfenceClusterNetworkRequest>,
    ) -> Answer {
        self.ensure_controller()?;
        let request =
            FenceRequest::change(&map(request.parameters), secrets(request.secrets), &texts(request.cidrs))?;
        self.run_on_fences(caller, request, |fences, call, cluster, request| {
            fences.unfence(call, cluster, &request.networks, &request.secrets).map(|()| Default::default())
        })
    }

    fn list_cluster_fence(&self, (caller, request): Asked<wire::ListClusterFenceRequest>) -> Answer {
        self.ensure_controller()?;
        let request = FenceRequest::question(&map(request.parameters), secrets(request.secrets))?;
        self.run_on_fences(caller, request, |fences, call, cluster, request| {
            let cidrs = cidrs(&fences.fences(call, cluster, &request.secrets)?);
            Ok(wire::ListClusterFenceResponse { cidrs, ..Default::default() })
        })
    }

    fn get_fence_clients(&self, (caller, request): Asked<wire::GetFenceClientsRequest>) -> Answer {
        let request = FenceRequest::question(&map(request.parameters), secrets(request.secrets))?;
        self.run_on_fences(caller, request, |fences, call, cluster, request| {
            let clients = fences.clients(call, cluster, &request.secrets)?.into_iter().map(|client| {
                let addresses = cidrs(&client.addresses);
                wire::ClientDetails { id: client.id, addresses, ..Default::default() }
            });
            Ok(wire::GetFenceClientsResponse { clients: clients.collect(), ..Default::default() })
        })
    }
}

fn texts(cidrs: Vec<wire::CIDR>) -> Vec<String> {
    cidrs.into_iter().map(|it| it.cidr).collect()
}

fn cidrs(networks: &[IpNet]) -> Vec<wire::CIDR> {
    networks.iter().map(|it| wire::CIDR { cidr: it.to_string(), ..Default::default() }).collect()
}
