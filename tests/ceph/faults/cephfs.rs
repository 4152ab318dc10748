//! Commands that are killed while they make, change and take away subvolumes. What they have left is removed
//! a day later; the tests make the entries of the index older instead.

use super::drills;
use crate::support::Group;

#[test]
#[ignore = "random: tests/run --full"]
fn creations_whose_commands_are_killed() {
    drills::creations::<Group>();
}

#[test]
#[ignore = "random: tests/run --full"]
fn clones_of_a_snapshot_whose_commands_are_killed() {
    drills::clones_of_a_snapshot::<Group>();
}

#[test]
#[ignore = "random: tests/run --full"]
fn clones_of_a_volume_whose_commands_are_killed() {
    drills::clones_of_a_volume::<Group>();
}

#[test]
#[ignore = "random: tests/run --full"]
fn snapshots_whose_commands_are_killed() {
    drills::snapshots::<Group>();
}

#[test]
#[ignore = "random: tests/run --full"]
fn deletions_whose_commands_are_killed() {
    drills::deletions::<Group>();
}

#[test]
#[ignore = "random: tests/run --full"]
fn expansions_whose_commands_are_killed() {
    drills::expansions::<Group>();
}
