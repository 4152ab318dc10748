//! The registry of names: where topology chooses the place of something, its name is claimed first.
//!
//! A claim is a shared lock on an object of the name, in one pool for all: its tag says the place and a
//! random number. So it is whole from the moment it is there, only one of two racers makes it (a tag is
//! another's, and refused), and whoever comes later reads from it where to go. The cluster knows a claim by
//! its shares, one for each who makes something under it.
//!
//! 1. claim, with a place of one's own choice; where there is a claim already its place counts
//! 2. under a claim of others: is it there? then that is the answer; else [join](Name::join), so that nobody
//!    takes the claim away meanwhile
//! 3. make it there
//!
//! It is given up in the opposite order:
//! 1. [find](Name::find) the claim, with the shares there are by now
//! 2. remove what was made
//! 3. [give back](Name::give_back) these shares, and remove the object if nobody has joined since
//!
//! Who finds nothing behind a claim gives others the time to finish what they make; who took longer looks at
//! the end whether the claim is still there.
//!
//! A crash leaves a claim that nothing stands behind. It is harmless: the next of that name goes to its
//! place, and its removal takes the claim along; where that place does not suit the next one, or refuses it,
//! the claim is given up, after the time for others. A removal that is repeated finds the claim again.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::backend::ceph::PoolRef;
use crate::backend::ceph::domains::Choice;
use crate::backend::ceph::locks::{
    LockHolder, LockRequest, LockState, LockTarget, LockTool, Locked, deleter, remove_free_name,
};
use crate::backend::creation_record::{Placed, VERSION, from_bytes, to_bytes};
use crate::dispatch::Call;
use crate::error::{Error, Result};
use crate::sys::random;

/// How often a claim is asked for that others give back meanwhile.
const ATTEMPTS: usize = 10;

/// Where what a name stands for is, or is to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Claim {
    version: u32,
    /// The name in the request.
    name: String,
    /// The pool that was chosen.
    pub pool: String,
    #[serde(flatten)]
    pub placed: Placed,
    /// No two claims are the same.
    draw: String,
}

impl Claim {
    /// A claim of a place.
    pub fn new(name: &str, choice: Choice) -> Result<Self> {
        let draw = random::hex(8).map_err(|error| Error::io("draw a number", &error))?;
        let Choice { pool, placed } = choice;
        Ok(Self { version: VERSION, name: name.to_string(), pool, placed, draw })
    }

    fn text(&self) -> Result<String> {
        let text = String::from_utf8(to_bytes(self)?);
        text.map_err(|error| Error::internal(format!("a claim cannot be written: {error}")))
    }
}

/// What is known of a name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Registration {
    /// None where only the object is left of it.
    pub claim: Option<Claim>,
    shares: Vec<LockHolder>,
}

impl Registration {
    /// Whether this claim is there, with a share of the controller with this tag.
    pub fn has_share(&self, claim: &Claim, tag: &str) -> bool {
        self.claim.as_ref() == Some(claim) && self.shares.iter().any(|share| share.cookie == tag)
    }

    /// Whether more than one has a share.
    pub fn is_of_several(&self) -> bool {
        self.shares.len() > 1
    }
}

/// A name in its registry.
#[derive(Clone, Copy)]
pub(crate) struct Name<'a> {
    pub tool: &'a dyn LockTool,
    pub call: &'a Call,
    pub registry: &'a PoolRef,
    /// Its key.
    pub digits: &'a str,
    /// The tag of this controller.
    pub tag: &'a str,
    /// So long another controller is given for what it does under a share, with these pauses.
    pub grace: (Duration, Duration),
}

impl Name<'_> {
    fn target(&self) -> LockTarget<'_> {
        LockTarget::VolumeName(self.digits)
    }

    /// Claims the name; None if that went well. Else it is claimed since an earlier attempt, or by another
    /// controller, and for what is told.
    pub fn claim(&self, claim: &Claim) -> Result<Option<(Claim, Registration)>> {
        for _ in 0..ATTEMPTS {
            if self.share(claim)? == Locked::Now {
                return Ok(None);
            }
            // Without one if it is given back at this moment.
            let found = self.find()?.unwrap_or_default();
            if let Some(claim) = found.claim.clone() {
                return Ok(Some((claim, found)));
            }
        }
        Err(self.is_released())
    }

    /// Takes a share of a claim that was found, in place of one that this controller had before: nobody takes
    /// the claim away from now on. False if it is another by now.
    pub fn join(&self, claim: &Claim, found: &Registration) -> Result<bool> {
        if self.share(claim)? == Locked::Held {
            return Ok(false);
        }
        for former in found.shares.iter().filter(|share| share.cookie == self.tag) {
            self.tool.unlock(self.call, self.registry, self.target(), former)?;
        }
        Ok(true)
    }

    fn share(&self, claim: &Claim) -> Result<Locked> {
        let (cookie, description) = (self.tag.to_string(), claim.name.clone());
        let request = LockRequest { cookie, description, shared: Some(claim.text()?), seconds: None };
        self.tool.lock(self.call, self.registry, self.target(), &request)
    }

    /// What there is of the name; None where there is nothing. Another controller that removes the object is
    /// given the time to do so.
    pub fn find(&self) -> Result<Option<Registration>> {
        let (grace, pause) = self.grace;
        let what = "another controller that gives back the name";
        let found = self.call.wait_for(what, grace, pause, || self.look())?;
        found.ok_or_else(|| self.is_released())
    }

    /// The same; None as long as the object is being removed.
    fn look(&self) -> Result<Option<Option<Registration>>> {
        let LockState { is_known, holders } =
            self.tool.lock_state(self.call, self.registry, self.target())?;
        let Some(first) = holders.first() else {
            return Ok(Some(is_known.then(Registration::default)));
        };
        let Some(text) = &first.shared else {
            if deleter(first) != Some(self.tag) {
                return Ok(None);
            }
            // This controller did, before it died.
            self.tool.unlock(self.call, self.registry, self.target(), first)?;
            return Ok(Some(Some(Registration::default())));
        };
        let claim = from_bytes(text.as_bytes()).map_err(|wrong| {
            Error::internal(format!("the claim of its name {wrong}; {}", self.how_to_free()))
        })?;
        Ok(Some(Some(Registration { claim: Some(claim), shares: holders })))
    }

    /// Lets others that have a share come to the end of what they make under it, if they are alive: until
    /// `look` finds that.
    pub fn await_others<T>(
        &self,
        found: &Registration,
        look: impl FnMut() -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let (grace, pause) = self.grace;
        let Some(other) = found.shares.iter().find(|share| share.cookie != self.tag) else { return Ok(None) };
        let what = format!("another controller ({}) that may be using the name", other.client);
        self.call.wait_for(what, grace, pause, look)
    }

    /// Gives back the shares that were found, and removes the object if there are no others by now.
    pub fn give_back(&self, found: &Registration) -> Result<()> {
        for share in &found.shares {
            self.tool.unlock(self.call, self.registry, self.target(), share)?;
        }
        remove_free_name(self.tool, self.call, self.registry, self.target(), self.tag)
    }

    /// What to do about a claim whose place will never be usable again.
    pub fn how_to_free(&self) -> String {
        let PoolRef { pool, namespace, .. } = self.registry;
        let namespace =
            if namespace.is_empty() { String::new() } else { format!(" --namespace={namespace}") };
        format!("`rados --pool={pool}{namespace} rm cephlet.name.{}` frees the name", self.digits)
    }

    fn is_released(&self) -> Error {
        Error::unavailable("its name is being given back by another controller: try again")
    }
}
