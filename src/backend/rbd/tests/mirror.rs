//! Volumes that are mirrored, on a cluster whose peer does what the test says.

use super::publish::{Scene, refused, scene};
use super::*;
use crate::backend::rbd::tool::cli::mirror_output::recorded;
use crate::backend::rbd::tool::fake::Fault;
use crate::backend::rbd::tool::*;
use crate::backend::replication::*;
use crate::error::Kind::*;

pub(super) fn terms() -> ReplicationTerms {
    ReplicationTerms { mode: MirroringMode::Snapshot, schedule: None, flatten: false }
}

pub(super) fn every(minutes: u64) -> Option<Schedule> {
    Some(Schedule { minutes, start: None })
}

pub(super) fn promotion(force: bool) -> Promotion {
    Promotion { force, accept_loss: false, schedule: None }
}

/// Requests to the replication of the scene's volume.
impl Scene {
    pub(super) fn ask<T>(&self, ask: impl Fn(&dyn Replication, &Call) -> Result<T>) -> Result<T> {
        ask(self.rbd.replication().unwrap(), &call())
    }

    pub(super) fn enable(&self, terms: &ReplicationTerms) -> Result<()> {
        self.ask(|it, call| it.enable(call, &self.id, terms, &Secrets::default()))
    }

    pub(super) fn disable(&self, force: bool) -> Result<()> {
        self.ask(|it, call| it.disable(call, &self.id, force, &Secrets::default()))
    }

    pub(super) fn promote(&self, asked: &Promotion) -> Result<()> {
        self.ask(|it, call| it.promote(call, &self.id, asked, &Secrets::default()))
    }

    pub(super) fn demote(&self, force: bool) -> Result<()> {
        self.ask(|it, call| it.demote(call, &self.id, force, &Secrets::default()))
    }

    pub(super) fn resync(&self, force: bool) -> Result<bool> {
        self.ask(|it, call| it.resync(call, &self.id, force, &Secrets::default()))
    }

    pub(super) fn info(&self) -> Result<ReplicationInfo> {
        self.ask(|it, call| it.info(call, &self.id, &Secrets::default()))
    }

    pub(super) fn destination(&self) -> Result<String> {
        let asked = self.ask(|it, call| it.destination(call, &self.id, &Secrets::default()));
        asked.map(|id| id.to_string())
    }

    pub(super) fn set(&self, primary: bool) {
        self.cluster.set_mirrored(&self.cluster.at(), &self.id.object, MirrorState::Enabled, primary);
    }

    /// Makes the volume a copy with these mirror snapshots, and sets what the sites report.
    pub(super) fn set_copy(&self, snapshots: &str, status: &str) {
        self.set(false);
        let (at, name) = (self.cluster.at(), &self.id.object);
        self.cluster.set_mirror_snapshots(&at, name, recorded::snapshots(snapshots));
        self.cluster.set_mirror_status(&at, name, recorded::status(status));
    }

    pub(super) fn role(&self) -> Option<(MirrorState, bool)> {
        let info = self.cluster.here().info(ImageRef::Name(&self.id.object)).unwrap();
        self.cluster.forget_steps();
        info.unwrap().mirroring.map(|it| (it.state, it.primary))
    }

    pub(super) fn is_primary(&self) -> bool {
        self.role() == Some((MirrorState::Enabled, true))
    }
}

pub(super) fn mirrored_scene() -> Scene {
    let it = scene();
    it.cluster.set_mirror_pool(MirrorScope::Images, &["site-b"]);
    it
}

pub(super) fn changes(it: &Scene) -> Vec<String> {
    const QUESTIONS: [&str; 10] = [
        "info",
        "mirror_status",
        "mirror_snapshots",
        "mirror_pool",
        "metadata",
        "all_metadata",
        "holders",
        "watchers",
        "mirror_daemons",
        "has_bare_tag",
    ];
    it.methods().into_iter().filter(|method| !QUESTIONS.contains(&method.as_str())).collect()
}

