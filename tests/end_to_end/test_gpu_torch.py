"""Tensors of PyTorch's caching allocator: what was named moves, and no byte of a neighbour does.

On real GPUs with PyTorch itself; on the fake over a stand-in that lays tensors out as its allocator does, which keeps the test
itself tested.
"""

import importlib.util
import os
import random

import pytest

from caching_allocators import TensorCommands, rounded
from gpu_memories import difference, succeeded
from gpu_workloads import REAL, gpu_count, gpus, start_gpu_workload
from workloads import MiB, connect, submit

KiB = 1 << 10
SIZES = {"64B": 64, "16KiB": 16 * KiB, "128KiB": 128 * KiB, "512KiB": 512 * KiB, "4MiB": 4 * MiB}
TENSORS_MAX = 32  # of a size, until three of them lie side by side
DEEP_SIZE, DEEP_AT = 66 * MiB, 64 * MiB
LAYERS, BLOCKS, BLOCK = 6, 40, 16 * KiB
SECONDS = 120  # for PyTorch to be imported, where the disk is cold

pytestmark = pytest.mark.skipif(REAL and importlib.util.find_spec("torch") is None,
                                reason="PyTorch is not installed: its allocator is what this is about")


class Side:
    """One workload's tensors, and what should be in them."""

    def __init__(self, start_gpu_workload, sidecar, name):
        self.workload = start_gpu_workload(sidecar, name, commands=TensorCommands)
        self.data, self.places = {}, {}
        fd = os.memfd_create(name, os.MFD_CLOEXEC)  # for what is put into tensors, and found in them
        self.file = open(fd, "r+b")
        self.path = f"/proc/{os.getpid()}/fd/{fd}"

    def make(self, name, *shape):
        self.places[name] = self.workload.do("make", name, *shape)
        size = 1
        for extent in shape:
            size *= extent
        self.data[name] = bytearray(size)

    def renew(self, *names):
        """Other bytes, in each of them."""
        self.file.seek(0)
        self.file.truncate()
        for name in names:
            self.data[name] = bytearray(os.urandom(len(self.data[name])))
            self.file.write(self.data[name])
        self.file.flush()
        self.workload.do("put_from", names, self.path)

    def check(self, *names):
        self.workload.do("get_into", names, self.path)
        self.file.seek(0)
        for name in names:
            assert difference(self.file.read(len(self.data[name])), self.data[name]) == "", name

    def make_one_between_others(self, size):
        """A tensor of this size that has one directly before it and one directly after it: the names of the three."""
        made = []
        for number in range(TENSORS_MAX):
            made.append(f"{size} bytes, number {number}")
            self.make(made[-1], size)
            at = {self.places[name]: name for name in made}
            for place, name in at.items():
                before, after = at.get(place - rounded(size)), at.get(place + rounded(size))
                if before and after:
                    return [before, name, after]
        raise AssertionError(f"the allocator put no three of {TENSORS_MAX} tensors of {size} bytes side by side")


class Sides:
    """Workload "reader" of sidecar a on the first GPU, "owner" of b on another; both start at once, as PyTorch takes seconds."""

    def __init__(self, start_sidecar, start_gpu_workload, ordinals, expandable):
        self.a, self.b = (start_sidecar(name, workers=2) for name in "ab")
        connect(self.a, self.b)
        self.reader, self.owner = (Side(start_gpu_workload, sidecar, name)
                                   for sidecar, name in ((self.a, "reader"), (self.b, "owner")))
        for side, ordinal in zip((self.reader, self.owner), ordinals):
            side.workload.post("use_tensors", ordinal, REAL, expandable)
        for side in (self.reader, self.owner):
            side.workload.result(SECONDS)

    def move(self, operation, buffer, mine, theirs, length):
        """All of a buffer that has one name on both sides; `mine` and `theirs`: (tensor, offset in it)."""
        view = succeeded(submit(self.a, "reader", operation, buffer, f"b/owner/{buffer}", length, 20_000))
        assert view["bytes_moved"] == length, view
        self.moved(operation, mine, theirs, length)

    def moved(self, operation, mine, theirs, length):
        (here, at), (there, start) = mine, theirs
        local, remote = self.reader.data[here], self.owner.data[there]
        if operation == "read":
            local[at:at + length] = remote[start:start + length]
        else:
            remote[start:start + length] = local[at:at + length]


