//! Claims: which object a request's name stands for, where the object's own name does not tell.
//!
//! A claim is a shared lock on an object named after the request's name. Its tag is what the name stands for:
//! equal tags share the lock, any other is refused. Each claimant has a share of its own, whose cookie is
//! `TAG-R`: the controller's tag, and random digits, so that no other share ever has it. A share that was
//! read can be released without hitting a later one of the same client. The description is JSON, for people
//! and other controllers.
//!
//! 1. [Claim](Name::claim) the name. If it stands for another existing object, that object is the answer.
//! 2. If that object does not exist, its maker may be about to make it, and gets the
//!    [grace](Name::await_maker). Then the shares that were read are released, and the name is claimed again.
//! 3. Make the object.
//! 4. A maker that took longer than a third of the grace [checks](Name::confirm) whether it still has its
//!    share.
//!
//! To delete, the order is reversed: [find](Name::find) the claim, remove the object that it stands for,
//! [give the name back](Name::give_back).
//!
//! A claim is only an index: if it is missing, no ID changes its meaning, and no object is removed.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::backend::ceph::PoolRef;
use crate::backend::ceph::cache::Cache;
use crate::backend::ceph::locks::{BindLocks, LockHolder, LockRequest, LockTarget, LockTool, Locked};
use crate::backend::creation_record::{Placed, VERSION, from_bytes, to_bytes};
use crate::clock;
use crate::dispatch::Call;
use crate::error::{Error, Kind, Result};
use crate::ids;

/// For this part of the grace (1/3) no other controller takes a claim away.
const SAFE_PART: u32 = 3;
/// How many times in a grace a waiting caller looks whether the claimed object exists.
const LOOKS: u32 = 30;

/// The description of a share, besides the tag.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Description {
    #[serde(rename = "version")]
    version: u32,
    /// The name in the request.
    #[serde(rename = "name")]
    pub name: String,
    #[serde(flatten)]
    pub placed: Placed,
}

impl Description {
    /// The description by a request of this name.
    pub fn new(name: &str, placed: Placed) -> Self {
        Self { version: VERSION, name: name.to_string(), placed }
    }
}

/// A claim that was found.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    /// The object that the name stands for.
    pub of: String,
    pub description: Description,
    shares: Vec<LockHolder>,
    /// When the claim was looked for, by [`clock::since_boot`].
    seen: Duration,
}

impl Claim {
    /// Whether both have the same shares.
    pub fn is_as(&self, other: &Self) -> bool {
        self.shares == other.shares
    }
}

/// The shares of a claim, and when they were looked for.
pub(crate) type Shares = (Duration, Vec<LockHolder>);

/// A share that was taken.
#[derive(Clone, Debug)]
pub(crate) struct Share {
    of: String,
    cookie: String,
    description: Description,
    since: Duration,
}

/// When claims of other controllers were seen first, by their shares. A client may give up sooner than a dead
/// maker counts as dead, so a repeated request waits for the rest of the grace only, and for a third of it at
/// least.
pub(crate) type FirstSeen = Cache<String, Duration>;

/// A request's name, and the place where it is claimed.
#[derive(Clone, Copy)]
pub(crate) struct Name<'a> {
    pub tool: &'a dyn BindLocks,
    pub call: &'a Call,
    pub at: &'a PoolRef,
    /// The object that is named after the name.
    pub target: LockTarget<'a>,
    /// The tag of this controller.
    pub tag: &'a str,
    /// How long another controller may take to make what it has claimed.
    pub grace: Duration,
    pub first_seen: &'a FirstSeen,
}

