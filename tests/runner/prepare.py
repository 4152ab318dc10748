"""What stands before the tests: the text is looked at, what the network has is fetched, everything is built."""
import ast, os, pathlib, re, shutil, subprocess, time

from . import supervise
from .suites import PROGRAMS, TESTS

CHECKOUT = TESTS.parent
CARGO = str(CHECKOUT / "packaging/cargo")
PROGRAM = "x86_64-unknown-linux-musl/release/cephlet"
# What packages are made of, and where packaging/cargo puts what it builds for tests.
SHIPPED, FOR_TESTS = CHECKOUT / "target" / PROGRAM, CHECKOUT / "target/development" / PROGRAM
# The tools that the tests use, and the Debian package of each.
PACKAGES = {
    "mkfs.ext4": "e2fsprogs", "mkfs.xfs": "xfsprogs", "mkfs.btrfs": "btrfs-progs", "losetup": "mount", "findmnt": "util-linux",
    "systemd-analyze": "systemd", "cmake": "cmake", "make": "make", "cc": "gcc", "readelf": "binutils", "setpriv": "util-linux",
    "ceph-mon": "ceph-mon", "ceph-mgr": "ceph-mgr", "ceph-osd": "ceph-osd", "ceph-mds": "ceph-mds", "ceph": "ceph-common", "rbd": "ceph-common",
    "rbd-nbd": "rbd-nbd", "ceph-fuse": "ceph-fuse", "rbd-mirror": "rbd-mirror", "ip": "iproute2", "qemu-system-x86_64": "qemu-system-x86", "busybox": "busybox-static", "mandoc": "mandoc", "depmod": "kmod",
    "rpm": "rpm", "rpmbuild": "rpm", "udevadm": "udev",
}
# Packages of tests that run only with --full or by name. `tests/run NAME` installs all of them.
RARE_PACKAGES = {"fish": "fish", "lintian": "lintian", "promtool": "prometheus", "zsh": "zsh", "mmdebstrap": "mmdebstrap",
                 "podman": "podman", "crun": "crun"}
CRASH_POINTS = ["--features", "crash-points"]


class Stop(Exception):
    """Why nothing can be tested."""


