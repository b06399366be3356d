"""GPU memory between sidecars that meet over TCP alone: staged in host memory at both ends, and nothing beside it changes.

Every test ends with the staging memory free again, on both sides.
"""

import random
import signal
import time
from pathlib import Path

import pytest

from certificates import Authority
from gpu_memories import GpuMemory, succeeded
from gpu_pieces import PieceCommands
from gpu_workloads import REAL, gpu_count, gpus, start_gpu_workload
from test_gpu_pieces import PiecedMemory
from test_peers_over_tcp import TCP, meet
from workloads import BOTH, MiB, metric, send, wait_for, workers_of

SMALL = ["--staging-bytes", str(8 * MiB)]  # the least: 4 MiB for each side, a request takes up to 512 KiB
MINE, THEIRS = 3 * MiB + 517, MiB + 1031  # where the buffers begin in their allocations
LENGTH = 37 * MiB + 4099
SIZE = 44 * MiB


class HostMemory(GpuMemory):
    """As GpuMemory, of the host."""

    def __init__(self, workload, name, size):
        self.workload, self.name, self.size = workload, name, size
        workload.do("allocate_host", name, size)
        self.renew()

    def renew(self):
        self.data = bytearray(random.randbytes(self.size))
        self.workload.do("fill_host", self.name, bytes(self.data))

    def found(self):
        return self.workload.do("look_host", self.name, self.size)

    def register(self, *specs):
        for spec in specs:
            self.workload.do("register_host", self.name, *spec)


def staged_slices(sidecar):
    return sum(slices_of(sidecar, side) for side in ("initiator", "target"))


def slices_of(sidecar, side):
    return metric(sidecar, f'gantry_staging_slices_in_use{{side="{side}"}}')


def staging_bytes_of(pid):
    """What a process has of the staging memory in its address space."""
    found = 0
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        if "gantry-staging" in line:
            start, end = line.split()[0].split("-")
            found += int(end, 16) - int(start, 16)
    return found


def staged_bytes(sidecar):
    """From its GPUs, and to them."""
    return [metric(sidecar, f'gantry_staging_bytes_total{{direction="{direction}"}}') for direction in ("from_buffers", "to_buffers")]


class Sides:
    """Workload "reader" of sidecar a with `into`, "owner" of b with `out`; buffers "kv" inside of them."""

    path = "tcp"  # what moves their bytes

    def __init__(self, start_sidecar, start_gpu_workload, flags=SMALL, into=GpuMemory, out=GpuMemory, size=SIZE, length=LENGTH,
                 own_flags=lambda name: []):
        self.a, self.b = (start_sidecar(name, workers=2, flags=TCP + flags + own_flags(name)) for name in "ab")
        self.peer = meet(self.a, self.b)
        assert self.peer["state"] == "up", self.peer
        self.start_gpu_workload = start_gpu_workload
        self.reader = start_gpu_workload(self.a, "reader", 0, PieceCommands)
        self.owner = start_gpu_workload(self.b, "owner", min(1, gpu_count() - 1), PieceCommands)
        self.into, self.out = into(self.reader, "into", size), out(self.owner, "out", size)
        self.length = length
        self.into.register(("kv", MINE, length))
        self.out.register(("kv", THEIRS, length))

    def ask(self, operation, ranges, wait_ms=20_000, **fields):
        body = {"workload": "reader", "op": operation, "local": ["kv"], "remote": ["b/owner/kv"],
                "ranges": [[0, mine, 0, theirs, length] for mine, theirs, length in ranges], **fields}
        return self.a.ask("POST", f"/v1/transfers?wait_ms={wait_ms}", body)

    def moved(self, operation, ranges):
        for mine, theirs, length in ranges:
            if operation == "read":
                self.into.receives(MINE + mine, self.out, THEIRS + theirs, length)
            else:
                self.out.receives(THEIRS + theirs, self.into, MINE + mine, length)
        self.into.check()
        self.out.check()

    def move(self, operation, ranges, **fields):
        view = succeeded(self.ask(operation, ranges, **fields), self.path)
        self.moved(operation, ranges)
        return view

    def nothing_is_staged(self, seconds=5):
        for sidecar in (self.a, self.b):
            wait_for(lambda: staged_slices(sidecar) == 0, seconds, lambda: f"{staged_slices(sidecar)} slices to come back")


def sides_of(kind, start_sidecar, start_gpu_workload):
    """For a fixture: what makes them, and looks afterwards that nothing stayed in the staging memory."""
    made = []

    def start(**options):
        made.append(kind(start_sidecar, start_gpu_workload, **options))
        return made[-1]

    yield start
    for sides in made:
        if sides.a.process.poll() is None and sides.b.process.poll() is None:
            sides.nothing_is_staged()


@pytest.fixture
def start_sides(gpus, start_sidecar, start_gpu_workload):
    yield from sides_of(Sides, start_sidecar, start_gpu_workload)