impl Name<'_> {
    fn locks(&self) -> Box<dyn LockTool + '_> {
        self.tool.locks(self.call, self.at)
    }

    /// Claims the name; None if it stands for another object.
    pub fn claim(&self, of: &str, description: &Description) -> Result<Option<Share>> {
        let since = clock::since_boot();
        let text = String::from_utf8(to_bytes(description)?);
        let text = text.map_err(|error| Error::internal(format!("a claim cannot be written: {error}")))?;
        let (cookie, shared) = (format!("{}-{}", self.tag, ids::draw()?), Some(of.to_string()));
        let request = LockRequest { cookie: cookie.clone(), description: text, shared, seconds: None };
        let locked = self.locks().lock(self.target, &request)?;
        let (of, description) = (of.to_string(), description.clone());
        Ok((locked == Locked::Now).then_some(Share { of, cookie, description, since }))
    }

    /// The claim of the name; None if the name is free.
    ///
    /// # Errors
    /// Precondition: a later cephlet has claimed it.
    pub fn find(&self) -> Result<Option<Claim>> {
        self.read(self.look()?)
    }

    /// The present shares, before they are interpreted.
    pub fn look(&self) -> Result<Shares> {
        let seen = clock::since_boot();
        Ok((seen, self.locks().holders(self.target)?))
    }

    /// The claim that these shares make up.
    ///
    /// # Errors
    /// Like [`Name::find`], except for the errors of the cluster.
    pub fn read(&self, (seen, shares): Shares) -> Result<Option<Claim>> {
        let Some(LockHolder { shared, .. }) = shares.first() else { return Ok(None) };
        let of = shared.clone().unwrap_or_default();
        let read = |share: &LockHolder| {
            from_bytes(share.description.as_bytes())
                .map_err(|error| error.context("the claim of its name").hint(self.how_to_free()))
        };
        let mut descriptions: Vec<Description> = shares.iter().map(read).collect::<Result<_>>()?;
        Ok(Some(Claim { of, description: descriptions.swap_remove(0), shares, seen }))
    }

    /// Calls `look` until the claimed object exists. If it does not exist when its maker counts as dead (at
    /// once, if the maker is this controller), the claim is released. None: the name can be claimed again.
    pub fn await_maker<T>(
        &self,
        claim: &Claim,
        mut look: impl FnMut() -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        if let Some(other) = claim.shares.iter().find(|share| !self.is_own(share)) {
            let what = format!("another controller ({}) that has claimed the name", other.client);
            // No other claim has these shares: their cookies have random digits.
            let identity = format!("{} {} {:?}", self.at, self.target, claim.shares);
            let since = self.first_seen.get_or_ask(identity, || Ok(claim.seen))?;
            let left = self.grace.saturating_sub(clock::since_boot().saturating_sub(since));
            // The maker may be deleting what it made: until then it may remove the claim's object.
            let left = left.max(self.grace / SAFE_PART + self.grace / LOOKS);
            let ended = self.call.wait_for(what, left, self.grace / LOOKS, || {
                if let Some(found) = look()? {
                    return Ok(Some(Some(found)));
                }
                Ok((!self.find()?.is_some_and(|now| now.is_as(claim))).then_some(None))
            })?;
            if let Some(ended) = ended {
                return Ok(ended);
            }
        } else if let Some(found) = look()? {
            return Ok(Some(found));
        }
        self.release(claim)?;
        // The object may have been made while the claim was released.
        let found = look()?;
        if found.is_some() {
            self.claim(&claim.of, &claim.description)?;
        }
        Ok(found)
    }

    /// Called after the object is made: whether the name stands for it. After a long time other controllers
    /// may have taken the share away.
    pub fn confirm(&self, share: &Share) -> Result<bool> {
        if self.is_safe(share.since) {
            return Ok(true);
        }
        match self.find()? {
            Some(now) if now.of != share.of => Ok(false),
            Some(now) if now.shares.iter().any(|it| self.is_own(it)) => Ok(true),
            _ => Ok(self.claim(&share.of, &share.description)?.is_some()),
        }
    }

    /// Gives the name back if the error means that nothing was made under the share, and nothing will be, and
    /// if no earlier request has made anything: `is_free` looks. If that look is refused, only this share is
    /// released: an earlier one may belong to an object that cannot be seen now. Otherwise one share of this
    /// controller stays, however often it retries. Returns the error.
    pub fn give_back_after(
        &self,
        share: &Share,
        refusal: Error,
        is_free: impl FnOnce() -> Result<bool>,
    ) -> Error {
        let given_back = match is_final(&refusal).then(is_free) {
            Some(Ok(true)) => self.give_back_own(share),
            Some(Err(unseen)) if is_final(&unseen) => self.release_one(share),
            _ => self.keep_one(),
        };
        if let Err(error) = given_back {
            log::warn!("{:?} stays claimed: {error}", share.description.name);
        }
        refusal
    }

    fn keep_one(&self) -> Result<()> {
        let shares = self.find()?.map(|claim| claim.shares).unwrap_or_default();
        let own = shares.iter().filter(|share| self.is_own(share));
        own.skip(1).try_for_each(|share| self.locks().unlock(self.target, share))
    }

    fn release_one(&self, share: &Share) -> Result<()> {
        let shares = self.find()?.map(|claim| claim.shares).unwrap_or_default();
        let mut this = shares.iter().filter(|it| it.cookie == share.cookie);
        this.try_for_each(|it| self.locks().unlock(self.target, it))
    }

    fn give_back_own(&self, share: &Share) -> Result<()> {
        let Some(claim) = self.find()?.filter(|claim| claim.of == share.of) else { return Ok(()) };
        let (own, others): (Vec<_>, Vec<_>) = claim.shares.iter().cloned().partition(|it| self.is_own(it));
        let claim = Claim { shares: own, ..claim };
        if others.is_empty() { self.give_back(&claim) } else { self.release(&claim) }
    }

    /// Gives the name back. The object that it stood for must have existed after the claim was found, and be
    /// gone now. Within a third of the grace no other controller can have claimed the name, so the claim's
    /// object is removed. Later the object stays, empty, for the next request with the name.
    ///
    /// A controller takes over at once what it alone has claimed. A share of another one makes it wait, so
    /// one is taken first; if that is refused, the name stands for another object already.
    pub fn give_back(&self, claim: &Claim) -> Result<()> {
        if !self.is_safe(claim.seen) {
            return self.release(claim);
        }
        let has_own = claim.shares.iter().any(|share| self.is_own(share));
        if !has_own && self.claim(&claim.of, &claim.description)?.is_none() {
            return Ok(());
        }
        let until = claim.seen + self.grace / SAFE_PART;
        let call = self.call.only_while(move || clock::since_boot() < until);
        self.tool.locks(&call, self.at).remove_lockable(self.target)
    }

    /// Releases the shares that were found; the object stays.
    pub fn release(&self, claim: &Claim) -> Result<()> {
        claim.shares.iter().try_for_each(|share| self.locks().unlock(self.target, share))
    }

    /// Whether this controller has taken the share. Release 0.2.0 has given it no random digits.
    fn is_own(&self, share: &LockHolder) -> bool {
        share.cookie.split('-').next() == Some(self.tag)
    }

    fn is_safe(&self, since: Duration) -> bool {
        clock::since_boot().saturating_sub(since) < self.grace / SAFE_PART
    }

    /// The error for a claim that stands for nothing that cephlet makes.
    pub fn unreadable(&self, claim: &Claim) -> Error {
        Error::internal(format!("its name is claimed for {:?}: {}", claim.of, self.how_to_free()))
    }

    /// How the operator frees the name of an object that is gone for good.
    pub fn how_to_free(&self) -> String {
        let PoolRef { pool, namespace, .. } = self.at;
        let namespace =
            if namespace.is_empty() { String::new() } else { format!(" --namespace={namespace}") };
        let object = self.target.object();
        format!("`rados --pool={pool}{namespace} rm {object}` frees the name")
    }
}

