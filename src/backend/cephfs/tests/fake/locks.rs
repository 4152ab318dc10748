//! Locks of objects.

use super::FakeFs;
use crate::backend::ceph::PoolRef;
use crate::backend::ceph::locks::{
    BindLocks, LockHolder, LockRequest, LockState, LockTarget, LockTool, Locked,
};
use crate::dispatch::Call;
use crate::error::{Error, Result};

impl BindLocks for FakeFs {
    fn locks<'a>(&'a self, call: &'a Call, _: &'a PoolRef) -> Box<dyn LockTool + 'a> {
        Box::new(OfCall { fs: self, call })
    }
}

/// The locks, within a call.
struct OfCall<'a> {
    fs: &'a FakeFs,
    call: &'a Call,
}

impl OfCall<'_> {
    fn begin(&self) -> Result<&FakeFs> {
        if self.call.may_begin() { Ok(self.fs) } else { Err(Error::timeout("it may not be begun any more")) }
    }
}

impl LockTool for OfCall<'_> {
    fn lock(&self, target: LockTarget<'_>, request: &LockRequest) -> Result<Locked> {
        self.begin()?.lock(target, request)
    }

    fn lock_state(&self, target: LockTarget<'_>) -> Result<LockState> {
        self.begin()?.lock_state(target)
    }

    fn unlock(&self, target: LockTarget<'_>, holder: &LockHolder) -> Result<()> {
        self.begin()?.unlock(target, holder)
    }

    fn remove_lockable(&self, target: LockTarget<'_>) -> Result<()> {
        self.begin()?.remove_lockable(target)
    }
}

impl LockTool for FakeFs {
    fn lock(&self, target: LockTarget<'_>, request: &LockRequest) -> Result<Locked> {
        self.object(|state| {
            state.count += 1;
            let number = state.count;
            let holders = state.locks.entry(target.object()).or_default();
            if holders.iter().any(|it| request.shared.is_none() || it.shared != request.shared) {
                return Locked::Held;
            }
            let LockRequest { cookie, description, shared, .. } = request.clone();
            let (client, address) = (format!("client.{number}"), format!("10.0.0.1:0/{number}"));
            holders.push(LockHolder { cookie, description, shared, client, address });
            Locked::Now
        })
    }

    fn lock_state(&self, target: LockTarget<'_>) -> Result<LockState> {
        self.object(|state| {
            let holders = state.locks.get(&target.object());
            LockState { is_known: holders.is_some(), holders: holders.cloned().unwrap_or_default() }
        })
    }

    fn unlock(&self, target: LockTarget<'_>, holder: &LockHolder) -> Result<()> {
        self.object(|state| {
            state.locks.entry(target.object()).or_default().retain(|it| it != holder);
        })
    }

    fn remove_lockable(&self, target: LockTarget<'_>) -> Result<()> {
        self.object(|state| drop(state.locks.remove(&target.object())))
    }
}
