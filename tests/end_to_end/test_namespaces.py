"""Sidecars and workloads as containers have them: each in namespaces of its own, where all of them are PID 1.

Of the PID namespace nothing is shared, so that no number of a process means anything to another; of the file system only
the run directory and the node directory would have to be.
"""

import ctypes
import os
import shutil
import signal
import stat
import subprocess
from pathlib import Path

import pytest

from gpu_workloads import REAL, GpuCommands, driver_library, gpu_count, gpus, vendor
from workloads import MiB, WorkloadProcess, connect, ended, metric, submit, wait_for

NAMESPACES = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--ipc", "--uts", "--net", "--cgroup"]
CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS = 0x20000, 0x2000000, 0x4000000
CLONE_NEWIPC, CLONE_NEWPID, CLONE_NEWNET = 0x8000000, 0x20000000, 0x40000000
MS_REC, MS_PRIVATE = 0x4000, 0x40000
PR_SET_PDEATHSIG = 1
NOBODY = 65534
CONTROL = {"nvidia": Path("/dev/nvidiactl"), "amd": Path("/dev/kfd")}[vendor()] if REAL else None  # of the vendor's driver
SIZE, OFFSET, LENGTH = 8 * MiB, 3 * MiB + 512, MiB


def why_no_namespaces():
    """Empty where they are to be had."""
    if os.geteuid() != 0:
        return "needs root, for namespaces"
    if not shutil.which(NAMESPACES[0]):
        return "needs unshare (util-linux)"
    tried = subprocess.run([*NAMESPACES, "true"], capture_output=True, text=True)
    return f"needs CAP_SYS_ADMIN, for namespaces: {tried.stderr.strip()}" if tried.returncode else ""


WHY_NOT = why_no_namespaces()
pytestmark = [pytest.mark.both_vendors, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "-")]


def into_namespaces(uid, network=None):
    """From here on the caller runs as PID 1 of its own; the process that it was waits for its end, and takes it along. `network`: the
    file of the network namespace that it shares."""
    libc = ctypes.CDLL(None, use_errno=True)
    flags = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID
    if network:
        with open(network, "rb") as file:
            assert libc.setns(file.fileno(), CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
    else:
        flags |= CLONE_NEWNET
    assert libc.unshare(flags) == 0, os.strerror(ctypes.get_errno())
    child = os.fork()
    if child:
        os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) and 1)
    assert os.getpid() == 1
    assert libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None) == 0
    assert libc.mount(b"proc", b"/proc", b"proc", 0, None) == 0, os.strerror(ctypes.get_errno())
    os.setgroups([])
    os.setuid(uid)
    assert libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL) == 0  # only now: a change of the user takes it back


class Isolated(GpuCommands):
    """A workload as PID 1 of namespaces of its own; its memory is of the host, or of one of its GPUs."""

    UID = 0
    NETWORK = None  # of its own

    def __init__(self, run_dir, name):
        # As long as it can be read: another user may not see where it lies. Nothing of it begins before it is initialised.
        ctypes.CDLL(driver_library())
        into_namespaces(self.UID, self.NETWORK)
        super().__init__(run_dir, name)

    def pid(self):
        return os.getpid()

    def prepare(self, gpu, name, data):
        """Allocates, fills and registers: a buffer with a margin at both sides."""
        self.gpu = gpu
        if gpu is None:
            self.allocate_host(name, SIZE)
            self.fill_host(name, data)
            self.register_host(name, name, OFFSET, LENGTH)
        else:
            self.use_gpu(gpu)
            self.allocate(name, SIZE)
            self.fill(name, 0, data)
            self.register_gpu(name, (name, OFFSET, LENGTH))

    def contents(self, name):
        return self.look_host(name, SIZE) if self.gpu is None else self.look(name, 0, SIZE)


class IsolatedNobody(Isolated):
    """Of another user than the sidecar's; in its group, as containers of a pod with an fsGroup are."""

    UID = NOBODY


