//! Work without a deadline, and what happens to it when its call or the daemon ends.

use super::*;

#[test]
fn unbounded_work_survives_its_call_and_keeps_the_lock() {
    let stubs = Stubs::with(|limits| limits.tools = 1);
    let go = stubs.fifo("go");
    let (call, released) = call_with_lock(true);
    // The script writes after its call has ended: the reaper must go on reading.
    let script = "read line < $0/go; head -c 300000 /dev/zero; echo $line > $0/end";
    let error = stubs.run_for(&call, Class::Unbounded, script).unwrap_err();
    assert!(matches!(error.why, Why::StillRunning(_)), "{error}");
    drop(call);
    assert_eq!(released.try_recv(), Err(TryRecvError::Empty), "the lock is free while the work goes on");
    assert_eq!(format!("{:?}", stubs.processes.tools_running), "1 permits held, 0 waited for");
    fs::write(go, "finished\n").unwrap();
    assert!(released.recv_timeout(SOON).is_err_and(|error| error == mpsc::RecvTimeoutError::Disconnected));
    assert_eq!(fs::read_to_string(stubs.dir.path().join("end")).unwrap(), "finished\n");
    assert_eq!(stubs.stdout("echo next"), "next\n");
}

#[test]
fn lasting_work_has_no_deadline_and_ends_with_the_daemon() {
    let stubs = Stubs::with(|limits| (limits.question, limits.change) = (Duration::ZERO, Duration::ZERO));
    let (ready, go) = (stubs.fifo("ready"), stubs.fifo("go"));
    let (call, released) = call_with_lock(true);
    thread::scope(|scope| {
        let script = "echo > $0/ready; read line < $0/go; sleep 1.5; echo > $0/ready; exec sleep 1000";
        let running = scope.spawn(|| stubs.run_for(&call, Class::Lasting, script));
        fs::read(&ready).unwrap();
        fs::write(&go, "\n").unwrap();
        fs::read(&ready).unwrap();
        assert_eq!(released.try_recv(), Err(TryRecvError::Empty), "the lock is free while the work goes on");
        let begun = Instant::now();
        stubs.processes.shutdown(begun + SOON);
        assert!(begun.elapsed() < SOON, "it did not end with the daemon");
        let error = running.join().unwrap().unwrap_err();
        assert!(matches!(error.why, Why::Stopping), "{error}");
    });
}

#[test]
fn what_a_dead_daemon_was_running_is_dead() {
    let dies = |class, outlives| orphaned(class, outlives) == Orphaned::Dies;
    for class in [Class::Question, Class::Listing, Class::Change, Class::Lasting] {
        assert!(dies(class, false) && !dies(class, true), "{class:?}");
    }
    assert!(!dies(Class::Unbounded, false), "UNSAFE: a formatting is broken off");
}

#[test]
fn only_unbounded_work_survives_the_daemon_that_read_its_output() {
    // The reaper reads as long as the daemon lives; after that only an ignored SIGPIPE (13, so bit 12) keeps
    // mkfs alive.
    let (stubs, call) = (Stubs::new(), Call::internal("test"));
    let ignores_sigpipe = |class| {
        let seen = stubs.run_for(&call, class, "grep ^SigIgn: /proc/self/status").unwrap().stdout;
        let set = String::from_utf8(seen).unwrap().replace("SigIgn:", "");
        u64::from_str_radix(set.trim(), 16).unwrap() & (1 << 12) != 0
    };
    assert!(ignores_sigpipe(Class::Unbounded));
    assert!(!ignores_sigpipe(Class::Change));
    assert!(!ignores_sigpipe(Class::Lasting));
}

#[test]
fn shutdown_kills_what_may_be_killed() {
    let stubs = Stubs::new();
    let (ready, lasting_ready, go) = (stubs.fifo("ready"), stubs.fifo("lasting"), stubs.fifo("go"));
    let long_ready = stubs.fifo("long");
    thread::scope(|scope| {
        let hanging = scope.spawn(|| stubs.run("echo > $0/ready; exec sleep 1000"));
        let script = "echo $$ > $0/long; exec sleep 1000";
        let long = scope.spawn(|| stubs.run_for(&Call::internal("test"), Class::Lasting, script));
        let script = "echo > $0/lasting; read line < $0/go; echo $line; echo $line > $0/end; echo > $0/ready";
        let lasting = scope.spawn(|| stubs.run_for(&patient_call(), Class::Unbounded, script));
        fs::read(&ready).unwrap();
        fs::read(&lasting_ready).unwrap();
        let long_pid = fs::read_to_string(&long_ready).unwrap();
        let begun = Instant::now();
        stubs.processes.shutdown(begun + SOON);
        assert!(begun.elapsed() < SOON, "shutdown did not see that all had ended");
        await_end(&long_pid);
        for end in [hanging, lasting, long] {
            let error = end.join().unwrap().unwrap_err();
            assert!(matches!(error.why, Why::Stopping), "{error}");
        }
    });
    assert!(matches!(stubs.run("echo no").unwrap_err().why, Why::Stopping));
    fs::write(go, "finished\n").unwrap();
    fs::read(&ready).unwrap();
    assert_eq!(fs::read_to_string(stubs.dir.path().join("end")).unwrap(), "finished\n");
}

