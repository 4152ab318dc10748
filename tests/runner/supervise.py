"""A process with a limit, a log and a directory of its own. Nothing that it started outlives it: no process, no mount, no device."""
import ctypes, os, pathlib, select, shutil, signal, subprocess, sys, tempfile, time

PASSED, FAILED, NOT_OVER = 0, 1, 2
VERDICTS = {PASSED: "passed", FAILED: "failed", NOT_OVER: "not over"}
# What is killed and does not go hangs in the kernel; nobody waits longer for it.
DYING = 30
# prctl(2)
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
LIBC = ctypes.CDLL(None, use_errno=True)


def start(command, environment, log, limit, undo=lambda: None):
    """Forks a process that runs the command and ends with PASSED, FAILED or NOT_OVER; gives its ID. `undo` takes back what a command
    that failed may have done to others."""
    sys.stdout.flush()
    if child := os.fork():
        return child
    status = FAILED
    try:
        # Whoever started this may die: then it ends, too, and takes along what it started.
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1)
        signal.signal(signal.SIGTERM, told_to_end)
        # As nohup(1) may have it.
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
            signal.signal(signal.SIGHUP, told_to_end)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        # A test that reboots its VM goes on in the same log.
        with open(log, "ab", buffering=0) as output:
            status = supervise(command, environment, output, limit, undo)
    finally:
        os._exit(status)


def told_to_end(*_):
    """Once: a second signal would break the cleaning up off."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    sys.exit(FAILED)


def supervise(command, environment, log, limit, undo):
    directory = pathlib.Path(tempfile.mkdtemp(prefix="t-", dir="/tmp"))
    # The same in memory.
    in_memory = pathlib.Path("/dev/shm", directory.name)
    in_memory.mkdir()
    verdict = FAILED
    try:
        environment = {**environment, "TMPDIR": str(directory), "MEMORY_DIR": str(in_memory)}
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                                 env={**os.environ, **environment})
        if not ends_within(child.pid, limit):
            tell_what_runs(f"not over after {limit} s", environment.get("CLUSTER_DIR"), log)
            verdict = NOT_OVER
        else:
            status = child.wait()
            log.write(f"--- status {status} ---\n".encode())
            verdict = PASSED if status == 0 else FAILED
    except OSError as error:
        log.write(f"{command}: {error}\n".encode())
    except SystemExit:
        tell_what_runs("told to end", environment.get("CLUSTER_DIR"), log)
    finally:
        end_all(log)
        if verdict != PASSED:
            undo()
        for one in (directory, in_memory):
            clean_up(one, log)
        unmap_images(log)
    return verdict


def tell_what_runs(why, cluster, log):
    log.write(f"\n--- {why}; what it runs ---\n{picture()}{tails(cluster)}".encode())


def ends_within(process, seconds):
    handle = os.pidfd_open(process)
    try:
        return bool(select.select([handle], [], [], seconds)[0])
    finally:
        os.close(handle)


def stat(process):
    """Name, state and parent of a process: proc_pid_stat(5)."""
    text = pathlib.Path(f"/proc/{process}/stat").read_text()
    name, rest = text[text.index("(") + 1:text.rindex(")")], text[text.rindex(")") + 2:].split()
    return name, rest[0], int(rest[1])


def descendants(of):
    """The IDs of all processes that `of` and its descendants have started, parents first."""
    children = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                children.setdefault(stat(entry)[2], []).append(int(entry))
            except (OSError, ValueError):
                pass  # it has ended
    found = [of]
    for process in found:
        found += children.get(process, [])
    return found[1:]


def picture():
    """What runs below this process, and where in the kernel each of its threads waits."""
    lines = []
    for process in descendants(os.getpid()):
        root = pathlib.Path(f"/proc/{process}")
        try:
            name, state, parent = stat(process)
            words = (root / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()[:200]
            lines.append(f"{process} (of {parent}) {state} {words or name}")
            for thread in sorted((root / "task").iterdir()):
                calls = [line.split()[-1] for line in (thread / "stack").read_text().splitlines()[:4]]
                lines.append(f"    {(thread / 'comm').read_text().strip()}: {' < '.join(calls) or 'running'}")
        except OSError:
            lines.append(f"{process} has ended")
    return "\n".join(lines) + "\n"


def tails(cluster):
    if not cluster:
        return ""
    logs = sorted(pathlib.Path(cluster, "log").glob("*.log"))
    return "".join(f"--- the cluster's {log.name} ---\n{tail(log, 10)}\n" for log in logs)


def tail(log, lines):
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


def clean_up(directory, log):
    for point in reversed(mounts_below(directory)):
        subprocess.run(["umount", "--lazy", point], stdout=log, stderr=log)
    for device in loops_below(directory):
        subprocess.run(["losetup", "--detach", device], stdout=log, stderr=log)
    shutil.rmtree(directory, ignore_errors=True)


def end_all(log):
    end = time.monotonic() + DYING
    while left := descendants(os.getpid()):
        for process in left:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                pass
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        if time.monotonic() > end:
            log.write(f"--- killed, and still there ---\n{picture()}".encode())
            return
        time.sleep(0.01)


def mounts_below(directory):
    lines = pathlib.Path("/proc/self/mountinfo").read_text().splitlines()
    points = [line.split()[4].replace("\\040", " ") for line in lines]
    return [point for point in points if point.startswith(f"{directory}/")]


def loops_below(directory):
    for block in pathlib.Path("/sys/block").glob("loop*"):
        try:
            if (block / "loop/backing_file").read_text().startswith(f"{directory}/"):
                yield f"/dev/{block.name}"
        except OSError:
            pass  # nothing is attached


def unmap_images(log):
    """In the VM, where one test runs at a time: what the kernel still has mapped."""
    bus = pathlib.Path("/sys/bus/rbd")
    for device in (bus / "devices").glob("*"):
        try:
            (bus / "remove_single_major").write_text(f"{device.name} force")
            log.write(f"unmapped rbd{device.name}\n".encode())
        except OSError as error:
            log.write(f"rbd{device.name}: {error}\n".encode())
