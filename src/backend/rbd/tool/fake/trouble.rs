//! What goes wrong in the cluster, whatever the daemon does.

use super::FakeCluster;

impl FakeCluster {
    /// The user loses its rights in a pool, or has them back. The monitors show the pool all the same.
    pub fn forbid_pool(&self, pool: &str, is_forbidden: bool) {
        let forbidden = &mut self.0.lock().state.forbidden;
        if is_forbidden {
            forbidden.insert(pool.to_string());
        } else {
            forbidden.remove(pool);
        }
    }

    /// From now on a rename reports that it is done though it has not removed the old name.
    pub fn leave_old_names(&self) {
        self.0.lock().state.leaves_old_names = true;
    }
}
