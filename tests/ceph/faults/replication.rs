//! Commands of replication that are killed.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Instant;

use super::killer::Kills;
use crate::support::client::Answer;
use crate::support::requests::delete;
use crate::support::sites::{Site, sites_with};
use crate::support::{Code, Corner, Failure, Place, await_that, object_of};

/// All changes except a promotion by force, which outlives its daemon and is never ended.
const CHANGES: [&str; 7] = [
    "mirror image enable",
    "mirror image disable",
    "mirror image promote",
    "mirror image demote",
    "mirror image resync",
    "schedule add",
    "schedule remove",
];
/// How many commands are killed in each step.
const KILLS: usize = 30;
const ROUNDS: u8 = 20;
/// The same of a volume that is mirrored by a journal: its rounds are short.
const JOURNAL_ROUNDS: u8 = 60;
/// The longest time of one of them, in microseconds, on a machine that has nothing else to do.
const LONGEST: usize = 120_000;
/// The same of a demotion that writes into a journal.
const JOURNAL: usize = 70_000;

/// A site whose commands are killed.
struct Tormented<'a> {
    site: Site,
    kills: Kills,
    /// The number of kills in each step, at both sites.
    done: &'a RefCell<BTreeMap<&'static str, usize>>,
}

impl Tormented<'_> {
    /// Repeats a step until it is done, while its commands are killed.
    #[track_caller]
    fn step(&self, name: &'static str, longest: usize, ask: impl Fn(&Site) -> Answer<()>) {
        let (mut done, before) = (self.done.borrow_mut(), self.kills.killed());
        let count = done.entry(name).or_default();
        self.kills.arm(longest, KILLS.saturating_sub(*count));
        self.kills.insist(&self.site.cluster, || ask(&self.site));
        self.kills.spare();
        *count += self.kills.killed() - before;
        eprintln!("{name}: {count} were killed");
    }

    /// The present duration of a resync, in microseconds: it is one write, so as short as a question. It is
    /// not repeated once it has ended, so a kill that comes later is lost.
    fn time_of_a_resync(&self, id: &str) -> usize {
        let begun = Instant::now();
        assert!(self.site.image(id).is_some());
        usize::try_from(begun.elapsed().as_micros()).expect("a short time")
    }

    #[track_caller]
    fn demote(&self, id: &str, longest: usize) {
        self.step("demote", longest, |site| site.demote(id, false));
        assert_eq!(self.site.is_primary(id), Some(false));
    }

    /// Promotes a volume. If a kill hit it between its demotion and this promotion, it is promoted by force.
    #[track_caller]
    fn promote(&self, id: &str) {
        self.site.await_demotion(id);
        self.step("promote", LONGEST, |site| match site.promote(id, false, &[]) {
            Err(refused) if refused.message.contains("was demoted here") => site.promote(id, true, &[]),
            other => other,
        });
        assert_eq!(self.site.is_primary(id), Some(true));
    }
}

fn later(message: String) -> Failure {
    Failure { code: Code::UNAVAILABLE, message }
}

/// Two sites whose commands are killed.
fn tormented<'a>(done: &'a RefCell<BTreeMap<&'static str, usize>>) -> [Tormented<'a>; 2] {
    let mut kills = Vec::new();
    let sites = sites_with(|setup| {
        let these = Kills::of((Corner::TOOLS, &CHANGES), &setup.scratch, &setup.scratch.path("turn"));
        let setup = setup.with_tools(these.tool_path());
        kills.push(these);
        setup
    });
    let mut kills = kills.into_iter();
    sites.map(|site| Tormented { site, kills: kills.next().expect("as many"), done })
}

#[test]
#[ignore = "random: tests/run --full"]
fn replication_whose_commands_are_killed() {
    let done = RefCell::default();
    let [main, backup] = tormented(&done);
    let id = main.site.volume("tormented", 8).expect("create").volume_id;
    for round in 1..=ROUNDS {
        there_and_back(&main, &backup, &id, round);
        if done.borrow().values().all(|count| *count >= KILLS) {
            break;
        }
    }
    let done = done.borrow();
    assert!(done.values().all(|count| *count >= KILLS), "too few were killed: {done:?}");
    main.kills.insist(&main.site.cluster, || main.site.daemon.client().delete_volume(&delete(&id)));
    assert!(main.site.image(&id).is_none());
    [&main, &backup].into_iter().for_each(|it| it.site.daemon.assert_well());
}

