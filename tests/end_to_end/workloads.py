"""Workloads as processes, memory that the tests can see too, and what /proc says about the sidecars."""

import ctypes
import fcntl
import itertools
import mmap
import multiprocessing
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from conftest import ROOT

LIB_DIR = Path(os.environ.get("GANTRY_LIB_DIR", ROOT / "build" / "release" / "lib"))
os.environ.setdefault("GANTRY_LIBRARY", str(LIB_DIR / "libgantry.so"))
sys.path.insert(0, str(ROOT / "client" / "python"))
import gantry  # after GANTRY_LIBRARY is set

MiB = 1 << 20
LARGE = 128 * MiB
UP_MS = 20_000  # until a peer is up that can be reached: milliseconds, and on a machine that does much else more
BOTH = ("remote_read", "remote_write")
TERMINAL = {"succeeded", "failed", "cancelled", "expired"}
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
_PR_SET_PDEATHSIG = 1
_forking = multiprocessing.get_context("fork")
_numbers = itertools.count(1)


def wait_for(condition, seconds, what="the condition"):
    """The first true value of `condition`, asked again and again; fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= deadline:
            raise AssertionError(f"{what() if callable(what) else what} did not come true within {seconds} s")
        time.sleep(0.005)


class Memory:
    """A sealed memfd under a name of its own, mapped here as well: it outlives the workload that registers it.

    With `huge` its pages are huge ones, which have to be there.
    """

    def __init__(self, size, filled=False, seals=SEALS, huge=False):
        self.name = f"e2e-{os.getpid()}-{next(_numbers)}-"
        self.size = size
        self.fd = os.memfd_create(self.name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING | (os.MFD_HUGETLB if huge else 0))
        os.ftruncate(self.fd, size)
        self.map = mmap.mmap(self.fd, size)
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, seals)
        if filled:
            self.fill()

    def fill(self):
        """Random bytes; no two megabytes are equal."""
        tile = os.urandom(min(MiB, self.size)) * 2
        for index, start in enumerate(range(0, self.size, MiB)):
            length = min(MiB, self.size - start)
            shift = index * 97 % (len(tile) - length + 1)
            self.map[start:start + length] = tile[shift:shift + length]

    def clear(self):
        for start in range(0, self.size, MiB):
            length = min(MiB, self.size - start)
            self.map[start:start + length] = bytes(length)

    def differs_from(self, other, length=None, skip=()):
        """Offsets of the megabytes that are not equal, those in `skip` left out."""
        length = self.size if length is None else length
        return [start for start in range(0, length, MiB) if start not in skip
                and self.map[start:min(start + MiB, length)] != other.map[start:min(start + MiB, length)]]

    def mapped_by(self, pids):
        """Those of these processes that have it mapped."""
        return [pid for pid in pids if f"/memfd:{self.name} " in _text(f"/proc/{pid}/maps")]

    def close(self):
        self.map.close()
        os.close(self.fd)


class WorkloadProcess:
    """A process that holds a lease through the Python client and does what it is told over a pipe.

    `commands`, called with the run directory and the name, makes the object whose methods are what it can be told.
    """

    def __init__(self, sidecar, name, commands=None):
        self.name = name
        self._pipe, theirs = _forking.Pipe()
        self._process = _forking.Process(target=_serve, daemon=True,
                                         args=(theirs, str(sidecar.run_dir), name, commands or _Commands))
        self._process.start()
        theirs.close()
        self.pid = self._process.pid
        self.result()

    def post(self, command, *arguments, **options):
        self._pipe.send((command, arguments, options))

    def result(self, seconds=30):
        """What the last command returned; raises gantry.Error when that was its outcome."""
        assert self._pipe.poll(seconds), f"workload {self.name} does not answer"
        error, value = self._pipe.recv()
        if error:
            problem = gantry.Error(*value[0])
            problem.peers = value[1]
            raise problem
        return value

    def do(self, command, *arguments, seconds=30, **options):
        self.post(command, *arguments, **options)
        return self.result(seconds)

    def register(self, memory, *specs):
        """Registers (name, offset, length[, access[, block_bytes]]) over one memory. The buffers' generations."""
        return self.do("register", f"/proc/{os.getpid()}/fd/{memory.fd}", specs)

    def register_read_only(self, memory, *specs):
        """Likewise, by a descriptor that nobody can write through."""
        return self.do("register", f"/proc/{os.getpid()}/fd/{memory.fd}", specs, os.O_RDONLY)

    def kill(self):
        if self._process.is_alive():
            os.kill(self.pid, signal.SIGKILL)
        self._process.join()


