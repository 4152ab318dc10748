"""What the tests came to, printed and remembered."""
import collections, json

from .suites import PROGRAMS

# By name, what each test took last.
SECONDS = PROGRAMS / "seconds.json"
# So many lines of a log are printed.
TAIL = 60


def seconds():
    return json.loads(SECONDS.read_text()) if SECONDS.exists() else {}


def remember_seconds(tests):
    known = seconds()
    for test in tests:
        test.seconds = known.get(test.name, test.suite.usual)


def list_all(tests):
    remember_seconds(tests)
    for test in tests:
        print(f"{test.seconds:7.1f} s  {test.suite.part:12}{test.name}{'  (--full)' if test.full_only else ''}")


def what_it_said(test, logs):
    """Of its log what matters most: where it panicked, which much may follow, and the end."""
    log = log_of(test, logs)
    if not log.exists():
        return "it has no log"
    lines = log.read_text(errors="replace").splitlines()
    before = range(max(len(lines) - TAIL, 0))
    panicked = [lines[at] for at in before if any(" panicked at " in line for line in lines[max(at - 2, 0):at + 1])]
    return "\n".join(panicked + lines[-TAIL:])


def keep_log(test, logs):
    """Of the first try, before the second."""
    log = log_of(test, logs)
    if log.exists():
        log.rename(log.with_suffix(".first"))


def log_of(test, logs):
    return test.log(logs if test.suite.where == "here" else logs / test.suite.where)


def may_be_forgiven(test, logs):
    """Whether it may have another chance: nothing that it said is about safety."""
    log = log_of(test, logs)
    text = log.read_text(errors="replace") if log.exists() else ""
    return test.suite.cluster and "UNSAFE:" not in text


def summary(tests, flaky, logs, took):
    SECONDS.write_text(json.dumps(seconds() | {test.name: round(test.seconds, 1) for test in tests}, indent=0))
    print("\nslowest:")
    for test in sorted(tests, key=lambda test: -test.seconds)[:10]:
        print(f"{test.seconds:7.1f} s  {test.cpu:5.0f} s of CPU  {test.name}")
    for what, of in [("seconds of tests", lambda test: test.seconds), ("of CPU", lambda test: test.cpu)]:
        parts = collections.Counter()
        for test in tests:
            parts[test.suite.part] += of(test)
        print(f"{what}:", ", ".join(f"{part} {total:.0f}" for part, total in parts.items()))
    failed = [test for test in tests if test.verdict != "passed"]
    for test in failed:
        print(f"\n==== {test.verdict or 'not run'}: {test.name} ({log_of(test, logs)})\n{what_it_said(test, logs)}")
    for test, said in flaky:
        print(f"\n==== FLAKY, passed at the second try, mend it before anything else: {test.name}\n{said}")
    print(f"\n{len(tests)} tests, {len(failed)} failed, {len(flaky)} flaky, {took:.0f} s in all")
