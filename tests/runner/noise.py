"""What a slow machine is like: four busy loops, and every minute everything stands still for three seconds."""
import os, signal, time

from . import supervise

LOOPS, EVERY, STILL = 4, 60, 3


def start():
    """Forks it; it ends with the runner."""
    runner = os.getpid()
    if child := os.fork():
        return child
    supervise.LIBC.prctl(supervise.PR_SET_PDEATHSIG, signal.SIGKILL)
    # What stands still must go on before the runner can end it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for _ in range(LOOPS):
        if os.fork() == 0:
            supervise.LIBC.prctl(supervise.PR_SET_PDEATHSIG, signal.SIGKILL)
            os.setsid()  # Else they count as one: CPUs are shared between sessions (sched(7), autogroup).
            while True:
                pass
    while True:
        time.sleep(EVERY)
        stand_still(runner)


def stand_still(runner):
    # What a test has stopped stays so. What is started meanwhile is missed: its parent is not.
    spared = {os.getpid(), *supervise.descendants(os.getpid())}
    stopped = []
    for process in supervise.descendants(runner):
        try:
            if process not in spared and supervise.stat(process)[1] not in "TtZ":
                os.kill(process, signal.SIGSTOP)
                stopped.append(process)
        except (OSError, ValueError):
            pass  # it has ended
    time.sleep(STILL)
    for process in stopped:
        try:
            os.kill(process, signal.SIGCONT)
        except ProcessLookupError:
            pass