class _Commands:
    """The workload's side of the pipe."""

    def __init__(self, run_dir, name):
        self.client = gantry.Client(run_dir, name)
        self.arenas, self.buffers, self.transfers = {}, {}, {}

    def register(self, path, specs, mode=os.O_RDWR):
        if (path, mode) not in self.arenas:
            fd = os.open(path, mode | os.O_CLOEXEC)
            self.arenas[path, mode] = self.client.adopt(fd)
            os.close(fd)
        made = self.client.register_many([self._spec(self.arenas[path, mode], *spec) for spec in specs])
        self.buffers |= {buffer.name: buffer for buffer in made}
        return [buffer.generation for buffer in made]

    def _spec(self, arena, name, offset, length, access=BOTH, block_bytes=0):
        layout = gantry.Layout(block_bytes) if block_bytes else None
        return gantry.BufferSpec(name, arena.view(offset, length), access, layout)

    def unregister(self, name, drain=1.0):
        peers = self.buffers[name].unregister(drain)
        del self.buffers[name]
        return peers

    def move(self, operation, local, remote, wait=None, **options):
        """Submits, and waits for the end unless `wait` is 0. (state, error code)."""
        submit = self.client.read if operation == "read" else self.client.write
        transfer = submit(self.buffers[local], remote, **options)
        self.transfers[transfer.id] = transfer
        if wait == 0:
            return transfer.id
        try:
            return transfer.wait(wait).state, None
        except gantry.Error as error:
            return transfer.details()["state"], error.code

    def suspend(self, drain=1.0):
        self.client.suspend(drain=drain)

    def resume(self):
        self.client.resume()

    def request(self, *arguments):
        return self.client.request(*arguments)

    def check(self):
        self.client.check()


def _serve(pipe, run_dir, name, make_commands):
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        commands = make_commands(run_dir, name)
        pipe.send((False, None))
    except gantry.Error as error:
        pipe.send((True, (error.args, error.peers)))
        return
    while True:
        try:
            command, arguments, options = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send((False, getattr(commands, command)(*arguments, **options)))
        except gantry.Error as error:
            pipe.send((True, (error.args, error.peers)))


# What is seen from outside.

def _text(path):
    try:
        return Path(path).read_text()
    except (OSError, ProcessLookupError):
        return ""