/// Whether an error means that the command has had no effect, and will have none.
fn is_final(error: &Error) -> bool {
    !matches!(error.kind(), Kind::Timeout | Kind::Unavailable | Kind::Internal)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::topology::Domains;

    /// The format of descriptions: later versions read them.
    #[test]
    fn descriptions_have_this_form() {
        let domains = Domains::new([("zone", "eu-1")]).unwrap();
        let placed = Placed { domains, data_pool: Some("eu1-ec".into()) };
        for (description, json) in [
            (Description::new("web", Placed::default()), r#"{"version":1,"name":"web"}"#),
            (
                Description::new("web", placed),
                r#"{"version":1,"name":"web","domains":{"zone":"eu-1"},"data_pool":"eu1-ec"}"#,
            ),
        ] {
            assert_eq!(String::from_utf8(to_bytes(&description).unwrap()).unwrap(), json);
            assert_eq!(from_bytes::<Description>(json.as_bytes()).unwrap(), description);
        }
    }

    #[test]
    fn a_later_description_is_in_use_and_a_damaged_one_is_said() {
        let later = r#"{"version":2,"name":["a","list"]}"#;
        assert_eq!(from_bytes::<Description>(later.as_bytes()).unwrap_err().kind(), Kind::Precondition);
        let unknown = r#"{"version":1,"name":"web","colour":"red"}"#;
        assert_eq!(from_bytes::<Description>(unknown.as_bytes()).unwrap().name, "web");
        for damaged in ["", "web", "{}", r#"{"version":1}"#] {
            assert_eq!(
                from_bytes::<Description>(damaged.as_bytes()).unwrap_err().kind(),
                Kind::Internal,
                "{damaged}"
            );
        }
    }
}
