//! Points at which a test may kill the daemon. Without the feature `crash-points` they compile to nothing.

/// A step that changes the disk or the kernel begins or has ended here.
#[cfg(not(feature = "crash-points"))]
#[inline(always)]
pub fn point(_what: &str) {}

/// Counts the points and, at number `CEPHLET_CRASH_AT`, ends the process as `kill -9` would.
#[cfg(feature = "crash-points")]
pub fn point(what: &str) {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};
    static PASSED: AtomicU64 = AtomicU64::new(0);
    static FATAL: OnceLock<Option<u64>> = OnceLock::new();
    let fatal = FATAL.get_or_init(|| std::env::var("CEPHLET_CRASH_AT").ok()?.parse().ok());
    let number = PASSED.fetch_add(1, Ordering::SeqCst) + 1;
    if *fatal == Some(number) {
        eprintln!("crash point {number}: {what}");
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
}
