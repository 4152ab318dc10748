"""The Ceph cluster that tests share. One that died is replaced."""
import os, pathlib, shutil, signal, subprocess, tempfile

from .suites import TESTS

SCRIPT = str(TESTS / "cluster")


class Shared:
    def __init__(self):
        self.directory = None

    def get(self):
        """Its directory; a cluster is started when there is none."""
        if not self.directory:
            self.directory = pathlib.Path(tempfile.mkdtemp(prefix="cephlet-ceph-", dir="/tmp"))
            try:
                subprocess.run([SCRIPT, "up", str(self.directory), "--owner", str(os.getpid())], check=True, timeout=900)
            except subprocess.SubprocessError as error:
                raise RuntimeError(f"there is no cluster: {error}") from None
        return self.directory

    def is_well(self):
        """Whether it answers, if there is one. What a test has stopped, goes on first."""
        if not self.directory:
            return True
        for daemon in ("mon", "osd", "mgr", "mds"):
            try:
                # A dead one has no file.
                os.kill(int((self.directory / "run" / f"{daemon}.pid").read_text()), signal.SIGCONT)
            except (OSError, ValueError):
                return False
        environment = {**os.environ, "CEPH_CONF": str(self.directory / "admin.conf")}
        command = ["timeout", "--signal=KILL", "60", "rados", "--pool", "rbd", "ls", "--all"]
        return subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0

    def end(self):
        if self.directory:
            try:
                subprocess.run([SCRIPT, "down", str(self.directory)], timeout=300)
            except subprocess.TimeoutExpired as error:
                print(f"tests/run: a cluster does not end: {error}", flush=True)
            shutil.rmtree(self.directory, ignore_errors=True)
            self.directory = None
