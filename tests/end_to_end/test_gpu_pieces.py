"""Buffers over pieces of virtual GPU memory (PyTorch's expandable segments): across their seams, and after a piece was replaced."""

import random

import pytest

from gpu_memories import GpuMemory, succeeded
from gpu_pieces import PieceCommands
from gpu_workloads import gpu_count, gpus, start_gpu_workload
from workloads import BOTH, MiB, connect, gantry, metric, submit, wait_for

pytestmark = pytest.mark.both_vendors

MINE, THEIRS = [2 * MiB, 4 * MiB, 2 * MiB], [4 * MiB, 2 * MiB, 2 * MiB]  # their seams are at other places
SIZE = 8 * MiB
BEGIN = {"into": 512 + 3, "out": 1024 + 8}
LENGTH = 7 * MiB + 321
BLOCK = 4096


class PiecedMemory(GpuMemory):
    """As GpuMemory, of pieces with these sizes."""

    def __init__(self, workload, name, sizes):
        self.prepare(workload, name, sum(sizes))
        self.address = workload.do("allocate_pieces", name, sizes)
        self.renew()


class Sides:
    """Workload "reader" of sidecar a with `into`, "owner" of b with `out`; `mine` and `theirs`: their pieces, or None for one
    allocation of the ordinary kind."""

    def __init__(self, start_sidecar, start_gpu_workload, copies="auto", mine=tuple(MINE), theirs=tuple(THEIRS)):
        self.a, self.b = (start_sidecar(name, workers=2, flags=["--gpu-copies", copies]) for name in "ab")
        connect(self.a, self.b)
        self.reader = start_gpu_workload(self.a, "reader", 0, PieceCommands)
        self.owner = start_gpu_workload(self.b, "owner", min(1, gpu_count() - 1), PieceCommands)
        self.into, self.out = (PiecedMemory(workload, name, sizes) if sizes else GpuMemory(workload, name, SIZE)
                               for workload, name, sizes in ((self.reader, "into", mine), (self.owner, "out", theirs)))
        self.into.register(("kv", BEGIN["into"], LENGTH, BOTH, BLOCK))
        self.out.register(("kv", BEGIN["out"], LENGTH, BOTH, BLOCK))

    def move(self, operation, ranges):
        """(mine, theirs, length) in the buffers."""
        body = {"workload": "reader", "op": operation, "local": ["kv"], "remote": ["b/owner/kv"],
                "ranges": [[0, mine, 0, theirs, length] for mine, theirs, length in ranges]}
        view = succeeded(self.a.ask("POST", "/v1/transfers?wait_ms=20000", body))
        for mine, theirs, length in ranges:
            if operation == "read":
                self.into.receives(BEGIN["into"] + mine, self.out, BEGIN["out"] + theirs, length)
            else:
                self.out.receives(BEGIN["out"] + theirs, self.into, BEGIN["into"] + mine, length)
        self.into.check()
        self.out.check()
        return view


@pytest.fixture
def start_sides(gpus, start_sidecar, start_gpu_workload):
    return lambda *arguments, **options: Sides(start_sidecar, start_gpu_workload, *arguments, **options)


@pytest.mark.parametrize("copies", ["kernel", "engines"])
@pytest.mark.parametrize("kinds", [("pieces", "pieces"), ("pieces", "whole"), ("whole", "pieces")], ids="-".join)
def test_ranges_and_blocks_across_seams(start_sides, copies, kinds):
    sides = start_sides(copies, *(sizes if kind == "pieces" else None for kind, sizes in zip(kinds, (MINE, THEIRS))))
    for operation in ("read", "write"):
        sides.out.renew()
        view = sides.move(operation, [(0, 0, LENGTH)])
        assert view["gpu_copies"]["plan"] == copies, view
        # One byte at each side of each seam of either side, and odd lengths over it.
        seams = {"into": [2 * MiB, 6 * MiB], "out": [4 * MiB, 6 * MiB]}
        mine = [seam - BEGIN["into"] for seam in seams["into"]]
        theirs = [seam - BEGIN["out"] for seam in seams["out"]]
        sides.out.renew()
        sides.move(operation, [(mine[0] - 1, 100, 2), (mine[1] - 17, 5000, 4095), (100, theirs[0] - 1, 2),
                               (9001, theirs[1] - 15, 65537)])
    ids = random.Random(51).sample(range(LENGTH // BLOCK), LENGTH // BLOCK)
    sides.out.renew()
    body = {"workload": "reader", "op": "read", "local": ["kv"], "remote": ["b/owner/kv"], "local_blocks": ids,
            "remote_blocks": ids[::-1]}
    succeeded(sides.a.ask("POST", "/v1/transfers?wait_ms=20000", body))
    for here, there in zip(ids, ids[::-1]):
        sides.into.receives(BEGIN["into"] + here * BLOCK, sides.out, BEGIN["out"] + there * BLOCK, BLOCK)
    sides.into.check()


def test_a_piece_that_was_replaced_is_refused_until_it_is_registered_anew(start_sides):
    """What uses only the others goes on: as after sleep mode woke a part of a segment."""
    sides = start_sides()
    sides.into.register(("untouched", 0, MiB))
    sides.move("read", [(0, 0, LENGTH)])
    sides.reader.do("map_anew", "into", 1)
    sides.into.renew()
    with pytest.raises(gantry.Error) as caught:
        sides.reader.do("move", "read", "kv", "b/owner/kv", ranges=[(0, 0, 0, 0, 1)])
    assert caught.value.code == "stale_generation", caught.value
    assert sides.reader.do("move", "read", "untouched", "b/owner/kv", wait=20, ranges=[(0, 0, 0, 7, MiB)]) == ("succeeded", None)
    sides.into.receives(0, sides.out, BEGIN["out"] + 7, MiB)
    sides.into.check()
    sides.reader.do("unregister", "kv")
    sides.into.register(("kv", BEGIN["into"], LENGTH, BOTH, BLOCK))
    sides.out.renew()
    sides.move("read", [(0, 0, LENGTH)])


def test_a_hole_in_the_addresses_is_no_buffer(start_sides):
    sides = start_sides()
    sides.owner.do("unmap", "out", 1)
    with pytest.raises(gantry.Error) as caught:
        sides.owner.do("register_gpu", "out", ("holed", 4096, 7 * MiB))
    assert caught.value.code == "not_exportable", caught.value
    sides.owner.do("register_gpu", "out", ("before", 4096, 3 * MiB), ("behind", 6 * MiB, 2 * MiB))
    status, view = submit(sides.a, "reader", "read", "kv", "b/owner/behind", 2 * MiB, 20_000)
    assert (status, view["state"]) == (200, "succeeded"), view
    behind = bytes(sides.out.data[6 * MiB:])
    assert sides.reader.do("look", "into", BEGIN["into"], 2 * MiB) == behind


def test_pieces_of_a_dead_owner_are_given_back(start_sides):
    sides = start_sides()
    sides.move("read", [(0, 0, LENGTH)])
    assert [metric(sidecar, "gantry_ipc_mapped_bytes") for sidecar in (sides.a, sides.b)] == [2 * SIZE, SIZE]
    sides.owner.kill()
    for sidecar, left in ((sides.a, SIZE), (sides.b, 0)):
        wait_for(lambda: metric(sidecar, "gantry_ipc_mapped_bytes") == left, 5, "what is gone to be unmapped")
