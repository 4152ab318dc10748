"""Runs tests side by side, and finds out what became of them."""
import collections, os, select, signal, time

from . import report, supervise, vm
from .cluster import Shared
from .suites import PLACES

REPLACED_AT_MOST = 2
Running = collections.namedtuple("Running", "process test begun")


class TooLong(Exception):
    """The whole run."""


class Schedule:
    def __init__(self, logs, end):
        self.logs, self.end = logs, end
        self.cluster, self.replaced = Shared(), 0
        self.waiting, self.running = [], {}
        # Tests that failed on the cluster that there is, and running ones whose end says nothing.
        self.suspects, self.given_up = [], []

    def run(self, tests):
        """All of these; those for a VM in one, beside the others."""
        self.suspects = []
        here = [test for test in tests if test.suite.where == "here"]
        # What took long begins first.
        here.sort(key=lambda test: test.seconds, reverse=True)
        lanes = [vm.lane(where, tests, self.logs) for where in vm.KINDS if any(test.suite.where == where for test in tests)]
        self.waiting = lanes + here
        try:
            while self.waiting or self.running:
                self.start_what_fits()
                for test in self.await_ends():
                    self.end_of(test)
        finally:
            self.stop()
            for lane in lanes:
                vm.merge(lane, tests, self.logs)

    def start_what_fits(self):
        free = PLACES - sum(one.test.suite.places for one in self.running.values())
        for test in list(self.waiting):
            if test.suite.places <= free:
                self.waiting.remove(test)
                free -= test.suite.places
                self.start(test)

    def start(self, test):
        environment = dict(test.environment)
        if test.suite.cluster and test.suite.where == "here":
            environment["CLUSTER_DIR"] = str(self.cluster.get())
        process = supervise.start(test.command, environment, test.log(self.logs), test.suite.limit)
        self.running[os.pidfd_open(process)] = Running(process, test, time.monotonic())

    def await_ends(self):
        """The tests that have ended, one at least or what a minute brings."""
        until = time.monotonic() + 60
        ended, _, _ = select.select(list(self.running), [], [], max(min(until, self.end) - time.monotonic(), 0))
        if time.monotonic() > self.end:
            raise TooLong
        if not ended:
            self.tell_what_runs()
        return [self.collect(handle) for handle in ended]

    def collect(self, handle):
        os.close(handle)
        process, test, begun = self.running.pop(handle)
        _, status, used = os.wait4(process, 0)
        test.seconds, test.cpu = time.monotonic() - begun, used.ru_utime + used.ru_stime
        test.verdict = supervise.VERDICTS.get(os.waitstatus_to_exitcode(status), "failed")
        return test

    def tell_what_runs(self):
        now = time.monotonic()
        long = [f"{one.test.name} ({now - one.begun:.0f} s)" for one in self.running.values() if now - one.begun > 60]
        print(f"still running: {', '.join(long)}", flush=True)

    def end_of(self, test):
        # What was said about safety holds, whatever became of the cluster.
        may_run_again = report.may_be_forgiven(test, self.logs)
        if test in self.given_up:
            self.given_up.remove(test)
            if may_run_again:
                return self.run_again(test)
        if test.verdict != "passed":
            print(f"{test.verdict} after {test.seconds:.0f} s: {test.name}", flush=True)
            if test.suite.cluster and test.suite.where == "here":
                if may_run_again:
                    self.suspects.append(test)
                self.look_at_the_cluster()

    def run_again(self, test):
        report.keep_log(test, self.logs)
        self.waiting.append(test)

    def look_at_the_cluster(self):
        """One that has died is replaced, and what failed on it or still runs there is run again."""
        if self.cluster.is_well():
            return
        if self.replaced == REPLACED_AT_MOST:
            raise RuntimeError("the cluster died, as two before it: see the logs of what failed last")
        self.replaced += 1
        print(f"the cluster is dead; on a new one again: {', '.join(test.name for test in self.suspects)}", flush=True)
        self.given_up = [one.test for one in self.running.values() if one.test.suite.cluster and one.test.suite.where == "here"]
        for one in self.running.values():
            if one.test in self.given_up:
                os.kill(one.process, signal.SIGTERM)
        for test in self.suspects:
            self.run_again(test)
        self.suspects = []
        self.cluster.end()

    def stop(self):
        for one in self.running.values():
            os.kill(one.process, signal.SIGTERM)
        for handle in list(self.running):
            self.collect(handle).verdict = "not over"
