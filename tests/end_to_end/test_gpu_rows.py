"""Layers of one cache at one step in one allocation: a block id is one copy of rows, and every byte is where it should be."""

import random

import pytest

from gpu_memories import GpuMemory, succeeded
from gpu_workloads import REAL, gpu_count, gpus, start_gpu_workload
from workloads import BOTH, MiB, connect, wait_for

pytestmark = pytest.mark.both_vendors

KiB = 1 << 10
LAYERS, BLOCKS, BLOCK = 24, 40, 2 * KiB
NAMES = [f"kv.{number}" for number in range(LAYERS)]


# Between the layers lies what is nobody's, and the two sides have another step and begin elsewhere.
def mine(layer):
    return {number: 4 * KiB + number * (layer + 512) for number in range(LAYERS)}


def theirs(layer):
    return {number: 9 * KiB + 24 + number * (layer + 1536) for number in range(LAYERS)}


class Caches:
    """Workload "reader" of sidecar a and "owner" of b, each with a cache in layers."""

    def __init__(self, start_sidecar, start_gpu_workload, flags=(), ordinals=(0, 1), block=BLOCK, blocks=BLOCKS, backwards=False):
        self.a, self.b = (start_sidecar(name, flags=flags, workers=2) for name in "ab")
        connect(self.a, self.b)
        self.reader = start_gpu_workload(self.a, "reader", ordinals[0])
        self.owner = start_gpu_workload(self.b, "owner", min(ordinals[1], gpu_count() - 1))
        layer = blocks * block
        size = 1 * MiB + LAYERS * layer
        self.into, self.out = GpuMemory(self.reader, "into", size), GpuMemory(self.owner, "out", size)
        self.block, self.mine, self.theirs = block, mine(layer), theirs(layer)
        if backwards:
            self.theirs = dict(zip(range(LAYERS), reversed(self.theirs.values())))
        for memory, offsets in ((self.into, self.mine), (self.out, self.theirs)):
            memory.register(*((f"kv.{number}", at, layer, BOTH, block) for number, at in offsets.items()))
        status, view = self.a.ask("POST", "/v1/views", {"workload": "reader", "peer": "b", "remote_workload": "owner",
                                                        "pairs": NAMES})
        assert status == 201, view
        self.view = view["id"]

    def move(self, operation, ids, others, layers=None):
        body = {"workload": "reader", "op": operation, "view": self.view, "local_blocks": ids, "remote_blocks": others}
        if layers is not None:
            body["layers"] = layers
        view = succeeded(self.a.ask("POST", "/v1/transfers?wait_ms=20000", body))
        first, last = layers or (0, LAYERS - 1)
        moved = range(first, last + 1)
        assert view["bytes_moved"] == len(moved) * len(ids) * self.block, view
        for number in moved:
            for here, there in zip(ids, others):
                at, start = self.mine[number] + here * self.block, self.theirs[number] + there * self.block
                if operation == "read":
                    self.into.receives(at, self.out, start, self.block)
                else:
                    self.out.receives(start, self.into, at, self.block)
        self.into.check()
        self.out.check()
        return view


def apart(shuffled, count):
    """Block ids of which no two follow each other, in any order."""
    ids = list(range(0, BLOCKS, 2))
    shuffled.shuffle(ids)
    return ids[:count]


@pytest.mark.parametrize("copies", ["engines", "kernel"])
@pytest.mark.parametrize("ordinals", [(0, 1), (0, 0)], ids=["two-gpus", "one-gpu"])
def test_a_block_id_is_one_copy_in_all_layers(gpus, start_sidecar, start_gpu_workload, copies, ordinals):
    caches = Caches(start_sidecar, start_gpu_workload, ("--gpu-copies", copies), ordinals)
    by_rows = copies == "engines"  # a kernel's list has every block
    shuffled = random.Random(5)
    for operation in ("read", "write"):
        caches.out.renew()
        ids, others = apart(shuffled, 17), shuffled.sample(range(BLOCKS), 17)
        view = caches.move(operation, ids, others)
        assert view["chunks"] == view["chunks_moved"] == (17 if by_rows else 17 * LAYERS), view
        assert view["descriptors_in"] == view["descriptors_out"] == 17 * LAYERS, view
        view = caches.move(operation, ids, others, layers=[3, 20])
        assert view["chunks"] == (17 if by_rows else 17 * 18), view
        view = caches.move(operation, ids, others, layers=[2, 5])
        assert view["chunks"] == 4 * 17, "so few layers are no rows"


def test_runs_of_blocks_are_rows_of_their_length(gpus, start_sidecar, start_gpu_workload):
    caches = Caches(start_sidecar, start_gpu_workload, ("--gpu-copies", "engines"))
    for operation in ("read", "write"):
        caches.into.renew()
        view = caches.move(operation, [7, 8, 9, 1, 20, 21], [30, 31, 32, 5, 11, 12])
        assert view["chunks"] == 3 and view["descriptors_out"] == 3 * LAYERS, view
        some = list(range(16))
        assert caches.move(operation, some, some)["chunks"] == 1, "32 KiB in each layer"
        assert caches.move(operation, list(range(BLOCKS)), list(range(BLOCKS)))["chunks"] == LAYERS, "longer ones pay by themselves"


def test_a_few_long_runs_are_rows_among_the_others(gpus, start_sidecar, start_gpu_workload):
    caches = Caches(start_sidecar, start_gpu_workload, ("--gpu-copies", "engines"), block=8 * KiB, blocks=110)
    ids, start = [], 0
    for length in (33, 9, 8, 8, 8, 8, 8, 8):  # 264 and 72 KiB in each layer, and what is a row by itself
        ids += range(start, start + length)
        start += length + 1
    others = [i + 3 for i in ids]
    for operation in ("read", "write"):
        caches.into.renew()
        # 24 rows of one copy, of at most 4 MiB, are of up to 16 blocks: the first is three of eleven.
        assert caches.move(operation, ids, others)["chunks"] == 3 + 1 + 6
        assert caches.move(operation, ids[:-8], others[:-8])["chunks"] == 2 * LAYERS + 5, "42 of 82, which pay by themselves"


def test_layers_in_another_order_are_copied_one_by_one(gpus, start_sidecar, start_gpu_workload):
    caches = Caches(start_sidecar, start_gpu_workload, ("--gpu-copies", "engines"), backwards=True)
    ids = apart(random.Random(8), 9)
    for operation in ("read", "write"):
        caches.into.renew()
        assert caches.move(operation, ids, ids)["chunks"] == 9 * LAYERS


@pytest.mark.skipif(REAL, reason="only the fake can be made to refuse")
@pytest.mark.parametrize("failure", ["500", "1"], ids=["missing", "refused"])
def test_without_copies_of_rows_batches_move_them(gpus, start_sidecar, start_gpu_workload, monkeypatch, failure):
    monkeypatch.setenv("GANTRY_FAKE_GPU_FAIL", f"cuMemcpy2DAsync={failure},hipMemcpy2DAsync={failure}")
    caches = Caches(start_sidecar, start_gpu_workload, ("--gpu-copies", "engines"))
    ids = apart(random.Random(9), 12)
    for operation in ("read", "write"):
        caches.into.renew()
        caches.move(operation, ids, ids[::-1])
    wait_for(lambda: "blocks are not copied as rows" in caches.a.log and "emcpy2DAsync" in caches.a.log, 5, "the worker's words in the log")
