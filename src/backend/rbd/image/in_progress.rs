//! What somebody in this daemon works on right now, by name.

use std::collections::HashSet;

use parking_lot::Mutex;

/// Names that are being worked on.
#[derive(Debug, Default)]
pub(crate) struct InProgress(Mutex<HashSet<String>>);

/// A name that is being worked on, until this is dropped.
#[derive(Debug)]
pub(crate) struct WorkGuard<'a> {
    names: &'a InProgress,
    name: String,
}

impl InProgress {
    /// Begins to work on something, unless somebody does: everybody else leaves it alone until the guard is
    /// dropped.
    pub fn try_begin(&self, name: &str) -> Option<WorkGuard<'_>> {
        let free = self.0.lock().insert(name.to_string());
        free.then(|| WorkGuard { names: self, name: name.to_string() })
    }
}

impl Drop for WorkGuard<'_> {
    fn drop(&mut self) {
        self.names.0.lock().remove(&self.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_works_on_a_name_at_a_time() {
        let names = InProgress::default();
        let first = names.try_begin("a");
        assert!(first.is_some() && names.try_begin("a").is_none() && names.try_begin("b").is_some());
        drop(first);
        assert!(names.try_begin("a").is_some());
    }
}
