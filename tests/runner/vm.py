"""Tests in a VM with Debian's kernel, which has Ceph's drivers: one at a time, as it has one cluster and one kernel."""
import json, os, pathlib, socket, subprocess, sys, time

from . import supervise
from .suites import PROGRAMS, SANITY_VM, Suite, TESTS, Test

# What the VM has to do with Ceph, as `tests/vm/run` makes it.
KINDS = {"vm": ["--host-tools"], "bare": ["--without-ceph", "--prepare"], "systemd": ["--systemd"],
         "boots": ["--systemd", "--disk"],
         "containers": ["--systemd", "--without-ceph", "--memory", "4096"]}
# Where the VM has what is here the folder of its logs; and that folder, where something is prepared for the VM.
OUT = pathlib.Path(os.environ.get("PREPARE", "/out"))
# Of the whole VM: its tests have their own.
LIMIT = 5 * 3600


def lane(where, tests, logs):
    """A VM with the tests that need it, which is one test for this machine."""
    out = logs / where
    out.mkdir(exist_ok=True)
    (out / "results").write_text("")
    mine = [[test.name, test.command, test.environment, test.suite.limit] for test in tests if test.suite.where == where]
    (out / "tests.json").write_text(json.dumps(mine))
    command = [str(TESTS / "vm/run"), "--timeout", str(LIMIT), *KINDS[where], "--out", str(out)]
    command += ["--env", f"TESTS={os.environ['TESTS']}", str(TESTS / "run"), "--inside"]
    return Test(Suite(where, "vm/run", 0, limit=LIMIT + 600), f"the VM {where}", command, where=where)


def inside():
    """In the VM, and what is to be prepared for it here, which is no result: the VM is not booted for what that fails for."""
    tests = json.loads((OUT / "tests.json").read_text())
    is_prepared = "PREPARE" in os.environ
    # A test that reboots the VM is run again; those before it are over.
    over = {json.loads(line)[0] for line in (OUT / "results").read_text().splitlines()}
    for name, command, environment, limit in tests:
        if name in over:
            continue
        begun = time.monotonic()
        test = Test(SANITY_VM, name, command)
        undo = (lambda: None) if is_prepared else go_on
        _, status = os.waitpid(supervise.start(command, environment, test.log(OUT), limit, undo), 0)
        verdict = supervise.VERDICTS.get(os.waitstatus_to_exitcode(status), "failed")
        if verdict != "passed":
            print(f"{verdict}: {name}", flush=True)
        if is_prepared and verdict != "passed":
            sys.exit(1)
        if not is_prepared:
            with (OUT / "results").open("a") as results:
                results.write(json.dumps([name, verdict, time.monotonic() - begun]) + "\n")


def go_on():
    """The network, which a failed test may have cut, and the cluster's daemons, which it may have stopped."""
    subprocess.run(["ip", "route", "flush", "type", "blackhole"])
    host, port = os.environ["CLUSTER_CONTROL"].split(":")
    with socket.create_connection((host, int(port))) as control, control.makefile("rw") as line:
        for daemon in ("mon", "osd", "mgr", "mds"):
            line.write(f"outside sh -c 'kill -s CONT $(cat \"$CLUSTER_DIR/run/{daemon}.pid\")'\n")
            line.flush()
            line.readline()


def merge(lane, tests, logs):
    """What became of the VM's tests, which share what it used. One that was not reached has failed."""
    lines = (logs / lane.where / "results").read_text().splitlines()
    results = {name: (verdict, seconds) for name, verdict, seconds in map(json.loads, lines)}
    share = lane.cpu / (sum(seconds for _, seconds in results.values()) or 1)
    for test in tests:
        if test.suite.where == lane.where:
            test.verdict, test.seconds = results.get(test.name, ("not reached", 0))
            test.cpu = test.seconds * share
