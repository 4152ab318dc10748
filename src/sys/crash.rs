//! Points at which a test may kill the daemon. Without the feature `crash-points` they compile to nothing.

/// A step that changes the disk or the kernel begins or has ended here.
#[cfg(not(feature = "crash-points"))]
#[inline(always)]
pub fn point(_what: &str) {}

#[cfg(feature = "crash-points")]
pub use armed::{arm, point};

#[cfg(feature = "crash-points")]
mod armed {
    use std::fs;
    use std::path::{Path, PathBuf};
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// How many points are left until the fatal one; 0 when none is fatal.
    static LEFT: AtomicUsize = AtomicUsize::new(0);

    /// A file that a test may write while the process runs.
    static FILE: OnceLock<PathBuf> = OnceLock::new();

    /// Makes the `number`-th point from now on fatal; 0 for none. The number in `runtime_dir/crash-at`, once
    /// that file is there, takes its place: a test arms a daemon whose start is over, however many points the
    /// start has passed.
    pub fn arm(number: usize, runtime_dir: &Path) {
        LEFT.store(number, Ordering::SeqCst);
        FILE.get_or_init(|| runtime_dir.join("crash-at"));
    }

    fn rearm() {
        let Some(file) = FILE.get() else { return };
        if let Some(number) = fs::read_to_string(file).ok().and_then(|text| text.parse().ok()) {
            let _ = fs::remove_file(file);
            LEFT.store(number, Ordering::SeqCst);
        }
    }

    /// Counts and prints the points up to the fatal one, where it ends the process as `kill -9` would.
    pub fn point(what: &str) {
        rearm();
        let Ok(left) = LEFT.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1))
        else {
            return;
        };
        eprintln!("crash point: {what}");
        if left == 1 {
            let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        }
    }
}
