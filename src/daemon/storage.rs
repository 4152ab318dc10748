//! The kinds of storage that a daemon serves.

use std::sync::Arc;

use super::programs::command_tool;
use super::tag;
use crate::backend::ceph::Programs;
use crate::backend::ceph::fencing::Fences;
use crate::backend::cephfs::{CephFs, Identity as FsIdentity, ThisNode};
use crate::backend::local::Local;
use crate::backend::rbd::node::Mapper;
use crate::backend::rbd::{Identity as RbdIdentity, Rbd, Timing};
use crate::backend::{Backend, Backends, BegunRenames, Fencing};
use crate::clusters::Clusters;
use crate::config::{BackendName, Config};
use crate::dispatch::ObjectLocks;
use crate::error::{Error, Result};
use crate::exec::Processes;
use crate::jobs::JobQueue;
use crate::kernel::Kernel;
use crate::layout::Layout;
use crate::node_name::NodeName;
use crate::topology::NodeTopology;

/// Jobs, the locks that they share with calls, and the renames that calls leave to jobs.
pub(super) type Background = (Arc<JobQueue>, Arc<dyn ObjectLocks>, Arc<dyn BegunRenames>);

/// The wanted kinds of storage. Without a setting these are all kinds, as one may be set up later.
pub(super) fn backends(
    config: &Config,
    (layout, node): (&Layout, &NodeName),
    kernel: &Kernel,
    (processes, programs): (&Arc<Processes>, &Programs),
    (clusters, topology): (&Arc<Clusters>, &Arc<NodeTopology>),
    background: Background,
) -> Result<Backends> {
    let mut backends: Vec<Arc<dyn Backend>> = Vec::new();
    if config.wants(BackendName::Local).unwrap_or(true) {
        let loops = Arc::new(kernel.clone());
        let (root, identity) = (layout.local_dir().to_path_buf(), layout.local_dir_id());
        let identity = config.services.controller.then_some(identity);
        backends.push(Arc::new(Local::open(root, node, &config.name, loops, identity)?));
    }
    let tag = || tag::controller_tag(&layout.controller_tag());
    let queue = Arc::clone(&background.0);
    if config.wants(BackendName::Rbd).unwrap_or(true) {
        let tool = Arc::new(command_tool(config, layout, programs.clone()));
        let runner = Arc::clone(processes) as _;
        let host = (Arc::clone(topology), config.in_container);
        let mapper = Mapper::new(kernel.clone(), runner, layout.map_locks(), host);
        let machine = crate::sys::random::Machine::this()
            .map_err(|error| Error::io("read the machine's id", &error))?;
        let (plugin, node) = (config.name.clone(), config.node_id.clone());
        let identity = RbdIdentity { plugin, node, machine, tag: tag()? };
        let rbd = Rbd::new(
            Arc::clone(clusters),
            tool,
            mapper,
            (identity, config.fences, Timing::default()),
            background,
        );
        backends.push(Arc::new(rbd));
    }
    // A user for images may not ask for file systems, so they are served only where that is said.
    if config.wants(BackendName::CephFs).unwrap_or(false) {
        let (tools, layout) = ((programs.clone(), Arc::clone(processes) as _), layout.clone());
        let mount_point = Box::new(move |key: &str| layout.mount_point(key));
        let (name, in_container) = (config.node_id.clone(), config.in_container);
        let here = ThisNode { name, kernel: kernel.clone(), in_container, mount_point };
        let identity = FsIdentity { plugin: config.name.clone(), tag: tag()?, fences: config.fences };
        backends.push(Arc::new(CephFs::new(Arc::clone(clusters), tools, (identity, here), queue)));
    }
    Ok(Backends::new(backends))
}

/// The operations that shut hosts out of the Ceph clusters.
pub(super) fn fencing(
    config: &Config,
    programs: Programs,
    clusters: &Arc<Clusters>,
) -> Option<Arc<dyn Fencing>> {
    let wanted = [BackendName::Rbd, BackendName::CephFs].iter().any(|it| config.wants(*it).unwrap_or(true));
    wanted.then(|| Arc::new(Fences::new(Arc::clone(clusters), Arc::new(programs))) as _)
}
