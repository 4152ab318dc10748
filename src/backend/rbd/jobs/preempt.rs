//! Flattening gives way: whoever has a right to an image, because it is published or deleted, breaks off its
//! flattening, which goes on later where it was. He takes a lock on the image's header first and then breaks
//! off what he finds; a flattening enters itself here first and then looks for locks: one of the two sees the
//! other.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::backend::rbd::Rbd;
use crate::backend::rbd::image::clone::DEAD_CLIENT;
use crate::backend::rbd::tool::Spot;
use crate::call::Call;
use crate::error::Result;

/// Between two looks whether a call that waits has passed its deadline.
const TICK: Duration = Duration::from_millis(500);
/// Between two looks at a watcher that is dead.
const PAUSE: Duration = Duration::from_millis(if cfg!(test) { 1 } else { 500 });

/// The flattenings under way, and those that ended badly a moment ago.
#[derive(Debug, Default)]
pub(crate) struct Flattenings {
    /// By the image's id.
    images: Mutex<HashMap<String, Stage>>,
    ended: Condvar,
}

#[derive(Debug)]
enum Stage {
    /// It is broken off when this is set.
    UnderWay(Arc<AtomicBool>),
    /// Its command ended at this moment, and did not close the image.
    BrokenOff(Instant),
}

/// A flattening under way, until this is dropped.
#[derive(Debug)]
pub(crate) struct UnderWay<'a> {
    all: &'a Flattenings,
    image: String,
    stop: Arc<AtomicBool>,
    /// Nothing is left open.
    pub closed: bool,
}

impl Flattenings {
    /// Enters the flattening of an image, which is done by one at a time.
    pub fn begin(&self, image: &str) -> UnderWay<'_> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut images = self.images.lock();
        images.retain(|_, stage| !matches!(stage, Stage::BrokenOff(at) if at.elapsed() > DEAD_CLIENT));
        images.insert(image.to_string(), Stage::UnderWay(Arc::clone(&stop)));
        UnderWay { all: self, image: image.to_string(), stop, closed: true }
    }

    /// Breaks off the flattening of an image, and waits until its command is gone. Tells when that was, if it
    /// was a moment ago.
    pub fn break_off(&self, call: &Call, image: &str) -> Option<Instant> {
        let mut images = self.images.lock();
        loop {
            match images.get(image)? {
                Stage::BrokenOff(at) => return Some(*at),
                Stage::UnderWay(_) if call.expired() => return None,
                Stage::UnderWay(stop) => stop.store(true, Ordering::Relaxed),
            }
            call.step("waiting for the flattening of the image to be broken off");
            self.ended.wait_for(&mut images, TICK);
        }
    }
}

impl UnderWay<'_> {
    /// The call for its commands: they end when it has to give way.
    pub fn call(&self) -> Call {
        let stop = Arc::clone(&self.stop);
        Call::new("flatten", move || stop.load(Ordering::Relaxed))
    }

    /// Whether it was broken off.
    pub fn gave_way(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut images = self.all.images.lock();
        match self.closed {
            true => images.remove(&self.image),
            false => images.insert(self.image.clone(), Stage::BrokenOff(Instant::now())),
        };
        self.all.ended.notify_all();
    }
}

impl Rbd {
    /// Breaks off our own flattening of an image, and waits until its client is forgotten, which counts as a
    /// watcher for up to 30 s after its death. Whoever else has the image open is left to the caller.
    pub(crate) fn end_flattening(&self, call: &Call, spot: &Spot, image: &str, name: &str) -> Result<()> {
        let Some(at) = self.flattenings.break_off(call, image) else { return Ok(()) };
        while at.elapsed() < DEAD_CLIENT && !call.expired() {
            if self.tool.watchers(call, spot, name)?.is_none_or(|watchers| watchers.is_empty()) {
                break;
            }
            call.step(format!(
                "waiting until the cluster forgets the flattening of {name} that was broken off"
            ));
            thread::sleep(PAUSE);
        }
        Ok(())
    }
}
