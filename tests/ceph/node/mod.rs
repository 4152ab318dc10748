//! Volumes on a node, with the kernel's own drivers: mapped, mounted, grown, copied, given back, whichever
//! process dies in between.

pub mod scene;
pub mod toolbox;

mod copies;
mod fences;
mod files;
mod files_fuse;
mod files_lost;
mod files_v0;
mod hangs;
mod life;
mod lost_nodes;
mod mounters;
mod near;
mod refusals;
mod replicated;
mod restarts;
mod secrecy;
mod sharing;
mod standstill;
mod two_sites;
mod unstaged;