#[test]
fn a_copy_is_not_changed_and_says_why() {
    let it = scene();
    it.set(false);
    let range = SizeRange { required: 2 * GIB, limit: 0 };
    let (none, limits) = (Secrets::default(), Map::from([("iops".to_string(), "5".to_string())]));
    let volumes = it.rbd.volumes();
    let advice = ["secondary", "replication promote"];
    refused(volumes.expand(&call(), &it.id, &range, &none), Precondition, &advice);
    refused(volumes.modify(&call(), &it.id, &limits, &none), Precondition, &advice);
    refused(snapshot(&it.rbd, &it.id, "s"), Precondition, &advice);
    refused(it.publish("n1", Mode::SingleNodeWriter, false), Precondition, &["for writing", "promote"]);
    refused(it.publish("n1", Mode::MultiNodeMultiWriter, false), Precondition, &advice);
    let deletion = crate::backend::Deletion { id: &it.id, snapshots_may_outlive: true, secrets: &none };
    refused(volumes.delete(&call(), &deletion, &|| Ok(())), Precondition, &["secondary", "removes the copy"]);
    let header = LockTarget::Header(&it.image());
    assert_eq!(it.cluster.here().holders(header).unwrap(), [], "a lock was left behind");
    // Requests that change nothing are allowed.
    volumes.expand(&call(), &it.id, &SizeRange { required: GIB, limit: 0 }, &none).unwrap();
    volumes.modify(&call(), &it.id, &Map::new(), &none).unwrap();
    it.publish("n1", Mode::MultiNodeReaderOnly, true).unwrap();
    assert_eq!(changes(&it).iter().filter(|method| *method != "lock" && *method != "unlock").count(), 0);
}

#[test]
fn daemons_of_rbd_mirror_are_no_users() {
    let it = scene();
    it.set(true);
    it.cluster.watch_by_mirror(&it.cluster.at(), &it.id.object, "10.0.0.5:0/1");
    it.publish("n1", Mode::SingleNodeWriter, false).unwrap();
    assert_eq!(it.methods().iter().filter(|method| *method == "mirror_daemons").count(), 1);
    super::publish::unpublish(&it.rbd, &it.id, None).unwrap();
    it.publish("n2", Mode::SingleNodeWriter, false).unwrap();
    assert!(!it.methods().contains(&"mirror_daemons".to_string()), "who it is was known");
    super::publish::unpublish(&it.rbd, &it.id, None).unwrap();
    it.watch("10.0.0.7:0/1");
    refused(it.publish("n1", Mode::SingleNodeWriter, false), Precondition, &["10.0.0.7:0/1"]);
}

#[test]
fn a_primary_is_deleted_with_its_mirror_snapshots() {
    let it = scene();
    it.set(true);
    it.cluster.set_mirror_snapshots(&it.cluster.at(), &it.id.object, recorded::snapshots("snapshots-copy"));
    let none = Secrets::default();
    let deletion = crate::backend::Deletion { id: &it.id, snapshots_may_outlive: true, secrets: &none };
    it.rbd.volumes().delete(&call(), &deletion, &|| Ok(())).unwrap();
    assert!(!it.cluster.dump().contains("csi-"), "it was retained: {}", it.cluster.dump());
}

#[test]
fn a_daemon_that_watches_a_former_primary_is_no_user_of_it() {
    let it = scene();
    it.cluster.watch_by_mirror(&it.cluster.at(), &it.id.object, "10.0.0.5:0/1");
    let none = Secrets::default();
    let deletion = crate::backend::Deletion { id: &it.id, snapshots_may_outlive: true, secrets: &none };
    let delete = || it.rbd.volumes().delete(&call(), &deletion, &|| Ok(()));
    refused(delete(), Unavailable, &["try again"]);
    it.watch("10.0.0.7:0/1");
    refused(delete(), Precondition, &["in use by 10.0.0.7:0/1:"]);
}

