//! Where a volume is made: at the place that its request names, or where topology puts it, which is claimed
//! in the registry of names first.
//!
//! 1. what this daemon knows of the name: is the volume there? then that is the answer
//! 2. choose a pool
//! 3. claim the name for it, or find where it is claimed for: is the volume there? then that is the answer,
//!    if it can be reachable from where this request asks for; is nothing there, and should not be by this
//!    request? then the claim is given up, and the name claimed anew
//! 4. make the volume there, under a share of the claim
//! 5. if that is refused, the claim is given up: the next request may choose another pool; if it took long,
//!    a look whether the claim is still there

use std::collections::BTreeMap;

use crate::backend::ceph::PoolRef;
use crate::backend::ceph::domains::{Asked, Choice, Wishes};
use crate::backend::ceph::registry::{Claim, Name};
use crate::backend::rbd::context::{Context, Pool};
use crate::backend::rbd::image::create;
use crate::backend::rbd::image::layout;
use crate::backend::rbd::image::spec::CreateSpec;
use crate::backend::rbd::parameters::{Settings, refuse_long_ids};
use crate::backend::{NewVolume, Origin, Volume};
use crate::csi::TopologyRequirement;
use crate::dispatch::Call;
use crate::error::{Error, Kind, Result};
use crate::ids::{self, Place};
use crate::topology::Domains;

/// How often a claim is asked for that is another each time.
const ATTEMPTS: usize = 4;

/// Makes the volume, or finds the one that the same request made.
pub(crate) fn create(context: &Context, call: &Call, new: &NewVolume) -> Result<Volume> {
    let settings = Settings::parse(&new.parameters, &new.mutable_parameters);
    let checked = settings.and_then(|settings| layout::check(&settings.layout, &new.capabilities));
    let created = checked.and_then(|()| match &new.topology {
        None => context
            .locate(&new.place, &new.secrets)
            .and_then(|at| create::create(&context.pool(call, &at), &CreateSpec::new(new, None)?)),
        Some(requirement) => create_registered(context, call, (new, requirement)),
    });
    created.map_err(|error| error.context(format_args!("create volume {:?}", new.name)))
}

/// A volume whose name is registered, within a call.
struct Registered<'a> {
    context: &'a Context,
    call: &'a Call,
    new: &'a NewVolume,
    requirement: &'a TopologyRequirement,
    registry: &'a PoolRef,
    name: Name<'a>,
}

fn create_registered(
    context: &Context,
    call: &Call,
    (new, requirement): (&NewVolume, &TopologyRequirement),
) -> Result<Volume> {
    let registry = context.locate(&new.place, &new.secrets)?;
    let (digits, _) = ids::registration(&new.object)
        .ok_or_else(|| Error::internal(format!("{:?} is no name of a registered object", new.object)))?;
    let name = context.name(call, &registry, digits);
    let this = Registered { context, call, new, requirement, registry: &registry, name };
    if let Some(volume) = this.find_known()? {
        return Ok(volume);
    }
    let choice = this.choose(this.source_pool());
    let claim = match this.claim(choice)? {
        Found::Made(volume) => return Ok(*volume),
        Found::Claimed(claim) => claim,
    };
    let created = this.create_at(&claim);
    let created = created.map_err(|error| this.give_up_after(&claim, error))?;
    this.ensure_claimed(&claim)?;
    Ok(created)
}

/// What a claim came to.
enum Found {
    /// The volume is there.
    Made(Box<Volume>),
    /// It is to be made under this claim, of which this call has a share.
    Claimed(Claim),
}