def odd_ranges(seed, count, length):
    """Of any length, at any place, none over another; in their own order on either side."""
    pick = random.Random(seed)
    cuts = sorted(pick.sample(range(1, length), 2 * count))
    lengths = [end - start for start, end in zip(cuts[::2], cuts[1::2])]
    mine, theirs = list(range(count)), list(range(count))
    pick.shuffle(mine)
    places = []
    for order in (mine, theirs):
        at, place = 0, [0] * count
        for index in order:
            place[index] = at
            at += lengths[index] + pick.choice((0, 0, 1, 63, 4097)) * (length - sum(lengths) > count * 4097)
        places.append(place)
    return [(places[0][index], places[1][index], lengths[index]) for index in range(count)]


KINDS = pytest.mark.parametrize("into,out", [(GpuMemory, GpuMemory), (GpuMemory, HostMemory), (HostMemory, GpuMemory)],
                                ids=["gpu-gpu", "gpu-host", "host-gpu"])


@pytest.mark.both_vendors
@pytest.mark.amd_runs(into=GpuMemory, out=GpuMemory)
@KINDS
def test_more_bytes_than_the_staging_has(start_sides, into, out):
    """One range of the whole buffers, and many odd ones; reads and writes. The path and the staging are told."""
    sides = start_sides(into=into, out=out)
    for operation in ("read", "write"):
        before = [staged_bytes(sidecar) for sidecar in (sides.a, sides.b)]
        sides.into.renew()
        view = sides.move(operation, [(0, 0, LENGTH)])
        assert view.get("staged_bytes", 0) == (LENGTH if into is GpuMemory else 0), view
        reasons = {path["path"]: path.get("reason", "") for path in view["paths"]}
        assert reasons["ipc"] and reasons["shm"] and not reasons[sides.path], reasons
        after = [staged_bytes(sidecar) for sidecar in (sides.a, sides.b)]
        from_a, to_a, from_b, to_b = (now - then for side in (0, 1) for now, then in zip(after[side], before[side]))
        here, there = (LENGTH * (kind is GpuMemory) for kind in (into, out))
        assert (from_a, to_a, from_b, to_b) == ((0, here, there, 0) if operation == "read" else (here, 0, 0, there))
        sides.move(operation, odd_ranges(operation, 60, LENGTH // 2))


@pytest.mark.both_vendors
def test_a_byte_at_every_kind_of_place(start_sides):
    """Of one byte up to the seams of requests and slices and beyond them, at odd offsets."""
    sides = start_sides(length=3 * MiB)
    edge = MiB // 2
    places = [(0, 0, 1), (1, 7, 63), (edge - 1, edge + 1, 2), (edge, 3, edge), (5, edge - 3, edge + 1),
              (MiB - 1, 0, 2 * edge + 3), (3 * MiB - 1, 17, 1), (0, 3 * MiB - 65, 65)]
    for operation in ("read", "write"):
        for place in places:
            sides.move(operation, [place])


@pytest.mark.both_vendors
def test_pieces_of_virtual_memory(start_sides):
    """Buffers over several pieces, with their seams at other places on either side, all in one request."""
    def pieces(sizes):
        return lambda workload, name, size: PiecedMemory(workload, name, sizes)
    sides = start_sides(into=pieces([2 * MiB, 4 * MiB, 2 * MiB]), out=pieces([4 * MiB, 2 * MiB, 2 * MiB]), length=4 * MiB + 321)
    for operation in ("read", "write"):
        sides.into.renew()
        sides.move(operation, [(0, 0, sides.length)])
        sides.move(operation, odd_ranges(operation, 40, sides.length // 2))


@pytest.mark.both_vendors
def test_host_and_gpu_memory_in_one_transfer(start_sides):
    """Some of a request's bytes are sent and received where they lie, the others through slices."""
    sides = start_sides(length=2 * MiB)
    spare, store = HostMemory(sides.reader, "spare", 3 * MiB), HostMemory(sides.owner, "store", 3 * MiB)
    spare.register(("spare", 5, 2 * MiB))
    store.register(("store", 77, 2 * MiB))
    ranges = []  # local index, offset, remote index, offset, length: each kind with each, in small turns
    for index in range(64):
        at = index * 32768
        ranges.append([index % 2, at, index // 2 % 2, at, 20000 + index])
    for operation in ("read", "write"):
        for memory in (sides.into, sides.out, spare, store):
            memory.renew()
        body = {"workload": "reader", "op": operation, "local": ["kv", "spare"], "remote": ["b/owner/kv", "b/owner/store"],
                "ranges": ranges}
        view = succeeded(sides.a.ask("POST", "/v1/transfers?wait_ms=20000", body), sides.path)
        assert view["staged_bytes"] > 0, view
        here, there = ((sides.into, MINE), (spare, 5)), ((sides.out, THEIRS), (store, 77))
        for local, local_at, remote, remote_at, length in ranges:
            (mine, mine_at), (theirs, theirs_at) = here[local], there[remote]
            if operation == "read":
                mine.receives(mine_at + local_at, theirs, theirs_at + remote_at, length)
            else:
                theirs.receives(theirs_at + remote_at, mine, mine_at + local_at, length)
        for memory in (sides.into, sides.out, spare, store):
            memory.check()


@pytest.mark.both_vendors
def test_many_transfers_with_little_staging(start_sides):
    """Reads and writes of both sidecars at once, each much larger than the staging: they share it, and all of them end."""
    sides = start_sides()
    assert meet(sides.b, sides.a)["state"] == "up"
    count, length = 8, 2 * MiB
    ids = []
    for index in range(count):
        at = index * length
        # Two by each: a reads the even quarters and writes the odd ones; b likewise, from the other side.
        for sidecar, workload, remote in ((sides.a, "reader", "b/owner/kv"), (sides.b, "owner", "a/reader/kv")):
            part = at + (length // 2 if sidecar is sides.b else 0)
            body = {"workload": workload, "op": "read" if index % 2 else "write", "local": ["kv"], "remote": [remote],
                    "ranges": [[0, part, 0, part, length // 2]], "deadline_ms": 25_000}
            status, view = sidecar.ask("POST", "/v1/transfers", body)
            assert status in (200, 202), view
            into_a = (sidecar is sides.a) == (index % 2 == 1)
            ids.append((sidecar, workload, view["id"], part, into_a))
    for sidecar, workload, transfer, part, into_a in ids:
        status, view = sidecar.ask("GET", f"/v1/transfers/{transfer}?workload={workload}&wait_ms=25000")
        assert view["state"] == "succeeded" and view["path"] == sides.path, view
        if into_a:
            sides.into.receives(MINE + part, sides.out, THEIRS + part, length // 2)
        else:
            sides.out.receives(THEIRS + part, sides.into, MINE + part, length // 2)
    sides.into.check()
    sides.out.check()


@pytest.mark.both_vendors
def test_the_staging_is_never_more_than_was_asked_for(start_sides):
    """Nor has either side more than its half, while both want more and nothing leaves."""
    sides = start_sides()
    for sidecar in (sides.a, sides.b):
        assert metric(sidecar, "gantry_staging_bytes") == 8 * MiB
        assert staging_bytes_of(sidecar.process.pid) == 8 * MiB
        # In a worker it may be there twice: pinned.
        assert all(staging_bytes_of(pid) in (8 * MiB, 16 * MiB) for pid in workers_of(sidecar))
    workers = workers_of(sides.b)
    send(workers, signal.SIGSTOP)
    try:
        status, view = sides.ask("read", [(0, 0, LENGTH)], wait_ms=100)
        assert status == 202, view
        wait_for(lambda: slices_of(sides.a, "initiator") == 8, 5, lambda: f"8 slices, not {slices_of(sides.a, 'initiator')}")
        for _ in range(20):
            assert slices_of(sides.a, "initiator") == 8 and slices_of(sides.b, "target") <= 8
            assert slices_of(sides.a, "target") == slices_of(sides.b, "initiator") == 0
            time.sleep(0.02)
        assert slices_of(sides.b, "target") > 0
    finally:
        send(workers, signal.SIGCONT)
    status, view = sides.a.ask("GET", f"/v1/transfers/{view['id']}?workload=reader&wait_ms=20000")
    assert view["state"] == "succeeded", view
    sides.moved("read", [(0, 0, LENGTH)])


@pytest.mark.both_vendors
def test_without_staging_the_reason_is_told(start_sides):
    sides = start_sides(flags=["--staging-bytes", "0"], length=MiB)
    for operation in ("read", "write"):
        status, problem = sides.ask(operation, [(0, 0, MiB)])
        assert (status, problem["code"]) == (409, "path_unavailable"), problem
        assert "--staging-bytes is 0" in problem["detail"], problem
    sides.into.check()
    sides.out.check()


@pytest.mark.both_vendors
def test_through_tls(start_sides, folder):
    """With the certificates of the peer API: the slices are read and filled by another kind of channel."""
    authority = Authority(folder, "authority")
    names = ["--peer-tls-names", "spiffe://test/*", "--data-tls"]
    sides = start_sides(own_flags=lambda name: authority.issue(name, f"URI:spiffe://test/{name}") + names)
    for operation in ("read", "write"):
        sides.into.renew()
        sides.move(operation, [(0, 0, LENGTH)])


@pytest.mark.both_vendors
@pytest.mark.skipif(REAL, reason="a real driver registers it")
def test_where_the_driver_does_not_register_the_staging(start_sides, monkeypatch):
    """The workers' own stages are used, and it is said."""
    monkeypatch.setenv("GANTRY_FAKE_GPU_FAIL", "cuMemHostRegister=801,hipHostRegister=801")
    sides = start_sides(length=3 * MiB)
    wait_for(lambda: "does not take the memory between GPUs and the network" in sides.a.log, 5, lambda: f"the words in {sides.a.log}")
    for operation in ("read", "write"):
        sides.move(operation, [(0, 0, sides.length)])
