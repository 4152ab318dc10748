//! What `cephlet doctor` finds where no daemon answers: what keeps one from its work, as far as that shows
//! without it.

use super::{open_topology, settings};
use crate::backend::Finding;
use crate::backend::ceph::reach;
use crate::backend::finding::{JOURNAL_REFUSED, SETTING_UNHEEDED};
use crate::clusters::{ClusterSource, Clusters};
use crate::config::Config;
use crate::exec::Tools;
use crate::journal;
use crate::volume::doctor::{OF_CLUSTERS, OF_DEVICES, missing_tools};

/// What a daemon with this configuration would find in its way.
pub fn examine(config: &Config) -> Vec<Finding> {
    let clusters = Clusters::load(ClusterSource::new(config));
    let topology = open_topology(config, &clusters);
    let troubles = settings::troubles((config, &clusters, topology.as_ref()), None).into_iter().flatten();
    let mut found: Vec<_> = troubles.map(|trouble| Finding::new(&SETTING_UNHEEDED, "", trouble)).collect();
    if config.state_dir.is_dir()
        && let Err(error) = journal::check(&config.state_dir)
    {
        found.push(Finding::new(&JOURNAL_REFUSED, config.state_dir.display(), error));
    }
    let faults = reach::faults(&clusters, reach::PATIENCE);
    found.extend(faults.into_iter().map(|(_, fault)| Finding::of_fault(fault, "")));
    let needed = OF_DEVICES.into_iter().filter(|_| config.services.node);
    let of_clusters = OF_CLUSTERS.into_iter();
    let of_clusters = of_clusters.filter(|_| config.services.controller && clusters.are_set_up());
    let tools = Tools::find(config.tool_path.clone());
    found.extend(missing_tools(needed.chain(of_clusters), |tool| tools.path(tool).map(drop)));
    found
}
