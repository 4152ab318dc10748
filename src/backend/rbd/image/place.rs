//! Where a volume is made: at the place that its request names, or where topology puts it, which is claimed
//! in the registry of names first.
//!
//! 1. what this daemon knows of the name: is the volume there? then that is the answer
//! 2. choose a pool
//! 3. claim the name for it, or find where it is claimed for: is the volume there? then that is the answer
//! 4. make the volume there, under a share of the claim
//! 5. if that is refused, the claim is given back: the next request may choose another pool; if it took long,
//!    a look whether the claim is still there

use crate::backend::ceph::PoolRef;
use crate::backend::ceph::domains::{Asked, Choice, Wishes};
use crate::backend::ceph::registry::{Claim, Name};
use crate::backend::rbd::context::{Context, Pool};
use crate::backend::rbd::image::create;
use crate::backend::rbd::image::spec::CreateSpec;
use crate::backend::rbd::parameters::{Settings, refuse_long_ids};
use crate::backend::{NewVolume, Origin, Volume, WriteIntent};
use crate::call::Call;
use crate::csi::TopologyRequirement;
use crate::error::{Error, Kind, Result};
use crate::ids::{self, Place};

/// How often a claim is asked for that is another each time.
const ATTEMPTS: usize = 4;

/// Makes the volume, or finds the one that the same request made.
pub(crate) fn create(
    context: &Context,
    call: &Call,
    new: &NewVolume,
    write_intent: WriteIntent<'_>,
) -> Result<Volume> {
    let created = match &new.topology {
        None => context.locate(&new.place, &new.secrets).and_then(|at| {
            create::create(&context.pool(call, &at), &CreateSpec::new(new, None)?, write_intent)
        }),
        Some(requirement) => create_registered(context, call, (new, requirement), write_intent),
    };
    created.map_err(|error| error.context(format_args!("create volume {:?}", new.name)))
}

/// A volume whose name is registered, within a call.
struct Registered<'a> {
    context: &'a Context,
    call: &'a Call,
    new: &'a NewVolume,
    name: Name<'a>,
}

fn create_registered(
    context: &Context,
    call: &Call,
    (new, requirement): (&NewVolume, &TopologyRequirement),
    write_intent: WriteIntent<'_>,
) -> Result<Volume> {
    let registry = context.locate(&new.place, &new.secrets)?;
    let (digits, _) = ids::registration(&new.object)
        .ok_or_else(|| Error::internal(format!("{:?} is no name of a registered object", new.object)))?;
    let this = Registered { context, call, new, name: context.name(call, &registry, digits) };
    let claim = match this.known() {
        // The call has a share since before it had to wait.
        Some((claimed_by, claim)) if claimed_by == call.id() => claim,
        known => {
            if let Some(volume) = this.find_known(known)? {
                return Ok(volume);
            }
            let choice = this.choose(&registry, requirement);
            write_intent()?;
            match this.claim(choice)? {
                Found::Made(volume) => return Ok(*volume),
                Found::Claimed(claim) => claim,
            }
        }
    };
    let created = this.create_at(&claim, write_intent);
    let created = created.inspect_err(|error| this.give_back_after(&claim, error))?;
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

    fn known(&self) -> Option<(u64, Claim)> {
        self.context.memory.claims.get(&self.key())
    }

    /// The volume where it was a while ago. A claim whose pool is gone may have been freed since.
    fn find_known(&self, known: Option<(u64, Claim)>) -> Result<Option<Volume>> {
        let found = known.map_or(Ok(None), |(_, claim)| self.find_at(&claim));
        found.or_else(|error| if is_unusable(&error) { Ok(None) } else { Err(error) })
    }

    /// Chooses a pool: that of its source, if that fits.
    fn choose(&self, registry: &PoolRef, requirement: &TopologyRequirement) -> Result<Choice> {
        let Self { context, call, new, .. } = self;
        let settings = Settings::parse(&new.parameters, &new.mutable_parameters)?;
        let wishes = Wishes::new(&context.identity.plugin, requirement);
        let source = new.source.as_ref().map(|(_, origin)| match origin {
            Origin::Snapshot(id) => id.place.pool.as_str(),
            Origin::Volume(id) => id.place.pool.as_str(),
        });
        let registry = context.pool(call, registry);
        let asked = asked(&registry, &settings, &wishes);
        let choice = context.memory.domains.choose(&asked, settings.access, source)?;
        refuse_long_ids(&self.place(&choice.pool), &new.object)?;
        Ok(choice)
    }

    fn place(&self, pool: &str) -> Place {
        Place { pool: pool.to_string(), ..self.new.place.clone() }
    }

    /// Claims the name for what was chosen, or joins the claim that is there, whatever it is for.
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
            if let Some(volume) = self.find_at(&claim)? {
                self.remember(&claim);
                return Ok(Found::Made(Box::new(volume)));
            }
            if self.name.join(&claim, &found)? {
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
        self.context.memory.claims.remember(self.key(), (self.call.id(), claim.clone()));
    }

    /// The volume where it was claimed for.
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

    fn create_at(&self, claim: &Claim, write_intent: WriteIntent<'_>) -> Result<Volume> {
        let new = NewVolume { place: self.place(&claim.pool), ..self.new.clone() };
        let at = self.context.locate(&new.place, &new.secrets)?;
        let spec = CreateSpec::new(&new, Some(&claim.placed))?;
        let created = create::create(&self.context.pool(self.call, &at), &spec, write_intent);
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
        Err(Error::unavailable(format!(
            "it took so long that its name was claimed for another place than pool {:?}, where it is now: delete \
             image {} there",
            claim.pool, self.new.object
        )))
    }

    /// Gives back a claim under which nothing can be made and nothing is.
    fn give_back_after(&self, claim: &Claim, error: &Error) {
        if matches!(error.kind(), Kind::Timeout | Kind::Unavailable | Kind::Waiting | Kind::Internal) {
            return;
        }
        let is_absent = match self.find_at(claim) {
            Ok(found) => found.is_none(),
            Err(error) => is_unusable(&error),
        };
        if !is_absent {
            return;
        }
        self.context.memory.claims.forget(&self.key());
        if let Err(error) = self.name.give_back_own() {
            log::warn!("the name of volume {:?} stays claimed for now: {error}", self.new.name);
        }
    }
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