#[test]
fn commands_are_counted_with_what_their_call_is_about() {
    let stubs = Stubs::with(|limits| limits.tools = 1);
    let (ready, go) = (stubs.fifo("ready"), stubs.fifo("go"));
    let [stuck, other] = ["stuck", "other"].map(|bulkhead| {
        let call = patient_call();
        call.set_bulkhead(bulkhead.into());
        call
    });
    thread::scope(|scope| {
        let script = "echo > $0/ready; read line < $0/go";
        let stuck = scope.spawn(|| stubs.run_for(&stuck, Class::Unbounded, script));
        fs::read(&ready).unwrap();
        for class in [Class::Unbounded, Class::Change] {
            assert_eq!(stubs.run_for(&other, class, "echo well").unwrap().stdout, b"well\n");
        }
        // A list concerns all clusters. Its question to one cluster counts with that cluster.
        let about = stubs.cmd(Class::Question, "echo well").within("third".into());
        assert_eq!(stubs.processes.run(&other, &about).unwrap().stdout, b"well\n");
        fs::write(&go, "\n").unwrap();
        stuck.join().unwrap().unwrap();
    });
}

#[test]
fn what_hangs_in_one_bulkhead_keeps_no_other_from_starting() {
    let stubs = Stubs::with(|limits| limits.stuck = 1);
    let go = stubs.fifo("go");
    let (call, _released) = call_with_lock(true);
    call.set_bulkhead("stuck".into());
    stubs.run_for(&call, Class::Unbounded, "read line < $0/go").unwrap_err();
    let calls = ["stuck", "other"].map(|bulkhead| {
        let call = patient_call();
        call.set_bulkhead(bulkhead.into());
        call
    });
    let [stuck, other] = calls.map(|call| stubs.run_for(&call, Class::Question, "echo well"));
    assert!(matches!(stuck, Err(CommandError { why: Why::TooBusy(1), .. })), "{stuck:?}");
    assert_eq!(other.unwrap().stdout, b"well\n");
    fs::write(&go, "\n").unwrap();
}

#[test]
fn what_must_not_be_broken_off_outlives_the_daemons_cgroup() {
    let mut stubs = Stubs::new();
    let cmd = || stubs.cmd(Class::Unbounded, "echo $PPID").outliving();
    // As systemd-run does, the stub becomes the program.
    let script = "#!/bin/sh\necho in a scope\nwhile [ \"$1\" != -- ]; do shift; done\nshift\nexec \"$@\"\n";
    let (stub, outliving) = (stubs.dir.path().join("systemd-run"), cmd());
    let written = "printf %s \"$2\" >\"$1\" && chmod 755 \"$1\"";
    let installed = Command::new("sh").args(["-c", written, "install"]).arg(&stub).arg(script).status();
    assert!(installed.unwrap().success());
    stubs.processes.tools = Tools::find(vec![stubs.dir.path().into(), "/usr/bin".into(), "/bin".into()]);
    let output = |stubs: &Stubs, cmd: &Cmd| {
        String::from_utf8(stubs.processes.run(&patient_call(), cmd).unwrap().stdout).unwrap()
    };
    stubs.processes.booted = stubs.dir.path().join("none");
    assert!(!output(&stubs, &outliving).contains("scope"), "there is no systemd");
    stubs.processes.booted = stubs.dir.path().into();
    let own = std::process::id();
    assert_eq!(output(&stubs, &outliving), format!("in a scope\n{own}\n"), "UNSAFE: it ends with the cgroup");
    let dying = stubs.cmd(Class::Unbounded, "echo $PPID");
    assert_eq!(output(&stubs, &dying), format!("{own}\n"));
}