/// A demotion that is killed before it was written into the journal looks done, and the other site waits for
/// it for ever.
#[test]
#[ignore = "random: tests/run --full"]
fn a_journal_whose_demotions_are_killed() {
    let done = RefCell::default();
    let [main, backup] = tormented(&done);
    let (mut here, mut there) = (&main, &backup);
    let id = main.site.volume("tormented", 8).expect("create").volume_id;
    main.site.enable(&id, &[("mirroringMode", "journal")]).expect("enable");
    for round in 1..=JOURNAL_ROUNDS {
        here.site.fill(&id, 1, round);
        let written = here.site.checksum(&id);
        here.demote(&id, JOURNAL);
        await_that("the demotion arrives", || there.site.promote(&id, false, &[]).map_err(|it| it.message));
        assert!(there.site.checksum(&id) == written, "UNSAFE: it is not what was written");
        (here, there) = (there, here);
        if done.borrow()["demote"] >= KILLS {
            break;
        }
    }
    assert!(done.borrow()["demote"] >= KILLS, "{:?}", done.borrow());
    [&main, &backup].into_iter().for_each(|it| it.site.daemon.assert_well());
}

/// A volume is replicated, goes to the other site and comes back, is lost and copied anew, comes back once
/// more, and is replicated no more.
#[track_caller]
fn there_and_back(main: &Tormented<'_>, backup: &Tormented<'_>, id: &str, round: u8) {
    main.site.fill(id, 1, round);
    main.step("enable", LONGEST, |site| site.enable(id, &[("schedulingInterval", "1h")]));
    assert_eq!(main.site.is_primary(id), Some(true));
    backup.site.await_copy(id);
    move_to(main, backup, id, round + 100);
    move_to(backup, main, id, round + 50);

    copy_anew(main, backup, id, round);
    move_to(backup, main, id, round + 100);

    let written = main.site.checksum(id);
    // rbd-mirror removes a copy that follows. A former primary that does not follow yet would stay.
    backup.site.await_promotion(id);
    main.step("disable", LONGEST, |site| site.disable(id, &[]));
    assert_eq!(main.site.is_primary(id), None);
    assert!(main.site.checksum(id) == written, "UNSAFE: it has changed");
    await_that("the copy goes", || backup.site.image(id).map_or(Ok(()), |image| Err(image.to_string())));
}

/// The other site takes over by force, and the volume here is given up for a copy of the one there.
#[track_caller]
fn copy_anew(main: &Tormented<'_>, backup: &Tormented<'_>, id: &str, round: u8) {
    main.site.fill(id, 1, round);
    main.site.cluster.rbd(&["mirror", "image", "snapshot", object_of(id)]);
    backup.site.await_content(id, &main.site.checksum(id));
    backup.site.promote(id, true, &[]).expect("promote by force");
    backup.site.fill(id, 1, round + 150);
    backup.site.cluster.rbd(&["mirror", "image", "snapshot", object_of(id)]);
    let written = backup.site.checksum(id);
    main.demote(id, LONGEST);
    main.step("resync", main.time_of_a_resync(id), |site| match site.resync(id, true) {
        Ok(true) => Ok(()),
        Ok(false) => Err(later("it is being copied".into())),
        // The daemons of rbd-mirror have not seen yet that the two images differ.
        Err(refused) if refused.code == Code::FAILED_PRECONDITION => Err(later(refused.message)),
        Err(failure) => Err(failure),
    });
    assert!(main.site.checksum(id) == written, "UNSAFE: the new copy is another");
}

#[track_caller]
fn move_to(from: &Tormented<'_>, to: &Tormented<'_>, id: &str, byte: u8) {
    from.site.fill(id, 1, byte);
    let written = from.site.checksum(id);
    from.demote(id, LONGEST);
    to.promote(id);
    assert_eq!(from.site.is_primary(id), Some(false), "UNSAFE: both are primary");
    assert!(to.site.checksum(id) == written, "UNSAFE: it is not what was written");
}
