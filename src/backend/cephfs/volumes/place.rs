//! The pool for the data of a volume: the one that its request names, or one that topology chooses.

use crate::backend::NewVolume;
use crate::backend::ceph::domains::{Asked, Wishes};
use crate::backend::cephfs::context::Fs;
use crate::backend::cephfs::parameters::Settings;
use crate::backend::creation_record::Placed;
use crate::error::{Error, Result};

/// Chooses the pool for a new volume, and the domains from which the volume is reachable. Without a topology
/// both stay empty.
pub(crate) fn choose(fs: &Fs<'_>, new: &NewVolume, settings: &Settings) -> Result<Placed> {
    let Some(requirement) = &new.topology else { return Ok(Placed::default()) };
    let wishes = Wishes::new(&fs.context.identity.plugin, requirement);
    let asked = asked(fs, settings, &wishes)?;
    let choice = fs.context.domains.choose(&asked, settings.access, None)?;
    Ok(Placed { data_pool: Some(choice.pool), ..choice.placed })
}

/// The placement that is asked for a volume.
pub(crate) fn asked<'a>(fs: &'a Fs<'_>, settings: &'a Settings, wishes: &'a Wishes) -> Result<Asked<'a>> {
    let constrained = &settings.constrained;
    for pool in constrained {
        data_pool(fs, Some(("topologyConstrainedPools", &pool.name)))?;
    }
    Ok(Asked {
        monitors: fs.monitors(),
        constrained,
        data_pool: None,
        wishes,
        otherwise: data_pool(fs, None)?,
        among: Some(&fs.file_system.data_pools),
    })
}

/// The data pool that a parameter (its name, and its value) names, or the first one of the file system.
pub(crate) fn data_pool<'a>(fs: &'a Fs<'_>, named: Option<(&str, &'a str)>) -> Result<&'a str> {
    let pools = &fs.file_system.data_pools;
    match (named, pools.first()) {
        (Some((parameter, pool)), _) if !pools.iter().any(|it| it == pool) => Err(Error::invalid(format!(
            "the parameter {parameter:?} names the pool {pool:?}: file system {:?} has the data pools {}",
            fs.place.pool,
            pools.join(", ")
        ))),
        (Some((_, pool)), _) => Ok(pool),
        (None, Some(first)) => Ok(first),
        (None, None) => Err(Error::internal("the file system has no data pool")),
    }
}

/// Refuses a volume that exists, but not where the request asks to reach it from.
pub(crate) fn suits(fs: &Fs<'_>, new: &NewVolume, placed: &Placed) -> Result<()> {
    let requisite = new.topology.as_ref().map_or(&[][..], |asked| &asked.requisite);
    match placed.domains.is_reachable_from(&fs.context.identity.plugin, requisite) {
        true => Ok(()),
        false => Err(Error::already_exists(format!(
            "it exists, reachable from {} only, which is none of the domains that are asked for: take another name, \
             or delete it first",
            placed.domains
        ))),
    }
}