impl Registered<'_> {
    fn key(&self) -> String {
        self.new.place.lock_key(&self.new.object)
    }

    /// The volume where it was a while ago. A claim whose pool is gone may have been freed since.
    fn find_known(&self) -> Result<Option<Volume>> {
        let known = self.context.memory.claims.get(&self.key());
        let found = known.map_or(Ok(None), |claim| self.find_suitable(&claim));
        found.or_else(|error| if is_unusable(&error) { Ok(None) } else { Err(error) })
    }

    fn source_pool(&self) -> Option<&str> {
        self.new.source.as_ref().map(|(_, origin)| match origin {
            Origin::Snapshot(id) => id.place.pool.as_str(),
            Origin::Volume(id) => id.place.pool.as_str(),
        })
    }

    /// Chooses a pool: this one, if it fits.
    fn choose(&self, pool: Option<&str>) -> Result<Choice> {
        let Self { context, call, new, .. } = self;
        let settings = Settings::parse(&new.parameters, &new.mutable_parameters)?;
        let wishes = Wishes::new(&context.identity.plugin, self.requirement);
        let registry = context.pool(call, self.registry);
        let asked = asked(&registry, &settings, &wishes);
        let choice = context.memory.domains.choose(&asked, settings.access, pool)?;
        refuse_long_ids(&self.place(&choice.pool), &new.object)?;
        Ok(choice)
    }

    fn place(&self, pool: &str) -> Place {
        Place { pool: pool.to_string(), ..self.new.place.clone() }
    }

    /// Whether the volume may be made where its name is claimed for, and say from where it is reachable.
    fn suits(&self, claim: &Claim) -> Result<bool> {
        match self.choose(Some(&claim.pool)) {
            Ok(choice) => {
                let says_enough = !claim.placed.domains.is_empty() || choice.placed.domains.is_empty();
                Ok(choice.pool == claim.pool && says_enough)
            }
            Err(error) if error.kind() == Kind::NoSpace => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Claims the name for what was chosen, or joins the claim that is there.
    fn claim(&self, choice: Result<Choice>) -> Result<Found> {
        let wanted = choice.and_then(|choice| Claim::new(&self.new.name, choice));
        for _ in 0..ATTEMPTS {
            let (claim, found) = match &wanted {
                Ok(claim) => match self.name.claim(claim).map_err(|error| self.not_registered(error))? {
                    None => return Ok(self.claimed(claim)),
                    Some(before) => before,
                },
                // What was made before is the answer also where nothing would be chosen today.
                Err(refusal) => {
                    let found = self.name.find()?.unwrap_or_default();
                    (found.claim.clone().ok_or_else(|| refusal.clone())?, found)
                }
            };
            let mut made = self.find_suitable(&claim)?;
            let suits = made.is_some() || self.suits(&claim)?;
            if !suits {
                made = self.name.await_others(&found, || self.find_suitable(&claim))?;
            }
            if let Some(volume) = made {
                self.remember(&claim);
                return Ok(Found::Made(Box::new(volume)));
            }
            if !suits {
                self.name.give_back(&found)?;
            } else if self.name.join(&claim, &found)? {
                return Ok(self.claimed(&claim));
            }
        }
        Err(Error::unavailable("it is made and deleted by others at this moment: try again"))
    }

    fn not_registered(&self, error: Error) -> Error {
        let registry = &self.new.place.pool;
        error
            .context(format_args!("register its name in pool {registry:?} (`registry` in the clusters file)"))
    }

    fn claimed(&self, claim: &Claim) -> Found {
        self.remember(claim);
        Found::Claimed(claim.clone())
    }

    fn remember(&self, claim: &Claim) {
        self.context.memory.claims.remember(self.key(), claim.clone());
    }

    /// The volume where it was claimed for.
    ///
    /// # Errors
    /// Already exists: it cannot be reached from where this request asks for.
    fn find_suitable(&self, claim: &Claim) -> Result<Option<Volume>> {
        let found = self.find_at(claim)?;
        let (plugin, domains) = (&self.context.identity.plugin, &claim.placed.domains);
        if found.is_some() && !is_reachable(plugin, domains, &self.requirement.requisite) {
            return Err(Error::already_exists(format!(
                "it exists in pool {:?}, reachable from {domains} only, which is none of the domains that are asked \
                 for: take another name, or delete it first",
                claim.pool
            )));
        }
        Ok(found)
    }

    /// The volume where it was claimed for, from wherever that can be reached.
    fn find_at(&self, claim: &Claim) -> Result<Option<Volume>> {
        let new = NewVolume { place: self.place(&claim.pool), ..self.new.clone() };
        let at = self.context.locate(&new.place, &new.secrets);
        let found = at.and_then(|at| {
            create::find_made(
                &self.context.pool(self.call, &at),
                &CreateSpec::new(&new, Some(&claim.placed))?,
            )
        });
        found.map_err(|error| match is_unusable(&error) {
            true => error.context(format_args!(
                "its name is claimed for pool {:?} (if that is gone for good, {})",
                claim.pool,
                self.name.how_to_free()
            )),
            false => error,
        })
    }

    fn create_at(&self, claim: &Claim) -> Result<Volume> {
        let new = NewVolume { place: self.place(&claim.pool), ..self.new.clone() };
        let at = self.context.locate(&new.place, &new.secrets)?;
        let spec = CreateSpec::new(&new, Some(&claim.placed))?;
        let created = create::create(&self.context.pool(self.call, &at), &spec);
        // The pool may be gone that was chosen.
        created.inspect_err(|_| self.context.memory.domains.forget(&new.place.cluster))
    }

    /// After a long time another controller may have thought that nothing is made under the claim.
    fn ensure_claimed(&self, claim: &Claim) -> Result<()> {
        if self.call.age() <= self.context.timing.claim_grace / 3 {
            return Ok(());
        }
        let found = self.name.find()?.unwrap_or_default();
        if found.has_share(claim, self.name.tag) || self.name.join(claim, &found)? {
            return Ok(());
        }
        self.context.memory.claims.forget(&self.key());
        Err(Error::unavailable(format!(
            "it took so long that its name was claimed for another place than pool {:?}, where it is now: delete \
             image {} there",
            claim.pool, self.new.object
        )))
    }

    /// Gives up a claim under which nothing can be made and nothing is. The error is what to answer.
    fn give_up_after(&self, claim: &Claim, refusal: Error) -> Error {
        if matches!(refusal.kind(), Kind::Timeout | Kind::Unavailable | Kind::Internal) {
            return refusal;
        }
        if let Err(error) = self.give_up(claim) {
            log::warn!("the name of volume {:?} stays claimed for now: {error}", self.new.name);
        }
        refusal
    }

    fn give_up(&self, claim: &Claim) -> Result<()> {
        let found = self.name.find()?.unwrap_or_default();
        let look = || match self.find_at(claim) {
            Ok(found) => Ok(found.map(drop)),
            Err(error) if is_unusable(&error) => Ok(None),
            // It may be there.
            Err(_) => Ok(Some(())),
        };
        if found.claim.as_ref() != Some(claim)
            || look()?.is_some()
            || self.name.await_others(&found, look)?.is_some()
        {
            return Ok(());
        }
        self.context.memory.claims.forget(&self.key());
        self.name.give_back(&found)
    }
}

/// Whether something in these domains can be reached from one at least of the topologies that are requisite.
/// Those that have no label of ours say nothing of it.
fn is_reachable(plugin: &str, domains: &Domains, requisite: &[BTreeMap<String, String>]) -> bool {
    let ways = domains.accessible(plugin);
    let reaches = |from: &BTreeMap<String, String>| {
        let has_all =
            |way: &BTreeMap<String, String>| way.iter().all(|(key, value)| from.get(key) == Some(value));
        Domains::of_segments(plugin, from).in_common(domains).is_some() || ways.iter().any(has_all)
    };
    let says_nothing = |from: &BTreeMap<String, String>| Domains::of_segments(plugin, from).is_empty();
    domains.is_empty() || requisite.iter().all(says_nothing) || requisite.iter().any(reaches)
}

/// Where a volume is wanted whose name would be registered in a pool.
pub(crate) fn asked<'a>(registry: &Pool<'a>, settings: &'a Settings, wishes: &'a Wishes) -> Asked<'a> {
    let Pool { context, call, at } = *registry;
    let (tool, constrained) = (&*context.tool, settings.constrained.as_slice());
    let data_pool = settings.layout.data_pool.as_deref();
    Asked { tool, call, access: &at.access, constrained, data_pool, wishes, otherwise: &at.pool }
}

/// Whether an error says that a pool cannot be used: there is no such one, or it is not allowed.
fn is_unusable(error: &Error) -> bool {
    matches!(error.kind(), Kind::Precondition | Kind::InvalidArgument)
}
