"""Which tests there are, and what each needs."""
import dataclasses, os, pathlib, subprocess

TESTS = pathlib.Path(__file__).resolve().parent.parent
PROGRAMS = TESTS.parent / "target/tests"


@dataclasses.dataclass(frozen=True)
class Suite:
    """Tests of a kind. A name of theirs begins with one of `modules`, and with none of `but`."""
    part: str
    program: str
    # Of 12 places that all tests on this machine share: many wait for most of their time, some load it.
    places: int
    # In seconds: what one of them takes, so that what is long begins first, and several times what the slowest of them needs on the
    # slowest machine that was seen.
    usual: int = 2
    limit: int = 600
    modules: tuple = ("",)
    but: tuple = ()
    # This machine, a VM with the drivers for Ceph, or such a VM without any package of Ceph, or with systemd, or
    # with systemd and a disk that outlives reboots, or with containers.
    where: str = "here"
    cluster: bool = False
    crash_points: bool = False

    def has(self, name):
        return name.startswith(self.modules) and not (self.but and name.startswith(self.but))


SUITES = [
    Suite("local", "host", 2),
    Suite("local", "crash", 3, 10, but=("rbd_", "cephfs_"), crash_points=True),
    Suite("rbd", "ceph", 2, 8, 1200, but=("node::", "bare::", "systemd::", "containers::", "faults::", "controllers::"), cluster=True),
    Suite("rbd", "ceph", 6, 30, 1800, modules=("controllers::",), cluster=True),
    Suite("faults", "ceph", 3, 60, 2400, modules=("faults::",), cluster=True),
    Suite("crashes", "crash", 2, 120, 2400, modules=("rbd_controller::", "cephfs_controller::"), cluster=True, crash_points=True),
    Suite("vm", "ceph", 0, 60, 1200, modules=("node::",), where="vm", cluster=True),
    Suite("crashes", "crash", 0, 60, 2400, modules=("rbd_node::",), where="vm", cluster=True, crash_points=True),
    Suite("bare", "ceph", 0, 60, 1200, modules=("bare::",), where="bare", cluster=True),
    Suite("systemd", "ceph", 0, 60, 1200, modules=("systemd::",), but=("systemd::boots::",), where="systemd", cluster=True),
    Suite("systemd", "ceph", 0, 300, 2400, modules=("systemd::boots::",), where="boots", cluster=True),
    Suite("containers", "ceph", 0, 60, 1200, modules=("containers::",), where="containers", cluster=True),
]
# One process for all unit tests of a program; fuzzing; csi-sanity.
UNITS = Suite("local", "unit", 3, 30)
FUZZ = Suite("fuzz", "unit-lib", 3, 70)
# They are marked because they need a cluster, which `cargo test` does not start.
CONTRACT = Suite("rbd", "unit-lib", 3, 30, modules=("backend::rbd::tool::contract::cluster::",), cluster=True)
SANITY = Suite("sanity", "sanity", 3, 30, 3000)
SANITY_RBD = Suite("sanity", "sanity", 3, 30, 3000, cluster=True)
SANITY_VM = Suite("sanity", "sanity", 0, 60, 3000, where="vm", cluster=True)
# Of all that runs on this machine at once.
PLACES = 12
PARTS = list(dict.fromkeys(suite.part for suite in [*SUITES, FUZZ, SANITY]))


@dataclasses.dataclass
class Test:
    """A process of the tests, and what became of it."""
    suite: Suite
    name: str
    command: list
    environment: dict = dataclasses.field(default_factory=dict)
    # Random, long or rare: not before each change.
    full_only: bool = False
    # Of a VM that is run as a test: what kind of tests it is for.
    where: str = ""
    verdict: str = ""
    seconds: float = 0.0
    # Of the processors, by all that it ran.
    cpu: float = 0.0

    def again(self, number):
        """The same once more."""
        return dataclasses.replace(self, name=f"{self.name} #{number + 1}")

    def log(self, logs):
        return logs / (self.name.replace("::", ".").replace(" ", "-") + ".log")


def tests():
    """All tests of the programs that were built."""
    found = []
    for name in ["unit-lib", "unit-main"]:
        found.append(Test(UNITS, name, [str(PROGRAMS / name)]))
    for name, ignored in listing("unit-lib"):
        command = [str(PROGRAMS / "unit-lib"), "--exact", name, "--include-ignored", "--nocapture"]
        if name.startswith("fuzz::") and ignored:
            found.append(Test(FUZZ, f"unit-lib {name}", command, full_only=True))
        if CONTRACT.has(name):
            found.append(Test(CONTRACT, f"unit-lib {name}", command))
    listed = {program: listing(program) for program in {suite.program for suite in SUITES}}
    for suite in SUITES:
        program = str(PROGRAMS / suite.program)
        binary = PROGRAMS / ("cephlet-crashing" if suite.crash_points else "cephlet")
        for name, ignored in listed[suite.program]:
            if suite.has(name):
                command = [program, "--exact", name, "--include-ignored", "--nocapture"]
                environment = {"CEPHLET_BINARY": str(binary)}
                found.append(Test(suite, f"{suite.program} {name}", command, environment, ignored))
    return found + conformance()


def listing(program):
    """The program's tests, and whether each is marked as random, long or rare."""
    def ask(*options):
        command = [PROGRAMS / program, "--list", "--format", "terse", *options]
        lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
        return [line.removesuffix(": test") for line in lines if line.endswith(": test")]
    ignored = set(ask("--ignored"))
    return [(name, name in ignored) for name in ask()]


def conformance():
    """csi-sanity."""
    def one(suite, *words, full_only=False, **environment):
        environment = {"CEPHLET_BINARY": str(PROGRAMS / "cephlet"), **environment}
        return Test(suite, " ".join(["sanity", *words]), [str(TESTS / "sanity"), *words], environment, full_only)
    return [
        one(SANITY, "local"),
        one(SANITY_RBD, "rbd-controller"),
        one(SANITY_RBD, "rbd-controller", "topology", full_only=True),
        one(SANITY_RBD, "rbd-controller", "tools", full_only=True),
        # On a cluster of its own: csi-sanity counts the volumes in the list, which has those of all groups.
        one(SANITY, "cephfs-controller"),
        one(SANITY_VM, "cephfs", full_only=True),
        one(SANITY_VM, "cephfs", "fuse", full_only=True),
        one(SANITY_VM, "rbd", full_only=True),
        one(SANITY_VM, "rbd", "rbd-nbd", full_only=True),
        # A mounted ext4 grows only with CAP_SYS_RESOURCE, which root has in the VM.
        one(SANITY_VM, "local", full_only=True, CEPHLET_SANITY_FS="ext4"),
    ]
