"""Sizes and offsets that no access of a kernel fits, on both sides, and many small pieces: by kernels and by copy engines."""

import itertools
import random

import pytest

from gpu_memories import GpuMemory, succeeded
from gpu_workloads import gpu_count, gpus, start_gpu_workload
from workloads import BOTH, MiB, connect, metric

pytestmark = pytest.mark.both_vendors

LENGTHS = (1, 3, 15, 17, 4095, 65537)
SHIFTS = (0, 1, 2, 3, 4, 7, 8, 9, 13, 15)  # of a place to the next multiple of 16, on either side
SIZE = 12 * MiB
PIECE, PIECES = 512, 100_000


class Sides:
    """Workload "reader" of sidecar a with `into`, "owner" of b with `out`, which copy as the flag says."""

    def __init__(self, start_sidecar, start_gpu_workload, copies, size):
        self.copies = copies
        self.a, self.b = (start_sidecar(name, workers=2, flags=["--gpu-copies", copies]) for name in "ab")
        connect(self.a, self.b)
        self.into = GpuMemory(start_gpu_workload(self.a, "reader", 0), "into", size)
        self.out = GpuMemory(start_gpu_workload(self.b, "owner", min(1, gpu_count() - 1)), "out", size)

    def ask(self, operation, **items):
        body = {"workload": "reader", "op": operation, "local": ["kv"], "remote": ["b/owner/kv"], **items}
        return self.a.ask("POST", "/v1/transfers?wait_ms=30000", body)

    def move(self, operation, places, **items):
        """`places`: (mine, theirs, length) in the allocations, that `items` name."""
        view = succeeded(self.ask(operation, **items))
        assert view["bytes_moved"] == sum(length for _, _, length in places), view
        assert view["gpu_copies"]["plan"] == self.copies, view
        for mine, theirs, length in places:
            if operation == "read":
                self.into.receives(mine, self.out, theirs, length)
            else:
                self.out.receives(theirs, self.into, mine, length)
        self.into.check()
        self.out.check()


@pytest.fixture(params=["kernel", "engines"])
def start_sides(request, gpus, start_sidecar, start_gpu_workload):
    return lambda size: Sides(start_sidecar, start_gpu_workload, request.param, size)


def places_of(lengths, gap):
    """Each length at each pair of shifts, side by side in the memories, in an order that is not theirs: (mine, theirs, length)."""
    places, at = [], gap
    for length, mine, theirs in itertools.product(lengths, SHIFTS, SHIFTS):
        places.append((at + mine, at + theirs, length))
        at += -(-(length + 16) // 16) * 16 + gap
    random.Random(31).shuffle(places)
    return places, at


@pytest.mark.parametrize("operation", ["read", "write"])
def test_lengths_and_offsets_that_are_odd_on_both_sides(start_sides, operation):
    """The buffers themselves begin at odd bytes of their allocations, too, and at different ones."""
    sides = start_sides(SIZE)
    places, end = places_of(LENGTHS, 16)
    begin = {"mine": 5, "theirs": 77}
    assert end + max(begin.values()) < SIZE
    sides.into.register(("kv", begin["mine"], end))
    sides.out.register(("kv", begin["theirs"], end))
    sides.move(operation, [(begin["mine"] + mine, begin["theirs"] + theirs, length) for mine, theirs, length in places],
               ranges=[[0, mine, 0, theirs, length] for mine, theirs, length in places])
    assert metric(sides.a, f'gantry_ipc_jobs_total{{plan="{sides.copies}",reason="asked"}}') >= 1


def test_a_range_alone_ends_where_its_allocation_does(start_sides):
    """The last bytes of both: whoever takes a whole word or tile leaves the memory."""
    sides = start_sides(2 * MiB)
    for memory in (sides.into, sides.out):
        memory.register(("kv", 3, memory.size - 3))
    for length, (mine, theirs) in itertools.product(LENGTHS, ((0, 0), (1, 0), (0, 9))):
        at, start = sides.into.size - length - mine, sides.out.size - length - theirs
        for operation in ("read", "write"):
            sides.out.renew()
            sides.move(operation, [(at, start, length)], ranges=[[0, at - 3, 0, start - 3, length]])


def test_destinations_that_overlap_are_refused(start_sides):
    """By one byte, and where the source is the destination: the later item is named, and nothing moves."""
    sides = start_sides(2 * MiB)
    sides.into.register(("kv", 1, MiB), ("beside", MiB + 1 - 16, MiB // 2))  # the last 16 bytes are both's
    sides.out.register(("kv", 7, MiB))
    fine = [0, 17, 0, 33, 4095]
    cases = [([fine, [0, 17 + 4094, 0, 9000, 3]], "read", "/ranges/1"),
             ([[0, 90_000, 0, 5, 1], fine, [0, 20_000, 0, 33 + 4095 - 1, 65537]], "write", "/ranges/2"),
             ([fine, [0, 9000, 0, 9000, 17], [0, 17, 0, 20_000, 1]], "read", "/ranges/2"),
             ([[0, MiB - 1, 0, 0, 1], [1, 15, 0, 100, 1]], "read", "/ranges/1")]
    for ranges, operation, field in cases:
        status, problem = sides.ask(operation, ranges=ranges, local=["kv", "beside"])
        assert (status, problem["code"]) == (400, "overlap"), problem
        assert problem["field"].startswith(field), problem
    status, problem = sides.ask("read", ranges=[[0, 100, 0, 150, 51]], local=["kv"], remote=["reader/kv"])
    assert (status, problem["code"]) == (400, "overlap") and problem["field"].startswith("/ranges/0"), problem
    sides.into.check()
    sides.out.check()
    assert sides.a.ask("GET", "/v1/transfers?workload=reader")[1]["transfers"] == []


@pytest.mark.timeout(600)  # each piece is looked at
@pytest.mark.amd_runs(start_sides="kernel")
def test_a_hundred_thousand_pieces_of_half_a_kibibyte(start_sides):
    sides = start_sides(PIECE * PIECES + MiB)
    begin = {"mine": 512, "theirs": 3 * 512 + 8}
    sides.into.register(("kv", begin["mine"], PIECE * PIECES, BOTH, PIECE))
    sides.out.register(("kv", begin["theirs"], PIECE * PIECES, BOTH, PIECE))
    shuffled = random.Random(37)
    for operation in ("read", "write"):
        mine, theirs = (shuffled.sample(range(PIECES), PIECES) for _ in range(2))
        sides.move(operation, [(begin["mine"] + here * PIECE, begin["theirs"] + there * PIECE, PIECE)
                               for here, there in zip(mine, theirs)], local_blocks=mine, remote_blocks=theirs)
