"""What copies between GPUs, kernels or copy engines, and what becomes of a transfer when a process dies under it."""

import os
import random
import time

import pytest

from gpu_workloads import REAL, GpuPair, dying_workers, gpus, start_gpu_workload
from workloads import MiB, TERMINAL, metric, wait_for

pytestmark = pytest.mark.both_vendors

BLOCK = 2048
BLOCKS = 8 * MiB // BLOCK
OFFSET = MiB + 512


@pytest.fixture
def start_pair(gpus, start_sidecar, start_gpu_workload):
    def start(*flags):
        return GpuPair(start_sidecar, start_gpu_workload, offset=OFFSET, length=8 * MiB, block_bytes=BLOCK, size=10 * MiB,
                       flags=flags)
    return start


def move_blocks(pair, operation, mine, theirs, wait_ms=20_000):
    body = {"workload": "reader", "op": operation, "local": ["into"], "remote": ["b/owner/out"], "local_blocks": mine,
            "remote_blocks": theirs}
    return pair.a.ask("POST", f"/v1/transfers?wait_ms={wait_ms}", body)


def check_blocks(pair, operation, mine, theirs):
    """The blocks that were named hold the other side's, and every other byte is as it was."""
    source, target = ("out", "into") if operation == "read" else ("into", "out")
    to, start = (mine, theirs) if operation == "read" else (theirs, mine)
    expected = bytearray(pair.data[target])
    for there, here in zip(to, start):
        expected[OFFSET + there * BLOCK:OFFSET + (there + 1) * BLOCK] = \
            pair.data[source][OFFSET + here * BLOCK:OFFSET + (here + 1) * BLOCK]
    holder = {"into": pair.reader, "out": pair.owner}[target]
    assert holder.do("look", target, 0, pair.size) == bytes(expected)
    pair.data[target] = bytes(expected)


@pytest.mark.parametrize("copies", ["kernel", "engines"])
@pytest.mark.parametrize("operation", ["read", "write"])
def test_blocks_in_random_order_by_either_means(start_pair, copies, operation):
    pair = start_pair("--gpu-copies", copies)
    shuffled = random.Random(7)
    for count in (1, 9, 1000, BLOCKS):
        mine, theirs = shuffled.sample(range(BLOCKS), count), shuffled.sample(range(BLOCKS), count)
        status, view = move_blocks(pair, operation, mine, theirs)
        assert (status, view["state"], view["path"]) == (200, "succeeded", "ipc"), view
        assert view["gpu_copies"] == {"plan": copies, "reason": view["gpu_copies"]["reason"]}
        assert "--gpu-copies" in view["gpu_copies"]["reason"]
        check_blocks(pair, operation, mine, theirs)
    unused = "engines" if copies == "kernel" else "kernel"
    assert metric(pair.a, f'gantry_ipc_jobs_total{{plan="{copies}",reason="asked"}}') >= 4
    assert metric(pair.a, f'gantry_ipc_jobs_total{{plan="{unused}",reason="asked"}}') == 0


def test_what_copies_is_chosen_and_the_reason_told(start_pair):
    pair = start_pair()
    view = move_blocks(pair, "read", [1], [2])[1]
    assert view["gpu_copies"]["plan"] == "engines" and "few blocks" in view["gpu_copies"]["reason"], view
    view = move_blocks(pair, "read", list(range(0, 2000, 2)), list(range(1, 2001, 2)))[1]
    assert view["gpu_copies"]["plan"] == "kernel", view


@pytest.mark.skipif(REAL, reason="only the fake can be made to have no kernels")
def test_without_kernels_the_copy_engines_do_all(start_pair, monkeypatch):
    monkeypatch.setenv("GANTRY_FAKE_GPU_FAIL", "cuModuleLoadData=218,hiprtcCompileProgram=6")
    pair = start_pair()
    mine, theirs = list(range(0, 2000, 2)), list(range(1, 2001, 2))
    for _ in range(2):
        status, view = move_blocks(pair, "read", mine, theirs)
        assert (status, view["state"]) == (200, "succeeded"), view
        check_blocks(pair, "read", mine, theirs)
    assert view["gpu_copies"]["plan"] == "engines" and "no copy kernel" in view["gpu_copies"]["reason"], view
    wait_for(lambda: "copied by copy engines only" in pair.a.log, 5, "the worker's words in the log")


@pytest.mark.amd_runs(copies="engines")
@pytest.mark.parametrize("copies", ["kernel", "engines"])
def test_workers_that_die_under_transfers_cost_a_retry_and_no_byte(start_pair, copies):
    """Each transfer ends, and one that succeeded moved all: also when its part was given out a second time."""
    pair = start_pair("--gpu-copies", copies)
    shuffled = random.Random(11)
    succeeded = 0
    with dying_workers(pair.a, 13):
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            mine, theirs = (shuffled.sample(range(BLOCKS), BLOCKS) for _ in range(2))
            fresh = os.urandom(pair.size)
            pair.owner.do("fill", "out", 0, fresh)
            pair.data["out"] = fresh
            status, view = move_blocks(pair, "read", mine, theirs)
            if status == 500:  # no worker lived long enough to map the memory: refused, and nothing moves
                assert view["code"] == "worker_lost", view
                check_blocks(pair, "read", [], [])
                continue
            assert view.get("state") in TERMINAL, view
            if view["state"] == "succeeded":
                succeeded += 1
                check_blocks(pair, "read", mine, theirs)
            else:
                assert view["error"]["code"] in ("worker_lost", "device_error", "deadline_exceeded"), view
                pair.data["into"] = pair.reader.do("look", "into", 0, pair.size)
    assert succeeded > 0
    mine = theirs = list(range(BLOCKS))
    assert move_blocks(pair, "read", mine, theirs)[1]["state"] == "succeeded"
    check_blocks(pair, "read", mine, theirs)


def test_the_owners_death_under_a_transfer_ends_it(start_pair):
    pair = start_pair()
    mine = random.Random(3).sample(range(BLOCKS), BLOCKS)
    for _ in range(3):
        assert move_blocks(pair, "read", mine, mine, wait_ms=0)[0] in (200, 202)
    pair.owner.kill()
    transfers = pair.a.ask("GET", "/v1/transfers?workload=reader")[1]
    wait_for(lambda: all(view["state"] in TERMINAL for view in
                         pair.a.ask("GET", "/v1/transfers?workload=reader")[1]["transfers"]), 10, lambda: f"{transfers}")
    wait_for(lambda: [worker["mappings"] for worker in pair.a.ask("GET", "/v1/status")[1]["workers"]] == [1, 1], 5,
             "what is gone to be unmapped")