#[test]
fn condition_and_list_tell_the_part_and_the_peer() {
    let it = scene();
    it.set(true);
    it.cluster.set_mirror_status(&it.cluster.at(), &it.id.object, recorded::status("healthy-primary"));
    let inspect = || it.rbd.volumes().inspect(&call(), &it.id, &Secrets::default()).unwrap().unwrap();
    let replication = inspect().replication.unwrap();
    assert_eq!(replication.role, ReplicationRole::Primary);
    assert!(replication.state.unwrap().contains("site-b has it as of"));
    assert_eq!(inspect().condition, Some(None));
    it.cluster.set_mirror_status(&it.cluster.at(), &it.id.object, recorded::status("two-primaries"));
    assert!(inspect().condition.flatten().unwrap().detail.contains("primary at site-b too"));
    it.set(false);
    let listed = it.rbd.volumes().list(&call(), ("", 0), &Err).unwrap().entries.pop().unwrap();
    assert_eq!(listed.replication, Some(Replicated { role: ReplicationRole::Secondary, state: None }));
}

#[test]
fn how_a_primary_does_takes_two_questions() {
    let it = scene();
    refused(it.info(), Precondition, &["not replicated", "replication enable"]);
    it.set(true);
    it.cluster.set_mirror_status(&it.cluster.at(), &it.id.object, recorded::status("healthy-primary"));
    it.info().unwrap();
    it.methods();
    assert_eq!(it.info().unwrap().health, ReplicationHealth::Healthy);
    assert_eq!(it.methods(), ["info", "mirror_status"]);
    it.set(false);
    refused(it.info(), Precondition, &["secondary"]);
    it.remove();
    refused(it.info(), NotFound, &[]);
}

#[test]
fn enabling_is_three_commands_and_repeated_one_question() {
    let it = mirrored_scene();
    it.enable(&terms()).unwrap();
    assert_eq!(it.methods(), ["info", "mirror_pool", "set_metadata", "enable_mirroring"]);
    it.enable(&terms()).unwrap();
    assert_eq!(it.methods(), ["info"]);
    let other = create(&it.rbd, &wanted("b", GIB, None)).unwrap().id;
    it.cluster.forget_steps();
    let scheduled = ReplicationTerms { schedule: every(5), ..terms() };
    it.ask(|of, call| of.enable(call, &other, &scheduled, &Secrets::default())).unwrap();
    let expected = ["info", "set_metadata", "set_metadata", "enable_mirroring", "add_schedule"];
    assert_eq!(it.methods(), expected, "the pool was looked at a moment ago");
    assert_eq!(
        it.cluster.schedules_of(&it.cluster.at(), &other.object),
        every(5).into_iter().collect::<Vec<_>>()
    );
}

#[test]
fn what_another_controller_kept_is_kept_no_longer() {
    let it = mirrored_scene();
    it.enable(&ReplicationTerms { schedule: every(5), ..terms() }).unwrap();
    let other = Scene { rbd: controller(&it.cluster, TWO), ..it };
    other.enable(&terms()).unwrap();
    let (at, image) = (other.cluster.at(), &other.id.object);
    assert_eq!(other.cluster.schedules_of(&at, image), []);
    let kept = other.cluster.all_metadata(&at, image);
    let terms = kept.iter().find(|(key, _)| *key == "cephlet.replication").map(|(_, text)| text.as_str());
    assert_eq!(terms, Some("{\"version\":1}"), "else its copies would be late for ever");
}

#[test]
fn another_schedule_comes_before_the_old_one_goes_and_another_mode_is_refused() {
    let it = mirrored_scene();
    it.enable(&ReplicationTerms { schedule: every(5), ..terms() }).unwrap();
    it.cluster.forget_steps();
    it.enable(&ReplicationTerms { schedule: every(60), ..terms() }).unwrap();
    assert_eq!(changes(&it), ["set_metadata", "schedules", "add_schedule", "remove_schedule"]);
    assert_eq!(
        it.cluster.schedules_of(&it.cluster.at(), &it.id.object),
        every(60).into_iter().collect::<Vec<_>>()
    );
    let journal = ReplicationTerms { mode: MirroringMode::Journal, ..terms() };
    refused(it.enable(&journal), Precondition, &["snapshot", "journal", "disable"]);
}