@pytest.mark.both_vendors
@pytest.mark.parametrize("ordinals", [(0, 1), (0, 0)], ids=["two-gpus", "one-gpu"])
@pytest.mark.parametrize("expandable", [False, True], ids=["default", "expandable"])
def test_tensors_of_the_caching_allocator(gpus, start_sidecar, start_gpu_workload, ordinals, expandable):
    """One pair of processes for all of it."""
    if gpu_count() < 2 and 1 in ordinals:
        pytest.skip("there is one GPU")
    sides = Sides(start_sidecar, start_gpu_workload, ordinals, expandable)
    sizes_between_neighbours(sides)
    a_megabyte_deep_inside(sides)
    layers_of_one_cache(sides)
    for side in (sides.reader, sides.owner):  # nor did a later transfer touch what an earlier one left
        assert side.workload.do("expandable") == expandable
        side.check(*side.data)


def sizes_between_neighbours(sides):
    """The largest first on one side, so that neither offsets nor segments are alike."""
    reader, owner = sides.reader, sides.owner
    mine = {name: reader.make_one_between_others(size) for name, size in SIZES.items()}
    theirs = {name: owner.make_one_between_others(size) for name, size in reversed(SIZES.items())}
    inside = 0
    for side, names in ((reader, mine), (owner, theirs)):
        side.renew(*side.data)
        for size, (_, middle, _) in names.items():
            inside += any(offset > 0 for _, offset, _ in side.workload.do("register_tensor", size, middle))
    assert inside > len(SIZES), "most tensors lie inside of an allocation, not at its base"
    for size, length in SIZES.items():
        for operation in ("read", "write"):
            owner.renew(*theirs[size])
            sides.move(operation, size, (mine[size][1], 0), (theirs[size][1], 0), length)
            reader.check(*mine[size])
            owner.check(*theirs[size])


def a_megabyte_deep_inside(sides):
    reader, owner = sides.reader, sides.owner
    reader.make("before", 512)
    reader.make("shallow", 2 * MiB)
    owner.make("deep", DEEP_SIZE)
    reader.renew("before", "shallow")
    owner.renew("deep")
    reader.workload.do("register_part", "part", "shallow", 512, 512 + MiB)
    places = owner.workload.do("register_part", "part", "deep", DEEP_AT, DEEP_AT + MiB)
    assert sum(length for _, _, length in places) == MiB
    for operation in ("write", "read"):
        reader.renew("shallow")
        sides.move(operation, "part", ("shallow", 512), ("deep", DEEP_AT), MiB)
        reader.check("before", "shallow")
        owner.check("deep")


def layers_of_one_cache(sides):
    """One tensor of which each row is registered as a layer; the other side's has a row more at its beginning."""
    reader, owner = sides.reader, sides.owner
    for side, rows in ((reader, LAYERS), (owner, LAYERS + 1)):
        side.make("cache", rows, BLOCKS, BLOCK)
        side.renew("cache")
        side.workload.do("register_rows", "kv", "cache", rows - LAYERS, rows, BLOCK)
    shuffled = random.Random(41)
    for operation in ("read", "write"):
        ids, others = shuffled.sample(range(BLOCKS), 25), shuffled.sample(range(BLOCKS), 25)
        body = {"workload": "reader", "op": operation, "local": [f"kv.{i}" for i in range(LAYERS)],
                "remote": [f"b/owner/kv.{i}" for i in range(LAYERS)], "local_blocks": ids, "remote_blocks": others}
        view = succeeded(sides.a.ask("POST", "/v1/transfers?wait_ms=20000", body))
        assert view["bytes_moved"] == LAYERS * 25 * BLOCK, view
        for layer in range(LAYERS):
            for here, there in zip(ids, others):
                mine, theirs = layer * BLOCKS + here, (layer + 1) * BLOCKS + there
                sides.moved(operation, ("cache", mine * BLOCK), ("cache", theirs * BLOCK), BLOCK)
        reader.check("cache")
        owner.check("cache")
