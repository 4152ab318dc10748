//! RBD volumes on a node, with the kernel's own driver: mapped, mounted, grown, copied, given back, whatever
//! dies in between.
//!
//! For the VM of `tests/vm/run`, which runs it as `cargo test` would; elsewhere there is no such driver, and
//! every test fails.

mod support;

mod rbd_node {
    pub mod scene;
    pub mod toolbox;

    mod copies;
    mod hangs;
    mod life;
    mod mounters;
    mod refusals;
    mod restarts;
    mod secrecy;
    mod sharing;
    mod unstaged;
}
