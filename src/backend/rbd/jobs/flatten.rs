//! Chains of clones, kept short. A clone reads what it does not have itself from its parent, and that one
//! from its own: each link costs time, and the kernel follows sixteen. A copy at the end of a longer chain
//! than [`DEEPEST`] is given all its data, one at a time in a cluster, in the background, and only while
//! nobody has a right to it or has it open: its writer would stall. What is killed in the middle is as it
//! was.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::backend::ceph::Access;
use crate::backend::rbd::Rbd;
use crate::backend::rbd::jobs::RETRY;
use crate::backend::rbd::jobs::preempt::UnderWay;
use crate::backend::rbd::tool::{Image, Info, Lockable, Parent, Spot};
use crate::call::Call;
use crate::error::Result;
use crate::secrets::Secrets;

/// So many parents an image may have, one behind the other.
const DEEPEST: usize = 8;
/// The longest pause between two looks at an image that is open.
const LONGEST_PAUSE: Duration = Duration::from_secs(60 * 60);
/// So many depths are remembered; beyond that all are forgotten.
const MOST_DEPTHS: usize = 8192;

/// So long a count that says that an image is too deep is believed: who flattens one of its parents flattens
/// it for all of them.
const BELIEVED: Duration = Duration::from_secs(10 * 60);

/// What is known of chains, by the ids of images. An image's parent never becomes another, it only goes when
/// the image is flattened.
#[derive(Debug, Default)]
pub(crate) struct Depths(Mutex<HashMap<String, Depth>>);

/// How many parents an image has at most: other controllers may have flattened one of them.
#[derive(Clone, Copy, Debug)]
struct Depth {
    most: usize,
    counted: Instant,
}

/// A copy that may have to be flattened.
#[derive(Clone, Debug)]
pub(crate) struct Leaf {
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
    /// An image, if it is a copy. In a cluster without credentials of its own nothing is done in the
    /// background.
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
    /// How deep a copy is, if its parent is known.
    fn of_copy(&self, leaf: &Leaf) -> Option<usize> {
        let Depth { most, counted } = self.0.lock().get(leaf.parent.id.as_ref()?).copied()?;
        let depth = Depth { most: most + 1, counted };
        if depth.most > DEEPEST && counted.elapsed() > BELIEVED {
            return None;
        }
        self.remember(&leaf.id, depth);
        Some(depth.most)
    }

    fn remember(&self, id: &str, depth: Depth) {
        let mut depths = self.0.lock();
        if depths.len() >= MOST_DEPTHS {
            depths.clear();
        }
        depths.insert(id.to_string(), depth);
    }
}

impl Rbd {
    /// Flattens a copy if it has to be; tells after which pause it is to be looked at again, if it is.
    pub(crate) fn look_at_leaf(&self, leaf: &mut Leaf) -> Result<Option<Duration>> {
        let mut under_way = self.flattenings.begin(&leaf.id);
        match self.settle(&under_way.call(), leaf, &mut under_way) {
            Ok(Verdict::Settled) => Ok(None),
            Ok(Verdict::InUse) => Ok(Some(leaf.pause())),
            Err(_) if under_way.gave_way() => {
                log::info!(
                    "image {} of pool {:?} is wanted: its flattening goes on later",
                    leaf.id,
                    leaf.spot.pool
                );
                Ok(Some(RETRY))
            }
            Err(error) => Err(error),
        }
    }

    fn settle(&self, call: &Call, leaf: &Leaf, under_way: &mut UnderWay<'_>) -> Result<Verdict> {
        let depth = match self.depths.of_copy(leaf) {
            Some(depth) => depth,
            None => self.count_parents(call, leaf)?,
        };
        if depth <= DEEPEST {
            return Ok(Verdict::Settled);
        }
        if !self.tool.holders(call, &leaf.spot, Lockable::Header(&leaf.id))?.is_empty() {
            return Ok(Verdict::InUse);
        }
        // By its name of today.
        let Some(info) = self.tool.info(call, &leaf.spot, Image::Id(&leaf.id))? else {
            return Ok(Verdict::Settled);
        };
        match self.tool.watchers(call, &leaf.spot, &info.name)? {
            None => return Ok(Verdict::Settled),
            Some(watchers) if !watchers.is_empty() => return Ok(Verdict::InUse),
            Some(_) => {}
        }
        log::info!("image {} of pool {:?} has {depth} parents: it is flattened", info.name, leaf.spot.pool);
        under_way.closed = false;
        self.tool.flatten(call, &leaf.spot, &info.name)?;
        under_way.closed = true;
        log::info!("image {} of pool {:?} has no parents any more", info.name, leaf.spot.pool);
        self.depths.remember(&leaf.id, Depth { most: 0, counted: Instant::now() });
        Ok(Verdict::Settled)
    }

    /// One process for each parent.
    fn count_parents(&self, call: &Call, leaf: &Leaf) -> Result<usize> {
        let mut chain = vec![leaf.id.clone()];
        let mut next = Some(leaf.parent.clone());
        while let Some(Parent { pool, namespace, id: Some(id), .. }) = next {
            let spot = Spot { access: leaf.spot.access.clone(), pool, namespace };
            next = self.tool.info(call, &spot, Image::Id(&id))?.and_then(|info| info.parent);
            chain.push(id);
        }
        let counted = Instant::now();
        chain
            .iter()
            .rev()
            .enumerate()
            .for_each(|(most, id)| self.depths.remember(id, Depth { most, counted }));
        Ok(chain.len() - 1)
    }
}