/// The daemon is killed at each step. The request is repeated to it, and to another controller.
#[test]
fn enabling_is_finished_after_a_crash_at_any_step() {
    for fault in [Fault::Before, Fault::After] {
        for step in 1.. {
            let it = mirrored_scene();
            let asked = ReplicationTerms { schedule: every(5), ..terms() };
            it.cluster.crash_at(step, fault);
            let outcome = it.enable(&asked);
            if it.cluster.fault_pending() {
                assert!(step > 4, "it has more steps than {step}");
                break;
            }
            assert!(outcome.is_err(), "step {step}");
            it.cluster.restart();
            let after = Scene { rbd: controller(&it.cluster, TWO), ..it };
            after.enable(&asked).unwrap();
            assert!(after.is_primary(), "step {step} {fault:?}");
            let schedules = after.cluster.schedules_of(&after.cluster.at(), &after.id.object);
            assert_eq!(schedules, every(5).into_iter().collect::<Vec<_>>(), "step {step} {fault:?}");
            let record = after.cluster.all_metadata(&after.cluster.at(), &after.id.object);
            assert!(record["cephlet.request"].contains(&format!("\"first_id\":\"{}\"", after.image())));
        }
    }
}

/// One of two controllers is told that its command failed, and finds the image mirrored.
#[test]
fn two_controllers_enable_at_once() {
    let it = mirrored_scene();
    let (id, at) = (it.id.clone(), it.cluster.at());
    it.cluster.on_step(3, move |cluster| {
        cluster.on(&at).enable_mirroring(&id.object, MirroringMode::Snapshot).unwrap();
    });
    it.enable(&terms()).unwrap();
    let other = mirrored_scene();
    let (id, at) = (other.id.clone(), other.cluster.at());
    other.cluster.on_step(3, move |cluster| {
        cluster.on(&at).enable_mirroring(&id.object, MirroringMode::Journal).unwrap();
    });
    refused(other.enable(&terms()), Precondition, &["journal"]);
}

#[test]
fn what_would_never_be_copied_is_refused_with_the_way_out() {
    let it = scene();
    refused(it.enable(&terms()), Precondition, &["rbd mirror pool enable rbd image"]);
    it.cluster.set_mirror_pool(MirrorScope::Images, &[]);
    refused(it.enable(&terms()), Precondition, &["no peer", "bootstrap"]);
    it.cluster.set_mirror_pool(MirrorScope::Pool, &["site-b"]);
    refused(it.enable(&terms()), Precondition, &["as a whole"]);
    assert_eq!(changes(&it), [""; 0]);
    it.cluster.set_mirror_pool(MirrorScope::Images, &["site-b"]);
    let taken = snapshot(&it.rbd, &it.id, "s").unwrap();
    let clone = create(&it.rbd, &wanted("c", GIB, Some(Origin::Snapshot(taken.id)))).unwrap().id;
    let of_clone = Scene { id: clone, ..it };
    refused(of_clone.enable(&terms()), Precondition, &["clone", "not replicated", "flattenMode=force"]);
    let parent = volume_object("default", "a");
    of_clone.cluster.set_mirrored(&of_clone.cluster.at(), &parent, MirrorState::Enabled, true);
    let force = ReplicationTerms { flatten: true, ..terms() };
    of_clone.enable(&force).unwrap();
    assert!(!of_clone.methods().contains(&"flatten".to_string()), "the parent is mirrored too");
}

