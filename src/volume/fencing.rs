//! Shutting hosts out of the storage. This touches no volume.

use std::sync::Arc;

use ipnet::IpNet;

use super::Operations;
use super::request::FenceRequest;
use crate::backend::{FenceClient, Fencing};
use crate::dispatch::Call;
use crate::error::{Error, Result};

impl Operations {
    /// Whether there is a cluster from which hosts can be shut out.
    pub fn offers_fencing(&self) -> bool {
        self.fencing.as_ref().is_some_and(|fencing| fencing.is_set_up())
    }

    /// The cluster of a request.
    pub fn fenced_cluster(&self, request: &FenceRequest) -> Result<String> {
        self.fences()?.cluster(request.cluster.as_deref())
    }

    /// Shuts the networks out.
    pub fn fence(&self, call: &Call, cluster: &str, request: &FenceRequest) -> Result<()> {
        let FenceRequest { networks, allow_self, secrets, .. } = request;
        self.fences()?.fence(call, cluster, networks, *allow_self, secrets)
    }

    /// Lets the networks in again.
    pub fn unfence(&self, call: &Call, cluster: &str, request: &FenceRequest) -> Result<()> {
        self.fences()?.unfence(call, cluster, &request.networks, &request.secrets)
    }

    /// The networks that are shut out.
    pub fn list_fences(&self, call: &Call, cluster: &str, request: &FenceRequest) -> Result<Vec<IpNet>> {
        self.fences()?.fences(call, cluster, &request.secrets)
    }

    /// The addresses that must be fenced to shut this host out.
    pub fn fence_clients(
        &self,
        call: &Call,
        cluster: &str,
        request: &FenceRequest,
    ) -> Result<Vec<FenceClient>> {
        self.fences()?.clients(call, cluster, &request.secrets)
    }

    fn fences(&self) -> Result<&Arc<dyn Fencing>> {
        let absent = || Error::unimplemented("no storage is set up here from which hosts can be shut out");
        self.fencing.as_ref().ok_or_else(absent)
    }
}
