//! Chains of clones, kept short. A clone reads what it does not have itself from its parent, and that one from its own: each link
//! costs time, and the kernel follows sixteen. A copy at the end of a longer chain than [`DEEPEST`] is given all its data, one at a
//! time in a cluster, in the background, and only while nobody has a right to it or has it open: its writer would stall. What is
//! killed in the middle is as it was.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::Rbd;
use super::chores::RETRY;
use super::give_way::UnderWay;
use super::tool::{Image, Info, Lockable, Parent, Spot};
use crate::backend::ceph::Access;
use crate::call::Call;
use crate::error::Result;
use crate::secrets::Secrets;

/// So many parents an image may have, one behind the other.
const DEEPEST: usize = 8;
/// The longest pause between two looks at an image that is open.
const LONGEST_PAUSE: Duration = Duration::from_secs(60 * 60);
/// So many depths are remembered; beyond that all are forgotten.
const MOST_DEPTHS: usize = 8192;

/// By id, how many parents an image has at most: others may have flattened one of them.
#[derive(Debug, Default)]
pub(super) struct Depths(Mutex<HashMap<String, usize>>);

/// A copy that may have to be flattened.
#[derive(Clone, Debug)]
pub(super) struct Leaf {
    pub spot: Spot,
    pub id: String,
    parent: Parent,
    /// How often it was found open.
    found_open: u32,
}

/// What became of a copy.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// It is flat, shallow, or gone.
    Settled,
    /// It is given to somebody, or being deleted, or somebody has it open.
    InUse,
}

impl Leaf {
    /// An image, if it is a copy. In a cluster without credentials of its own nothing is done in the background.
    pub fn of(spot: &Spot, info: &Info) -> Option<Self> {
        let parent = info.parent.clone()?;
        let access = Access::new(Arc::clone(&spot.access.cluster), &Secrets::default()).ok()?;
        Some(Self { spot: Spot { access, ..spot.clone() }, id: info.id.clone(), parent, found_open: 0 })
    }

    /// The next pause, twice as long as the one before.
    fn pause(&mut self) -> Duration {
        let doubled = RETRY * 2u32.saturating_pow(self.found_open.min(16));
        self.found_open += 1;
        doubled.min(LONGEST_PAUSE)
    }
}

impl Depths {
    fn of(&self, id: &str) -> Option<usize> {
        self.0.lock().get(id).copied()
    }

    fn remember(&self, id: &str, depth: usize) {
        let mut depths = self.0.lock();
        if depths.len() >= MOST_DEPTHS {
            depths.clear();
        }
        depths.insert(id.to_string(), depth);
    }
}

impl Rbd {
    /// Flattens a copy if it has to be; tells after which pause it is to be looked at again, if it is.
    pub(super) fn look_at_leaf(&self, leaf: &mut Leaf) -> Result<Option<Duration>> {
        let mut under_way = self.flattenings.begin(&leaf.id);
        match self.settle(&under_way.call(), leaf, &mut under_way) {
            Ok(Verdict::Settled) => Ok(None),
            Ok(Verdict::InUse) => Ok(Some(leaf.pause())),
            Err(_) if under_way.gave_way() => {
                log::info!("image {} of pool {:?} is wanted: its flattening goes on later", leaf.id, leaf.spot.pool);
                Ok(Some(RETRY))
            }
            Err(error) => Err(error),
        }
    }

    fn settle(&self, call: &Call, leaf: &Leaf, under_way: &mut UnderWay<'_>) -> Result<Verdict> {
        if self.remembered_depth(leaf).is_some_and(|depth| depth <= DEEPEST) || self.depth(call, leaf)? <= DEEPEST {
            return Ok(Verdict::Settled);
        }
        if !self.tool.holders(call, &leaf.spot, Lockable::Header(&leaf.id))?.is_empty() {
            return Ok(Verdict::InUse);
        }
        // By its name of today.
        let Some(info) = self.tool.info(call, &leaf.spot, Image::Id(&leaf.id))? else { return Ok(Verdict::Settled) };
        match self.tool.watchers(call, &leaf.spot, &info.name)? {
            None => return Ok(Verdict::Settled),
            Some(watchers) if !watchers.is_empty() => return Ok(Verdict::InUse),
            Some(_) => {}
        }
        log::info!("image {} of pool {:?} has more than {DEEPEST} parents: it is flattened", info.name, leaf.spot.pool);
        under_way.closed = false;
        self.tool.flatten(call, &leaf.spot, &info.name)?;
        under_way.closed = true;
        self.depths.remember(&leaf.id, 0);
        Ok(Verdict::Settled)
    }

    /// How deep the copy is at most, as far as its parent is known.
    fn remembered_depth(&self, leaf: &Leaf) -> Option<usize> {
        let depth = self.depths.of(leaf.parent.id.as_ref()?)? + 1;
        self.depths.remember(&leaf.id, depth);
        Some(depth)
    }

    /// Counts the parents.
    fn depth(&self, call: &Call, leaf: &Leaf) -> Result<usize> {
        let mut chain = vec![leaf.id.clone()];
        let mut next = Some(leaf.parent.clone());
        while let Some(Parent { pool, namespace, id: Some(id), .. }) = next {
            let spot = Spot { access: leaf.spot.access.clone(), pool, namespace };
            next = self.tool.info(call, &spot, Image::Id(&id))?.and_then(|info| info.parent);
            chain.push(id);
        }
        chain.iter().rev().enumerate().for_each(|(depth, id)| self.depths.remember(id, depth));
        Ok(chain.len() - 1)
    }
}
