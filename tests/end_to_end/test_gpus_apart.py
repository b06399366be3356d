"""Two GPUs without access to each other's memory: copy engines go through the host, and no kernel touches what it may not."""

import os
import random

import pytest

from gpu_pieces import PieceCommands
from gpu_workloads import REAL, GpuPair, gpus, start_gpu_workload
from workloads import MiB, metric

pytestmark = [pytest.mark.both_vendors, pytest.mark.skipif(REAL, reason="only the fake's GPUs can be set apart")]
LENGTH, OFFSET = MiB, 3 * MiB + 512  # GpuPair's
BLOCK = 4096


@pytest.fixture
def apart(gpus, monkeypatch):
    monkeypatch.setenv("GANTRY_FAKE_PEER_ACCESS", "0")


def move_blocks(pair):
    """All of the owner's blocks in another order; the view of the transfer."""
    count = LENGTH // BLOCK
    shuffled = random.Random(3)
    mine, theirs = shuffled.sample(range(count), count), shuffled.sample(range(count), count)
    status, view = pair.a.ask("POST", "/v1/transfers?wait_ms=20000",
                              {"workload": "reader", "op": "read", "local": ["into"], "remote": ["b/owner/out"],
                               "local_blocks": mine, "remote_blocks": theirs})
    assert (status, view["state"]) == (200, "succeeded"), view
    expected = bytearray(pair.data["into"])
    for here, there in zip(mine, theirs):
        expected[OFFSET + here * BLOCK:OFFSET + (here + 1) * BLOCK] = pair.data["out"][OFFSET + there * BLOCK:OFFSET + (there + 1) * BLOCK]
    assert pair.reader.do("look", "into", 0, pair.size) == bytes(expected)
    return view


@pytest.mark.parametrize("copies", ["auto", "kernel"])
def test_copies_between_them_go_by_engines_and_say_why(apart, start_sidecar, start_gpu_workload, copies):
    pair = GpuPair(start_sidecar, start_gpu_workload, flags=["--gpu-copies", copies])
    for operation in ("read", "write"):
        status, view = pair.move(operation)
        assert (status, view["state"], view["path"]) == (200, "succeeded", "ipc"), view
        pair.check(operation)
    view = move_blocks(pair)
    assert view["gpu_copies"]["plan"] == "engines", view
    assert "no access to each other's memory" in view["gpu_copies"]["reason"], view
    assert metric(pair.a, "gantry_worker_restarts_total") == 0  # a kernel's fault would have ended one
    for gpu in pair.a.ask("GET", "/v1/status")[1]["gpus"]:
        assert gpu["reaches"] == [gpu["uuid"]] and 0 < gpu["free_bytes"] < gpu["bytes"], gpu


def test_within_one_of_them_kernels_copy(apart, start_sidecar, start_gpu_workload):
    pair = GpuPair(start_sidecar, start_gpu_workload, ordinals=(1, 1), flags=["--gpu-copies", "kernel"])
    view = move_blocks(pair)
    assert view["gpu_copies"]["plan"] == "kernel", view


def test_pieces_of_a_gpu_apart(apart, start_sidecar, start_gpu_workload):
    pair = GpuPair(start_sidecar, start_gpu_workload)
    owner = start_gpu_workload(pair.b, "pieces", 1, PieceCommands)
    owner.do("allocate_pieces", "out", [2 * MiB, 2 * MiB])
    data = os.urandom(4 * MiB)
    owner.do("fill", "out", 0, data)
    owner.do("register_gpu", "out", ("kv", MiB, 2 * MiB))
    status, view = pair.a.ask("POST", "/v1/transfers?wait_ms=20000",
                              {"workload": "reader", "op": "read", "local": ["into"], "remote": ["b/pieces/kv"],
                               "ranges": [[0, 0, 0, MiB - 17, 4096]]})
    assert (status, view["state"]) == (200, "succeeded"), view
    assert pair.reader.do("look", "into", OFFSET, 4096) == data[2 * MiB - 17:2 * MiB - 17 + 4096]
