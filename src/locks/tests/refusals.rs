//! Calls that get no lock: they waited too long, their clients have given up, or there is no room.

use super::*;

#[test]
fn who_waits_too_long_is_told_for_whom() {
    let scene = Scene::new(8, Duration::from_millis(20));
    let call = Call::internal("NodeStageVolume");
    call.set_subject("local:node::web");
    scene.locks.enter(scene.entry("holder", call.clone(), "web", request("same")));
    let _guard = scene.goes("holder");
    call.enter_step("mkfs.ext4 /dev/loop3");
    scene.enter("waiter", "web");
    let error = scene.refused("waiter");
    assert_eq!(error.kind(), Kind::Busy);
    let facts = [
        "local:node:::web",
        "NodeStageVolume local:node::web",
        "mkfs.ext4 /dev/loop3",
        &format!("call {}", call.id()),
        "has held it for",
    ];
    for fact in facts {
        assert!(error.message().contains(fact), "no {fact:?} in {error}");
    }
    scene.locks.enter(scene.entry("joined", Call::internal("NodeStageVolume"), "web", request("same")));
    assert_eq!(scene.refused("joined").kind(), Kind::Busy);
    assert_eq!(scene.locks.parked(), 0);
}

#[test]
fn everybody_who_waits_can_be_refused_at_once() {
    let scene = Scene::patient();
    scene.enter("holder", "a");
    let guard = scene.goes("holder");
    scene.enter("waiter", "a");
    scene.enter_all("both", &["a", "b"]);
    scene.enter("behind", "b");
    scene.locks.refuse_parked(&Error::unavailable("going down"));
    let mut told: Vec<_> = (0..3).map(|_| scene.told.recv_timeout(NEVER).unwrap()).collect();
    told.sort_by_key(|(name, _)| *name);
    let refused =
        |turn: &Turn<Answer>| matches!(turn, Turn::Refused(error) if error.kind() == Kind::Unavailable);
    assert!(told.iter().all(|(_, turn)| refused(turn)), "{told:?}");
    assert_eq!(told.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["behind", "both", "waiter"]);
    assert_eq!((scene.locks.parked(), scene.locks.holders().len()), (0, 1));
    drop(guard);
    scene.enter("later", "b");
    scene.goes("later");
}

#[test]
fn who_waits_for_two_objects_is_told_who_works() {
    let scene = Scene::new(8, Duration::from_millis(20));
    scene.enter("holder", "b");
    let _holder = scene.goes("holder");
    scene.enter_all("first", &["a", "b"]);
    scene.enter("second", "a");
    let refusals: Vec<_> = (0..2).map(|_| scene.told.recv_timeout(NEVER).unwrap()).collect();
    for (name, turn) in refusals {
        match turn {
            Turn::Refused(error) => assert!(error.message().contains("has held it"), "{error}"),
            // The timer may come to the second call a moment after the first one has made way for it.
            Turn::Go(_) if name == "second" => {}
            turn => panic!("{name} was told {turn:?}"),
        }
    }
}

#[test]
fn a_call_whose_client_has_given_up_is_refused_without_being_run() {
    let scene = Scene::patient();
    let gone = Arc::new(AtomicBool::new(false));
    let flag = gone.clone();
    scene.enter("holder", "v");
    let holder = scene.goes("holder");
    scene.locks.enter(scene.entry(
        "impatient",
        Call::new("Test", move || flag.load(Ordering::SeqCst)),
        "v",
        request("same"),
    ));
    scene.ask("joined", "same");
    scene.enter("last", "v");
    gone.store(true, Ordering::SeqCst);
    assert_eq!(scene.refused("impatient").kind(), Kind::Timeout);
    drop(holder);
    drop(scene.goes("joined"));
    drop(scene.goes("last"));
}

#[test]
fn a_call_that_has_expired_when_its_turn_comes_is_not_run() {
    let scene = Scene::patient();
    scene.locks.enter(scene.entry("expired", Call::new("Test", || true), "v", None));
    assert_eq!(scene.refused("expired").kind(), Kind::Timeout);
    scene.enter("next", "v");
    scene.goes("next");
}

#[test]
fn a_full_table_refuses_at_once_and_recovers() {
    let scene = Scene::new(2, NEVER);
    scene.enter("one", "a");
    let one = scene.goes("one");
    scene.enter_all("two more", &["b", "c"]);
    assert_eq!(scene.refused("two more").kind(), Kind::Unavailable);
    scene.enter("fits", "b");
    let _fits = scene.goes("fits");
    scene.enter("too many", "c");
    assert!(scene.refused("too many").message().contains("CEPHLET_LOCK_SLOTS"));
    scene.enter("queues", "a");
    drop(one);
    drop(scene.goes("queues"));
    scene.enter("has room", "c");
    scene.goes("has room");
}