#[test]
fn a_clone_of_a_deleted_snapshot_is_flattened_while_nobody_has_it() {
    let it = mirrored_scene();
    let copy = create(&it.rbd, &wanted("c", GIB, Some(Origin::Volume(it.id.clone())))).unwrap().id;
    it.cluster.set_mirrored(&it.cluster.at(), &it.id.object, MirrorState::Enabled, true);
    let copy = Scene { id: copy, ..it };
    refused(copy.enable(&terms()), Precondition, &["was deleted", "flattenMode=force"]);
    let force = ReplicationTerms { flatten: true, ..terms() };
    copy.publish("n1", Mode::SingleNodeWriter, false).unwrap();
    refused(copy.enable(&force), Precondition, &["flattened", "\"n1\""]);
    super::publish::unpublish(&copy.rbd, &copy.id, None).unwrap();
    copy.watch("10.0.0.7:0/1");
    refused(copy.enable(&force), Precondition, &["10.0.0.7:0/1"]);
    copy.cluster.unwatch("10.0.0.7:0/1");
    copy.cluster.forget_steps();
    copy.enable(&force).unwrap();
    assert!(copy.methods().contains(&"flatten".to_string()) && copy.is_primary());
}

/// A clone of a volume that is not mirrored.
pub(super) fn copy_with_object_map() -> Scene {
    let it = mirrored_scene();
    it.cluster.write(&it.cluster.at(), &it.id.object, "data");
    let mut new = wanted("c", GIB, Some(Origin::Volume(it.id.clone())));
    let features = "layering,exclusive-lock,object-map,fast-diff";
    new.parameters = Map::from([("imageFeatures".to_string(), features.to_string())]);
    Scene { id: create(&it.rbd, &new).unwrap().id, ..it }
}

#[test]
fn a_volume_whose_flatten_was_killed_has_all_its_data_when_it_is_enabled_again() {
    for step in 1.. {
        let copy = copy_with_object_map();
        let force = ReplicationTerms { flatten: true, ..terms() };
        copy.cluster.crash_at(step, Fault::HalfMade);
        drop(copy.enable(&force));
        if copy.cluster.fault_pending() {
            return assert!(step > 8);
        }
        copy.cluster.restart();
        let rbd = controller(&copy.cluster, ONE);
        let again = Scene { rbd, ..copy };
        again.enable(&force).unwrap();
        assert_eq!(again.cluster.content(&again.cluster.at(), &again.id.object), "data", "UNSAFE: {step}");
    }
}

#[test]
fn disabling_removes_the_schedule_first_and_is_finished_when_it_was_killed() {
    let it = mirrored_scene();
    it.enable(&ReplicationTerms { schedule: every(5), ..terms() }).unwrap();
    it.cluster.forget_steps();
    it.disable(false).unwrap();
    assert_eq!(it.methods(), ["info", "remove_schedule", "set_metadata", "disable_mirroring"]);
    assert_eq!(it.role(), None);
    it.disable(false).unwrap();
    assert_eq!(it.methods(), ["info"]);
    it.enable(&terms()).unwrap();
    it.cluster.forget_steps();
    it.cluster.fail_at(3, Fault::HalfMade);
    refused(it.disable(false), Timeout, &[]);
    assert_eq!(it.role(), Some((MirrorState::Disabling, false)), "as a killed command leaves a primary");
    refused(it.enable(&terms()), Precondition, &["replication disable"]);
    it.disable(false).unwrap();
    assert_eq!(it.role(), None);
    it.enable(&terms()).unwrap();
    it.cluster.fail_at(3, Fault::After);
    it.disable(false).unwrap();
}

#[test]
fn a_copy_that_follows_goes_with_its_primary_and_one_that_is_cut_off_by_force() {
    let it = scene();
    for following in ["healthy-secondary", "first-copy-secondary"] {
        it.set_copy("snapshots-copy", following);
        it.disable(false).unwrap();
        it.disable(true).unwrap();
        assert_eq!((changes(&it), it.role()), (vec![], Some((MirrorState::Enabled, false))), "{following}");
    }
    for cut_off in ["split-brain-secondary", "both-demoted", "primary-dead-secondary"] {
        it.set_copy("snapshots-copy", cut_off);
        refused(it.disable(false), Precondition, &["force=true"]);
        it.disable(true).unwrap();
        assert_eq!(
            (changes(&it), it.role()),
            (["remove_schedule", "disable_mirroring"].map(String::from).into(), None),
            "{cut_off}"
        );
    }
}
