//! Making a volume at the place that topology chooses, which is claimed in the registry of names first.
//!
//! 1. look where this daemon has seen the volume; if it is there, it is the answer
//! 2. choose a pool
//! 3. [claim](crate::backend::ceph::claim) the name for that pool, or find its claim. If the volume is there,
//!    it is the answer, provided that it can be reached from where this request asks for. If this request may
//!    make it there, it shares the claim. Else the claim is released once its maker counts as dead
//! 4. make the volume there; if that is refused, the share is given back: the next request may choose another
//!    pool

use crate::backend::ceph::PoolRef;
use crate::backend::ceph::claim::{Description, Name, Share};
use crate::backend::ceph::domains::{Asked, Choice, Wishes};
use crate::backend::rbd::context::{Context, Pool};
use crate::backend::rbd::image::create;
use crate::backend::rbd::image::spec::{CreateSpec, find_whole};
use crate::backend::rbd::parameters::Settings;
use crate::backend::{NewVolume, Origin, Volume};
use crate::csi::TopologyRequirement;
use crate::dispatch::Call;
use crate::error::{Error, Kind, Result};
use crate::ids::{self, MAX_RBD_PLACE, Place};

/// How many times to ask for a claim that is another each time.
const ATTEMPTS: usize = 4;

/// A volume whose name is registered, within a call.
struct RegisteredVolume<'a> {
    context: &'a Context,
    call: &'a Call,
    new: &'a NewVolume,
    spec: &'a CreateSpec<'a>,
    requirement: &'a TopologyRequirement,
    registry: &'a PoolRef,
    name: Name<'a>,
}

