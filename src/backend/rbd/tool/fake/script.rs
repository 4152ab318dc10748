//! A test's plan for the steps to come, and the record of the steps that were taken. Each method of the tool
//! is one step: one process.

use std::collections::BTreeMap;

use super::FakeCluster;

/// How a step fails. The caller sees a timeout, which does not tell what was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Before it changed anything.
    Before,
    /// After it did all it was asked for.
    After,
    /// In the middle. `create` leaves a taken name without an image. `clone_image` leaves a blank image of
    /// the right size without a parent. `remove` leaves an image that is among the names, but neither opens
    /// by its name nor is in a list; `remove` of the same name, or `purge`, takes it away. `rename` leaves an
    /// image that the new name finds, too. `flatten` leaves a clone of which a second `flatten` loses a part.
    /// All other steps leave nothing.
    HalfMade,
    /// In the middle, at another point. `remove` fails earlier: the image's name opens nothing and cannot be
    /// given to another image, and only `remove` of that name takes the image away. `rename` fails later: the
    /// renamed image is found by its old name, too. All other steps fail like [`HalfMade`](Self::HalfMade).
    HalfMoved,
}

/// Something that happens between two steps.
type Hook = Box<dyn FnOnce(&FakeCluster) + Send>;

/// The plan and the record.
#[derive(Default)]
pub(super) struct Script {
    /// Steps so far, those before the record was last emptied included.
    count: u64,
    /// The record.
    pub(super) steps: Vec<String>,
    /// Faults by the number of their step, and whether the caller dies of them.
    faults: BTreeMap<u64, (Fault, bool)>,
    hooks: BTreeMap<u64, Hook>,
    /// The caller has died: it takes no more steps.
    dead: bool,
    /// A hook is running: its steps are not the caller's.
    pub(super) intruding: bool,
}

impl Script {
    /// Plans a fault for the `steps`-th step from now.
    pub(super) fn plan_fault(&mut self, steps: u64, fault: Fault, fatal: bool) {
        assert!(steps > 0, "the first step from now is number 1");
        self.faults.insert(self.count + steps, (fault, fatal));
    }

    /// Plans something for after the `steps`-th step from now.
    pub(super) fn plan_hook(&mut self, steps: u64, hook: Hook) {
        assert!(steps > 0, "the first step from now is number 1");
        self.hooks.insert(self.count + steps, hook);
    }

    /// Whether the caller has died.
    pub(super) fn is_dead(&self) -> bool {
        self.dead
    }

    /// Whether a fault is still to come.
    pub(super) fn fault_pending(&self) -> bool {
        !self.faults.is_empty()
    }

    /// The caller lives again, and no more faults are planned.
    pub(super) fn restart(&mut self) {
        self.dead = false;
        self.faults.clear();
    }

    /// Takes a step; returns how it fails, if it does.
    pub(super) fn step(&mut self, name: &str) -> Option<Fault> {
        if self.intruding {
            return None;
        }
        if self.dead {
            return Some(Fault::Before);
        }
        self.count += 1;
        self.steps.push(name.to_string());
        let (fault, fatal) = self.faults.remove(&self.count)?;
        self.dead = fatal;
        Some(fault)
    }

    /// The hook that is to run now, after a step.
    pub(super) fn hook(&mut self) -> Option<Hook> {
        if self.intruding { None } else { self.hooks.remove(&self.count) }
    }
}
