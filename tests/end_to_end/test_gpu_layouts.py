"""Where buffers lie in GPU memory: sub-allocated tensors, layers of one cache, and memory that is registered again.

The two sides never have the same offset, so that one is not taken for the other.
"""

import random

import pytest

from gpu_memories import GpuMemory, SameAddress, succeeded
from gpu_workloads import gpu_count, gpus, start_gpu_workload
from workloads import BOTH, MiB, connect, metric, submit, totals_of, wait_for

pytestmark = pytest.mark.both_vendors

KiB = 1 << 10
SIZES = {"64B": 64, "16KiB": 16 * KiB, "128KiB": 128 * KiB, "512KiB": 512 * KiB, "4MiB": 4 * MiB}
ALIGNMENT = 512  # of what a caching allocator hands out
LAYERS, BLOCKS, BLOCK = 6, 40, 2 * KiB


class Sides:
    """Workload "reader" of sidecar a and "owner" of b, each on its GPU; `into` and `out` are an allocation of each."""

    def __init__(self, start_sidecar, start_gpu_workload, ordinals=(0, 1), sizes=(12 * MiB, 12 * MiB)):
        self.a, self.b = (start_sidecar(name, workers=2) for name in "ab")
        connect(self.a, self.b)
        self.reader = start_gpu_workload(self.a, "reader", ordinals[0])
        self.owner = start_gpu_workload(self.b, "owner", min(ordinals[1], gpu_count() - 1))
        self.into, self.out = GpuMemory(self.reader, "into", sizes[0]), GpuMemory(self.owner, "out", sizes[1])

    def move(self, operation, name, mine, theirs, length):
        """All of a buffer that has one name on both sides, and the offsets `mine` and `theirs` in the allocations."""
        self.moved_as(operation, name, name, mine, theirs, length)

    def moved_as(self, operation, local, remote, mine, theirs, length):
        view = succeeded(submit(self.a, "reader", operation, local, f"b/owner/{remote}", length, 20_000))
        assert view["bytes_moved"] == length, view
        if operation == "read":
            self.into.receives(mine, self.out, theirs, length)
        else:
            self.out.receives(theirs, self.into, mine, length)
        self.check()

    def check(self):
        self.into.check()
        self.out.check()


@pytest.fixture
def sides(gpus, start_sidecar, start_gpu_workload):
    return Sides(start_sidecar, start_gpu_workload)


on_one_gpu_and_on_two = pytest.mark.parametrize("ordinals", [(0, 1), (0, 0)], ids=["two-gpus", "one-gpu"])