/// Makes the volume, or finds the one that the same request made.
pub(crate) fn create(
    context: &Context,
    call: &Call,
    (spec, requirement): (&CreateSpec<'_>, &TopologyRequirement),
) -> Result<Volume> {
    let new = spec.new;
    let registry = context.locate(&new.place, &new.secrets)?;
    let (key, _) = ids::registration(&new.object)
        .ok_or_else(|| Error::internal(format!("{:?} is no name of a registered object", new.object)))?;
    let name = context.volume_name(call, &registry, key);
    let this = RegisteredVolume { context, call, new, spec, requirement, registry: &registry, name };
    if let Some(volume) = this.find_known()? {
        return Ok(volume);
    }
    let (choice, share) = match this.claim(this.choose(this.source_pool()))? {
        Found::Made(volume) => return Ok(*volume),
        Found::Claimed(here) => *here,
    };
    let created = this.within(&choice, create::create).map_err(|error| {
        // The chosen pool may be gone.
        context.memory.domains.forget(&new.place.cluster);
        this.name.give_back_after(&share, error, || this.is_free(&choice))
    })?;
    if !this.name.confirm(&share)? {
        return Err(Error::unavailable(format!(
            "it took so long that its name was claimed for another place than pool {:?}, where it is now: delete \
             image {} there",
            choice.pool, new.object
        )));
    }
    this.remember(choice);
    Ok(created)
}

/// The outcome of a claim.
enum Found {
    /// The volume is there.
    Made(Box<Volume>),
    /// It is to be made here, under this share of the claim.
    Claimed(Box<(Choice, Share)>),
}

impl RegisteredVolume<'_> {
    fn key(&self) -> String {
        self.new.place.lock_key(&self.new.object)
    }

    /// The volume at its last known place. If that pool is gone, the claim may have been freed since.
    fn find_known(&self) -> Result<Option<Volume>> {
        let known = self.context.memory.placed.get(&self.key());
        let found = known.map_or(Ok(None), |choice| self.find_suitable(&choice));
        found.or_else(|error| if is_unusable(&error) { Ok(None) } else { Err(error) })
    }

    fn source_pool(&self) -> Option<&str> {
        self.new.source.as_ref().map(|(_, origin)| match origin {
            Origin::Snapshot(id) => id.place.pool.as_str(),
            Origin::Volume(id) => id.place.pool.as_str(),
        })
    }

    /// Chooses a pool: `pool`, if it fits.
    fn choose(&self, pool: Option<&str>) -> Result<Choice> {
        let Self { context, call, spec: CreateSpec { settings, .. }, .. } = self;
        let wishes = Wishes::new(&context.identity.plugin, self.requirement);
        let registry = context.pool(call, self.registry);
        let asked = asked(&registry, settings, &wishes);
        let choice = context.memory.domains.choose(&asked, settings.access, pool)?;
        self.place(&choice.pool).fits(Some(&self.registry.pool), MAX_RBD_PLACE)?;
        Ok(choice)
    }

    fn place(&self, pool: &str) -> Place {
        Place { pool: pool.to_string(), ..self.new.place.clone() }
    }

    /// Whether no earlier request has made the volume in this pool.
    fn is_free(&self, choice: &Choice) -> Result<bool> {
        self.within(choice, find_whole).map(|found| found.is_none())
    }

    /// How the volume would be made where its name is claimed for; None if it may not be made there.
    fn suits(&self, pool: &str) -> Result<Option<Choice>> {
        match self.choose(Some(pool)) {
            Ok(choice) => Ok(Some(choice).filter(|choice| choice.pool == pool)),
            Err(error) if error.kind() == Kind::NoSpace => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Claims the name for the chosen pool, or for the pool that it is claimed for already. A volume that was
    /// made before is the answer even if no pool would be chosen today.
    fn claim(&self, choice: Result<Choice>) -> Result<Found> {
        for _ in 0..ATTEMPTS {
            if let Ok(choice) = &choice
                && let Some(share) = self.share(choice)?
            {
                return Ok(Found::Claimed(Box::new((choice.clone(), share))));
            }
            let Some(claim) = self.name.find()? else {
                choice.as_ref().map_err(Clone::clone)?;
                continue;
            };
            let there = Choice { pool: claim.of.clone(), placed: claim.description.placed.clone() };
            let mut found = self.find_suitable(&there)?;
            if found.is_none() {
                if let Some(suitable) = self.suits(&claim.of)? {
                    let Some(share) = self.share(&suitable)? else { continue };
                    return Ok(Found::Claimed(Box::new((suitable, share))));
                }
                found = self.name.await_maker(&claim, || self.find_suitable(&there))?;
            }
            if let Some(volume) = found {
                self.remember(there);
                return Ok(Found::Made(Box::new(volume)));
            }
        }
        Err(Error::unavailable("other controllers claim and release its name: try again"))
    }

    fn share(&self, choice: &Choice) -> Result<Option<Share>> {
        let description = Description::new(&self.new.name, choice.placed.clone());
        let share = self.name.claim(&choice.pool, &description);
        share.map_err(|error| {
            let registry = &self.new.place.pool;
            error.context(format_args!(
                "register its name in pool {registry:?} (`registry` in the clusters file)"
            ))
        })
    }

    fn remember(&self, choice: Choice) {
        self.context.memory.placed.remember(self.key(), choice);
    }

    /// The volume in the pool that it was claimed for.
    ///
    /// # Errors
    /// Already exists: it cannot be reached from where this request asks for.
    fn find_suitable(&self, claim: &Choice) -> Result<Option<Volume>> {
        let found = self.within(claim, create::find_made).map_err(|error| match is_unusable(&error) {
            true => error.context(format_args!(
                "its name is claimed for pool {:?} (if that is gone for good, {})",
                claim.pool,
                self.name.how_to_free()
            )),
            false => error,
        })?;
        let (plugin, domains) = (&self.context.identity.plugin, &claim.placed.domains);
        if found.is_some() && !domains.is_reachable_from(plugin, &self.requirement.requisite) {
            return Err(Error::already_exists(format!(
                "it exists in pool {:?}, reachable from {domains} only, which is none of the domains that are asked \
                 for: take another name, or delete it first",
                claim.pool
            )));
        }
        Ok(found)
    }

    /// Works in the pool that is chosen.
    fn within<T>(
        &self,
        choice: &Choice,
        act: impl FnOnce(&Pool<'_>, &CreateSpec<'_>) -> Result<T>,
    ) -> Result<T> {
        let new = NewVolume { place: self.place(&choice.pool), ..self.new.clone() };
        let spec = self.spec.placed(&new, &choice.placed);
        self.context.within(self.call, (&new.place, &new.secrets), |pool| act(pool, &spec))
    }
}

/// The placement that is asked for a volume whose name would be registered in this pool.
pub(crate) fn asked<'a>(registry: &Pool<'a>, settings: &'a Settings, wishes: &'a Wishes) -> Asked<'a> {
    let Pool { context, call, at, .. } = *registry;
    let (monitors, constrained) = (context.tool.monitors().of(call, &at.access), &*settings.constrained);
    let data_pool = settings.layout.data_pool.as_deref();
    Asked { monitors, constrained, data_pool, wishes, otherwise: &at.pool, among: None }
}

/// Whether an error says that a pool cannot be used: it does not exist, or is not allowed.
fn is_unusable(error: &Error) -> bool {
    matches!(error.kind(), Kind::Precondition | Kind::InvalidArgument)
}
