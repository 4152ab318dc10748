//! Taking and breaking locks.

use std::time::Duration;

use super::object::{Lock, Object};
use super::state::State;
use crate::backend::ceph::PoolRef;
use crate::backend::ceph::locks::LockState;
use crate::backend::rbd::tool::{LockHolder, LockRequest, LockTarget, Locked};
use crate::error::{Error, Result};

fn key(at: &PoolRef, on: LockTarget<'_>) -> (String, String, Object) {
    (at.pool.clone(), at.namespace.clone(), Object::of(on))
}

impl State {
    /// Whether the object is the header of an image that exists: such a header is there without locks, too.
    fn has_header(&self, at: &PoolRef, object: &Object) -> bool {
        let Object::Header(id) = object else { return false };
        let disk = self.images.get(id).filter(|disk| !disk.is_headless);
        disk.is_some_and(|disk| disk.pool == at.pool && disk.namespace == at.namespace)
    }

    /// Drops the locks whose time is over.
    pub(super) fn expire(&mut self) {
        let now = self.now;
        self.objects
            .values_mut()
            .for_each(|locks| locks.retain(|lock| lock.until.is_none_or(|until| until > now)));
    }

    /// Takes a lock. Every process is a client of its own, so the same cookie a second time is a second
    /// holder. Makes the object if it is not there.
    pub(super) fn lock(&mut self, at: &PoolRef, on: LockTarget<'_>, hold: &LockRequest) -> Locked {
        self.expire();
        let number = 4000 + self.number();
        let until = hold.seconds.map(|seconds| self.now + Duration::from_secs(seconds));
        let locks = self.objects.entry(key(at, on)).or_default();
        if locks.iter().any(|lock| hold.shared.is_none() || lock.holder.shared != hold.shared) {
            return Locked::Held;
        }
        let holder = LockHolder {
            cookie: hold.cookie.clone(),
            description: hold.description.clone(),
            shared: hold.shared.clone(),
            client: format!("client.{number}"),
            address: format!("10.0.0.1:0/{number}"),
        };
        locks.push(Lock { holder, until });
        Locked::Now
    }

    /// The holders of a lock, and whether the lock is known, which it stays after its release.
    pub(super) fn lock_state(&mut self, at: &PoolRef, on: LockTarget<'_>) -> LockState {
        self.expire();
        let locks = self.objects.get(&key(at, on));
        let holders = locks.into_iter().flatten().map(|lock| lock.holder.clone()).collect();
        LockState { is_known: locks.is_some(), holders }
    }

    /// Takes a lock from its holder, which is identified by client and cookie. The object stays.
    pub(super) fn unlock(&mut self, at: &PoolRef, on: LockTarget<'_>, holder: &LockHolder) {
        let is_his = |lock: &Lock| lock.holder.client == holder.client && lock.holder.cookie == holder.cookie;
        if let Some(locks) = self.objects.get_mut(&key(at, on)) {
            locks.retain(|lock| !is_his(lock));
        }
    }

    /// Removes an object with its locks, but no header of an image.
    pub(super) fn remove_object(&mut self, at: &PoolRef, on: LockTarget<'_>) -> Result<()> {
        let key = key(at, on);
        if self.has_header(at, &key.2) {
            return Err(Error::precondition(format!("remove {:?}: it is the header of an image", key.2)));
        }
        self.objects.remove(&key);
        Ok(())
    }
}
