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
            directory = tempfile.mkdtemp(prefix="cephlet-ceph-", dir="/tmp")
            subprocess.run([SCRIPT, "up", directory, "--owner", str(os.getpid())], check=True, timeout=900)
            self.directory = pathlib.Path(directory)
        return self.directory

    def is_well(self):
        """Whether it answers. What a test has stopped, goes on first."""
        for file in (self.directory / "run").glob("*.pid"):
            try:
                os.kill(int(file.read_text()), signal.SIGCONT)
            except (OSError, ValueError):
                return False
        environment = {**os.environ, "CEPH_CONF": str(self.directory / "admin.conf")}
        command = ["timeout", "--signal=KILL", "60", "rados", "--pool", "rbd", "ls", "--all"]
        return subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0

    def end(self):
        if self.directory:
            subprocess.run([SCRIPT, "down", str(self.directory)], timeout=300)
            shutil.rmtree(self.directory, ignore_errors=True)
            self.directory = None