def packed(sizes, gap):
    """The offsets of tensors side by side in this order, with `gap` bytes between them."""
    offsets, at = {}, gap
    for name, size in sizes:
        offsets[name] = at
        at += -(-size // ALIGNMENT) * ALIGNMENT + gap
    return offsets


@on_one_gpu_and_on_two
def test_tensors_that_share_an_allocation(gpus, start_sidecar, start_gpu_workload, ordinals):
    sides = Sides(start_sidecar, start_gpu_workload, ordinals)
    mine, theirs = packed(SIZES.items(), ALIGNMENT), packed(reversed(SIZES.items()), 3 * ALIGNMENT)
    for memory, offsets in ((sides.into, mine), (sides.out, theirs)):
        memory.register(*((name, offsets[name], size) for name, size in SIZES.items()))
    assert [totals_of(sidecar)["allocations"] for sidecar in (sides.a, sides.b)] == [1, 1]
    for name, size in SIZES.items():
        for operation in ("read", "write"):
            sides.out.renew()
            sides.move(operation, name, mine[name], theirs[name], size)


@on_one_gpu_and_on_two
def test_a_megabyte_deep_inside_of_an_allocation(gpus, start_sidecar, start_gpu_workload, ordinals):
    sides = Sides(start_sidecar, start_gpu_workload, ordinals, (2 * MiB, 66 * MiB))
    sides.into.register(("kv", 512, MiB))
    sides.out.register(("kv", 64 * MiB, MiB))
    for operation in ("write", "read"):
        sides.into.renew()
        sides.move(operation, "kv", 512, 64 * MiB, MiB)


@on_one_gpu_and_on_two
def test_layers_of_one_paged_cache(gpus, start_sidecar, start_gpu_workload, ordinals):
    """Each layer is a buffer; blocks go between other numbers, and the two caches keep their layers in another order."""
    sides = Sides(start_sidecar, start_gpu_workload, ordinals, (2 * MiB, 2 * MiB))
    layer = BLOCKS * BLOCK
    mine = {number: 4 * KiB + number * layer for number in range(LAYERS)}
    theirs = {number: 9 * KiB + (LAYERS - 1 - number) * (layer + ALIGNMENT) for number in range(LAYERS)}
    for memory, offsets in ((sides.into, mine), (sides.out, theirs)):
        memory.register(*((f"kv.{number}", at, layer, BOTH, BLOCK) for number, at in offsets.items()))
    shuffled = random.Random(21)
    for operation in ("read", "write"):
        ids, others = shuffled.sample(range(BLOCKS), 25), shuffled.sample(range(BLOCKS), 25)
        body = {"workload": "reader", "op": operation, "local": [f"kv.{i}" for i in range(LAYERS)],
                "remote": [f"b/owner/kv.{i}" for i in range(LAYERS)], "local_blocks": ids, "remote_blocks": others}
        view = succeeded(sides.a.ask("POST", "/v1/transfers?wait_ms=20000", body))
        assert view["bytes_moved"] == LAYERS * 25 * BLOCK, view
        for number in range(LAYERS):
            for here, there in zip(ids, others):
                at, start = mine[number] + here * BLOCK, theirs[number] + there * BLOCK
                if operation == "read":
                    sides.into.receives(at, sides.out, start, BLOCK)
                else:
                    sides.out.receives(start, sides.into, at, BLOCK)
        sides.check()
    assert [totals_of(sidecar)["allocations"] for sidecar in (sides.a, sides.b)] == [1, 1]


def mappings_of(sidecar):
    return [worker["mappings"] for worker in sidecar.ask("GET", "/v1/status")[1]["workers"]]


def test_the_same_bytes_registered_twice(sides):
    """Under two names, and in two lengths: one mapping, which the last of them closes."""
    sides.into.register(("kv", MiB, MiB))
    sides.out.register(("kv", 3 * MiB, MiB))
    sides.out.register(("same", 3 * MiB, MiB), ("longer", 2 * MiB + 512, 3 * MiB))
    assert totals_of(sides.b)["buffers"] == 3 and totals_of(sides.b)["allocations"] == 1
    for name, start in (("kv", 3 * MiB), ("same", 3 * MiB), ("longer", 2 * MiB + 512)):
        sides.out.renew()
        sides.moved_as("read", "kv", name, MiB, start, MiB)
    assert mappings_of(sides.a) == [2, 2] and mappings_of(sides.b) == [1, 1]
    for gone, left, start in (("kv", "same", 3 * MiB), ("same", "longer", 2 * MiB + 512)):
        sides.owner.do("unregister", gone)
        assert submit(sides.a, "reader", "read", "kv", f"b/owner/{gone}", MiB, 5_000)[0] == 404
        for operation in ("read", "write"):
            sides.out.renew()
            sides.moved_as(operation, "kv", left, MiB, start, MiB)
        assert mappings_of(sides.b) == [1, 1]
    sides.owner.do("unregister", "longer")
    for sidecar, left in ((sides.a, 1), (sides.b, 0)):
        wait_for(lambda: mappings_of(sidecar) == [left, left], 5, lambda: f"the last to close it: {mappings_of(sidecar)}")
    assert metric(sides.b, "gantry_ipc_mapped_bytes") == 0


@pytest.mark.parametrize("unregistered", [True, False], ids=["unregistered-before", "forgotten"])
@pytest.mark.parametrize("whose", ["owner", "reader"])
def test_what_is_registered_anew_at_an_address_is_what_moves(sides, whose, unregistered):
    """The old memory is kept by who has it mapped, and may have the new one's address: its bytes must not be seen."""
    sides.into.register(("kv", MiB, MiB))
    sides.out.register(("kv", 3 * MiB, MiB))
    sides.move("read", "kv", MiB, 3 * MiB, MiB)
    old = sides.out if whose == "owner" else sides.into
    if unregistered:
        old.workload.do("unregister", "kv")
    fresh = SameAddress(old)
    name = "kv" if unregistered else "fresh"
    start = 3 * MiB if whose == "owner" else MiB
    fresh.register((name, start, MiB))
    if whose == "owner":
        sides.out = fresh
    else:
        sides.into = fresh
    local, remote = ("kv", name) if whose == "owner" else (name, "kv")
    for operation in ("read", "write"):
        fresh.renew()
        sides.moved_as(operation, local, remote, MiB, 3 * MiB, MiB)
    if not unregistered:
        return
    for sidecar, count in ((sides.a, 2), (sides.b, 1)):  # of the old memory nothing is kept
        wait_for(lambda: mappings_of(sidecar) == [count, count], 5, lambda: f"{mappings_of(sidecar)}")