def fd_count(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def map_counts(pid):
    """(mappings, those of them that are of a file or of shared memory)"""
    inodes = [line.split()[4] for line in _text(f"/proc/{pid}/maps").splitlines()]
    return len(inodes), sum(inode != "0" for inode in inodes)


def rss_bytes(pid):
    return int(_text(f"/proc/{pid}/statm").split()[1]) * mmap.PAGESIZE - shared_bytes(pid)


def shared_bytes(pid):
    return int(_text(f"/proc/{pid}/statm").split()[2]) * mmap.PAGESIZE


def workers_of(sidecar):
    """Pids of the copy workers that are ready."""
    return [worker["pid"] for worker in sidecar.ask("GET", "/v1/status")[1]["workers"] if worker["state"] == "ready"]


def totals_of(sidecar):
    return sidecar.ask("GET", "/v1/status")[1]["totals"]


def metric(sidecar, series):
    for line in sidecar.ask("GET", "/metrics")[1].splitlines():
        if line.startswith(series + " "):
            return float(line.split()[-1])
    raise AssertionError(f"{series} is not exported")


def send(pids, number):
    """A stop is in force when this returns: until a thread took the signal, the others would go on."""
    for pid in pids:
        os.kill(pid, number)
    for pid in pids if number == signal.SIGSTOP else []:
        wait_for(lambda: all(state in "TZ" for state in _states(pid)), 10, f"process {pid} to stand still")


def _states(pid):
    tasks = Path(f"/proc/{pid}/task")
    tids = os.listdir(tasks) if tasks.exists() else []
    return [_text(tasks / tid / "stat").rpartition(")")[2].split()[0] for tid in tids if _text(tasks / tid / "stat")]


def ended(pid):
    return _text(f"/proc/{pid}/stat").rpartition(")")[2].split()[:1] in ([], ["Z"])


def resume(pids):
    """Those that stand still go on; some of them may have been ended meanwhile."""
    for pid in pids:
        if not ended(pid):
            send([pid], signal.SIGCONT)


def connect(sidecar, other):
    status, peer = sidecar.ask("PUT", f"/v1/peers/{other.name}?wait_ms={UP_MS}", {"address": other.peer_address})
    assert status in (200, 201) and peer["state"] == "up", peer
    return peer


def submit(sidecar, workload, operation, local, remote, length, wait_ms=0, **fields):
    """POST /v1/transfers of the first `length` bytes, a range for each megabyte: failed_items are megabytes."""
    ranges = [[0, start, 0, start, min(MiB, length - start)] for start in range(0, length, MiB)]
    body = {"workload": workload, "op": operation, "local": [local], "remote": [remote], "ranges": ranges, **fields}
    return sidecar.ask("POST", f"/v1/transfers?wait_ms={wait_ms}", body)


def view_of(sidecar, workload, transfer, wait_ms=0):
    status, view = sidecar.ask("GET", f"/v1/transfers/{transfer}?workload={workload}&wait_ms={wait_ms}")
    assert status == 200 or status == 202, view
    return view


def hold_in_the_middle(sidecar, workload, operation, local, remote, length, **fields):
    """A transfer of which some bytes have moved and no more will: every copy worker is stopped. (id, workers)."""
    workers = workers_of(sidecar)
    for _ in range(10):
        status, view = submit(sidecar, workload, operation, local, remote, length, **fields)
        assert status == 202 or view.get("state") == "succeeded", view
        while view["bytes_moved"] == 0:
            view = view_of(sidecar, workload, view["id"])
        send(workers, signal.SIGSTOP)
        # What a worker had done before it stood still is counted by one look and seen by the next.
        view, before = view_of(sidecar, workload, view["id"]), None
        while view["bytes_moved"] != before:
            before, view = view["bytes_moved"], view_of(sidecar, workload, view["id"])
        if view["state"] == "running" and view["bytes_moved"] < length:
            return view["id"], workers
        send(workers, signal.SIGCONT)
    raise AssertionError("transfers end before a worker can be stopped: make them larger")


# Fixtures; import them where they are used.

@pytest.fixture
def new_memory():
    made = []

    def make(size, **options):
        made.append(Memory(size, **options))
        return made[-1]

    yield make
    for memory in made:
        memory.close()


@pytest.fixture
def start_workload():
    started = []

    def start(sidecar, name):
        started.append(WorkloadProcess(sidecar, name))
        return started[-1]

    yield start
    for workload in started:
        workload.kill()


class Scene:
    """Sidecars a and b. Workload "reader" of a holds `target`, "owner" of b holds `source`; both buffers are "kv".

    Beside them "other" of a reads 1 MiB from "neighbour" of b: what others do must go on.
    """

    def __init__(self, start_sidecar, start_workload, new_memory, size, owner_flags=(), **options):
        self.size = size
        self.start_workload, self.new_memory = start_workload, new_memory
        self.a, self.b = start_sidecar("a", **options), start_sidecar("b", **({"flags": owner_flags} if owner_flags else {}))
        self.target, self.source = new_memory(size), new_memory(size, filled=True)
        self.others, self.neighbours = new_memory(MiB), new_memory(MiB, filled=True)
        self.other = start_workload(self.a, "other")
        self.other.register(self.others, ("small", 0, MiB))
        self.neighbour = start_workload(self.b, "neighbour")
        self.neighbour.register(self.neighbours, ("small", 0, MiB))
        connect(self.a, self.b)
        self.others_still_work()
        self.start_reader()
        self.start_owner()

    def start_reader(self):
        self.reader = self.start_workload(self.a, "reader")
        self.reader.register(self.target, ("kv", 0, self.size))

    def start_owner(self):
        self.owner = self.start_workload(self.b, "owner")
        return self.owner.register(self.source, ("kv", 0, self.size))

    def read(self, wait_ms=20_000, **fields):
        return submit(self.a, "reader", "read", "kv", "b/owner/kv", self.size, wait_ms, **fields)

    def hold(self, **fields):
        return hold_in_the_middle(self.a, "reader", "read", "kv", "b/owner/kv", self.size, **fields)

    def others_still_work(self):
        self.neighbours.fill()
        assert self.other.do("move", "read", "small", "b/neighbour/small", ranges=[(0, 0, 0, 0, MiB)],
                             wait=5) == ("succeeded", None)
        assert not self.others.differs_from(self.neighbours)

    def everything_works(self):
        self.target.clear()
        status, view = self.read()
        assert (status, view["state"]) == (200, "succeeded"), view
        assert not self.target.differs_from(self.source)
        self.others_still_work()


@pytest.fixture
def scene(start_sidecar, start_workload, new_memory):
    """A Scene with one copy worker, which takes some 10 ms for its buffers."""
    return Scene(start_sidecar, start_workload, new_memory, LARGE)