def in_pod_of(sidecar, commands):
    """As containers of one pod: they share the network."""
    return type("InPod", (commands,), {"NETWORK": f"/proc/{sidecar.process.pid}/ns/net"})


class Containers:
    """Workload "reader" of a has the buffer "into", "owner" of b has "out"; all four are PID 1. `pods`: each with its sidecar."""

    def __init__(self, start_sidecar, commands, reader_gpu, owner_gpu, pods=False):
        self.a, self.b = (start_sidecar(name, workers=2, prefix=NAMESPACES) for name in "ab")
        connect(self.a, self.b)
        self.reader, self.owner = (WorkloadProcess(sidecar, name, in_pod_of(sidecar, commands) if pods else commands)
                                   for sidecar, name in ((self.a, "reader"), (self.b, "owner")))
        self.holders = {"into": (self.reader, reader_gpu), "out": (self.owner, owner_gpu)}
        self.data = {name: os.urandom(SIZE) for name in self.holders}

    def register(self):
        for name, (workload, gpu) in self.holders.items():
            workload.do("prepare", gpu, name, self.data[name])

    def move(self, operation):
        """Of what path took it, after every byte of both allocations was compared."""
        status, view = submit(self.a, "reader", operation, "into", "b/owner/out", LENGTH, 20_000)
        assert (status, view.get("state")) == (200, "succeeded"), view
        source, target = ("out", "into") if operation == "read" else ("into", "out")
        place = slice(OFFSET, OFFSET + LENGTH)
        self.data[target] = self.data[target][:OFFSET] + self.data[source][place] + self.data[target][place.stop:]
        for name, (workload, _) in self.holders.items():
            assert workload.do("contents", name) == self.data[name], name
        return view["path"]


@pytest.fixture
def containers(gpus, start_sidecar, folder):
    folder.chmod(0o750)  # of the group, as the run directories in it are
    if gpus:
        gpus.chmod(0o777)  # anybody may use the GPUs
    made = []

    def make(commands=Isolated, reader_gpu=None, owner_gpu=None, pods=False):
        made.append(Containers(start_sidecar, commands, reader_gpu, owner_gpu, pods))
        return made[-1]

    yield make
    for scene in made:
        for workload in (scene.reader, scene.owner):
            workload.kill()


def test_all_of_them_are_pid_1(containers):
    scene = containers()
    assert [sidecar.ask("GET", "/v1/status")[1]["pid"] for sidecar in (scene.a, scene.b)] == [1, 1]
    assert [workload.do("pid") for workload in (scene.reader, scene.owner)] == [1, 1]


@pytest.mark.parametrize("commands", [Isolated, IsolatedNobody], ids=["same-user", "another-user"])
def test_memory_of_the_host(containers, commands):
    scene = containers(commands)
    scene.register()
    assert [scene.move(operation) for operation in ("read", "write")] == ["shm", "shm"]


@pytest.mark.parametrize("commands", [Isolated, IsolatedNobody], ids=["same-user", "another-user"])
def test_memory_of_gpus(containers, commands):
    if REAL and commands is IsolatedNobody and CONTROL.exists() and not CONTROL.stat().st_mode & stat.S_IWOTH:
        pytest.skip(f"{CONTROL} is not for other users here")
    scene = containers(commands, 0, min(1, gpu_count() - 1))
    scene.register()
    assert [scene.move(operation) for operation in ("read", "write")] == ["ipc", "ipc"]


@pytest.mark.parametrize("gpu", [None, 0], ids=["host", "gpu"])
def test_the_death_of_an_owner_is_noticed(containers, gpu):
    scene = containers(Isolated, gpu, gpu)
    scene.register()
    scene.move("read")
    os.kill(scene.owner.pid, signal.SIGKILL)
    wait_for(lambda: ended(scene.owner.pid), 5, "the owner's end")
    for sidecar, left in ((scene.a, 2), (scene.b, 0)):
        wait_for(lambda: metric(sidecar, "gantry_mappings") == left, 5, f"{sidecar.name} to unmap what is gone")
    assert scene.b.ask("GET", "/v1/workloads/owner")[0] == 404
