//! What a test has planned for the steps to come, and which were taken. Each method of the tool is one step:
//! one process.

use std::collections::BTreeMap;

use super::FakeCluster;

/// How a step fails: as a timeout, which says nothing of what was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Before it changed anything.
    Before,
    /// After it did all it was asked for.
    After,
    /// In the middle. `create` leaves a name that is taken while nothing is found under it, `clone_image` a
    /// blank image of the right size without a parent, `remove` an image that is among the names, but neither
    /// opened by its name nor in a list, and that `remove` of the same name, or `purge`, takes away, `rename`
    /// an image that is found by the new name, too, `flatten` a clone of which a second `flatten` loses a
    /// part. Of all other steps nothing is left.
    HalfMade,
    /// In the middle, but earlier: `remove` leaves an image whose name means nothing and cannot be given to
    /// another, and only `remove` of that name takes it away. `rename`, later: it leaves a renamed image that
    /// is found by its old name, too. All other steps fail like [`HalfMade`](Self::HalfMade).
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
    /// A hook is running: its steps are somebody else's.
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

    /// Takes a step; tells how it fails, if it does.
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

    /// What is to happen now, after a step.
    pub(super) fn hook(&mut self) -> Option<Hook> {
        if self.intruding { None } else { self.hooks.remove(&self.count) }
    }
}