class Steps:
    """One after the other; the first that fails ends the run."""

    def __init__(self, logs, end):
        self.logs, self.end = logs, end
        self.took = []

    def step(self, name, limit, *command, **environment):
        log = self.logs / f"{name.replace(' ', '-')}.log"
        begun = time.monotonic()
        limit = max(min(limit, self.end - begun), 1)
        _, status = os.waitpid(supervise.start([str(word) for word in command], environment, log, limit), 0)
        self.took.append((name, time.monotonic() - begun))
        print(f"{self.took[-1][1]:5.0f} s  {name}", flush=True)
        if status != 0:
            raise Stop(f"{supervise.tail(log, 200)}\ntests/run: failed: {name}; {log} has it whole")
        return log

    def from_the_network(self, name, limit, *command):
        """A network fails more often than a test may."""
        for attempt in (1, 2):
            try:
                return self.step(name, limit, *command)
            except Stop as stop:
                print(f"{stop}\ntests/run: once more, as this needs the network", flush=True)
                time.sleep(5 * attempt)
        return self.step(name, limit, *command)

    def all(self):
        """As for a change that is to go in."""
        look_at_the_text()
        self.step("format", 300, CARGO, "fmt", "--check")
        self.fetch(RARE_PACKAGES if os.environ["TESTS"] == "full" else {})
        self.step("clippy", 1800, CARGO, "clippy", "--all-targets", *CRASH_POINTS, "--", "-D", "warnings")
        # What is not run by default is looked at only when it is named.
        self.step("clippy of named tests", 900, CARGO, "clippy", "--test", "*", *CRASH_POINTS, "--", "-D", "warnings")
        self.step("documentation", 900, CARGO, "doc", "--no-deps", "--document-private-items", RUSTDOCFLAGS="-D warnings")
        self.build_program()
        self.build_tests()
        self.step("walls", 300, PROGRAMS / "walls")

    def for_some(self):
        """For single tests: quicker, as the program is not optimized as a whole."""
        self.fetch(RARE_PACKAGES)
        self.build_tests()
        put(PROGRAMS / "cephlet-crashing", PROGRAMS / "cephlet")

    def fetch(self, rare):
        if packages := sorted({package for tool, package in {**PACKAGES, **rare}.items() if not shutil.which(tool)}):
            os.environ["DEBIAN_FRONTEND"] = "noninteractive"
            self.from_the_network("package lists", 600, "apt-get", "update", "-qq")
            install = ["apt-get", "install", "-qq", "-y", "--no-install-recommends"]
            self.from_the_network("packages", 1200, *install, *packages)
        self.from_the_network("toolchain", 900, CHECKOUT / "packaging/toolchain")
        self.from_the_network("crates", 600, CARGO, "fetch", "--quiet", "--locked")
        self.from_the_network("csi-sanity", 900, TESTS / "sanity", "install")
        self.from_the_network("the VM's kernel", 900, TESTS / "vm/run", "--fetch")

    def build_program(self):
        """The program as it ships. It must not be one that kills itself when it is told to."""
        self.step("the program", 2400, CHECKOUT / "packaging/build")
        refuse_crash_points()
        put(SHIPPED, PROGRAMS / "cephlet")

    def build_tests(self):
        """All tests, and the program with crash points, by one build: which program a test runs, CEPHLET_BINARY says."""
        targets = [word for name in ["ceph", "crash", "host", "walls"] for word in ("--test", name)]
        log = self.step("the tests", 1800, CARGO, "test", "--no-run", *CRASH_POINTS, "--lib", "--bins", *targets)
        built = re.findall(r"^ *Executable (unittests )?(\S+) \((.+)\)$", log.read_text(), re.MULTILINE)
        if len(built) != 6:
            raise Stop(f"tests/run: {len(built)} programs were built: {built}")
        for unit, source, path in built:
            name = pathlib.Path(source.removesuffix("/main.rs") if not unit else source).stem
            put(CHECKOUT / path, PROGRAMS / (f"unit-{name}" if unit else name))
        put(FOR_TESTS, PROGRAMS / "cephlet-crashing")
        refuse_crash_points()

    def make_images(self):
        """What the tests of containers run; Debian's packages come from the network."""
        self.from_the_network("images", 900, CHECKOUT / "packaging/oci", "node", "controller", "--program", PROGRAMS / "cephlet",
                              "--version", "0.0.1", "--into", PROGRAMS / "images")


def refuse_crash_points():
    """Packages have what packaging/build made, whatever was built for tests since."""
    if SHIPPED.exists() and b"CEPHLET_CRASH_AT" in SHIPPED.read_bytes():
        raise Stop(f"tests/run: {SHIPPED} has crash points, so packaging/build has not made it: remove it")


def put(program, at):
    """Not into the file that may be running."""
    at.unlink(missing_ok=True)
    shutil.copy2(program, at)


def look_at_the_text():
    """That the scripts can be read at all."""
    tracked = subprocess.run(["git", "ls-files"], cwd=CHECKOUT, check=True, stdout=subprocess.PIPE, text=True).stdout
    for path in map(CHECKOUT.joinpath, tracked.splitlines()):
        first = path.open("rb").readline() if path.is_file() else b""
        if first.startswith(b"#!/bin/bash"):
            said = subprocess.run(["bash", "-n", path], stderr=subprocess.PIPE, text=True)
            if said.returncode != 0:
                raise Stop(said.stderr)
        elif b"python3" in first or path.suffix == ".py":
            try:
                ast.parse(path.read_text(), str(path))
            except SyntaxError as error:
                raise Stop(f"{path}: {error}") from None
