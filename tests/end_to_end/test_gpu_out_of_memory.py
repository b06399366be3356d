"""A copy worker whose driver is out of memory in the middle of its life fails what it copies, and nothing else."""

import random
import time

import pytest

from gpu_workloads import REAL, GpuPair, gpus, start_gpu_workload
from workloads import MiB, metric, wait_for, workers_of

BLOCK = 2048
BLOCKS = MiB // BLOCK
SECONDS = 20

pytestmark = pytest.mark.skipif(REAL, reason="only the fake can be made to run out of memory at a call, and to have some again")

# Calls that copy, by what makes a transfer use them.
CALLS = {"batch": ("engines", "cuMemcpyBatchAsync=2,hipMemcpyBatchAsync=2,hipMemcpyAsync=2"),
         "kernel": ("kernel", "cuLaunchKernel=2,hipModuleLaunchKernel=2"),
         "one": ("engines", "cuMemcpyDtoDAsync=2,cuMemcpyAsync=2,hipMemcpyAsync=2"),
         "mark": ("engines", "cuEventRecord=2,hipEventRecord=2")}


class Out:
    """The driver has no memory for these calls, in every process, for as long as it lasts."""

    def __init__(self, folder, calls):
        self.path, self.calls = folder / "failures", calls

    def __enter__(self):
        self.path.write_text(self.calls)

    def __exit__(self, *_):
        self.path.unlink()


def move(pair, blocks):
    body = {"workload": "reader", "op": "read", "local": ["into"], "remote": ["b/owner/out"], "local_blocks": blocks,
            "remote_blocks": blocks, "deadline_ms": SECONDS * 1000}
    return pair.a.ask("POST", f"/v1/transfers?wait_ms={SECONDS * 1000}", body)[1]


def ready(sidecar):
    return sidecar.ask("GET", "/readyz")[0] == 200


@pytest.mark.both_vendors
@pytest.mark.parametrize("kind", CALLS)
def test_it_fails_the_transfer_and_not_the_sidecar(gpus, start_sidecar, start_gpu_workload, kind):
    copies, calls = CALLS[kind]
    pair = GpuPair(start_sidecar, start_gpu_workload, length=MiB, block_bytes=BLOCK, flags=["--gpu-copies", copies])
    blocks = [5] if kind == "one" else random.Random(19).sample(range(BLOCKS), 200)
    assert move(pair, blocks)["state"] == "succeeded"
    before = workers_of(pair.a)
    with Out(gpus, calls):
        for _ in range(3):
            view = move(pair, blocks)
            assert (view["state"], view["error"]["code"]) == ("failed", "resource_exhausted"), view
            assert "no memory left" in view["error"]["detail"] and "--gpu-workers" in view["error"]["hint"], view
            assert ready(pair.a) and ready(pair.b)
    wait_for(lambda: "OUT_OF_MEMORY" in pair.a.log.upper().replace("OUTOFMEMORY", "OUT_OF_MEMORY"), 5, "the driver's words in the log")
    assert workers_of(pair.a) == before and metric(pair.a, "gantry_worker_restarts_total") == 0
    fresh = bytes(range(256)) * (pair.size // 256)
    pair.owner.do("fill", "out", 0, fresh)
    pair.data["out"] = fresh
    status, moved = pair.move("read")
    assert (status, moved["state"], moved["path"]) == (200, "succeeded", "ipc"), moved
    pair.data["into"] = bytes(pair.data["into"][:pair.offset]) + fresh[pair.offset:pair.offset + pair.length] + \
        pair.data["into"][pair.offset + pair.length:]
    assert pair.reader.do("look", "into", 0, pair.size) == pair.data["into"]


@pytest.mark.both_vendors
def test_a_gpu_is_kept_awake_for_who_looks_for_long_and_no_error_of_that_is_a_transfers(gpus, start_sidecar, start_gpu_workload):
    pair = GpuPair(start_sidecar, start_gpu_workload, length=MiB, block_bytes=BLOCK, flags=["--spin-us", "300000"])
    for _ in range(20):  # workers look again for as long as it pays
        assert move(pair, [5])["state"] == "succeeded"
    assert "is not kept awake" not in pair.a.log
    with Out(gpus, CALLS["one"][1]):
        time.sleep(0.1)
    deadline = time.monotonic() + SECONDS
    while "is not kept awake" not in pair.a.log and time.monotonic() < deadline:
        time.sleep(0.05)
    wait_for(lambda: "is not kept awake" in pair.a.log, 5, lambda: f"the worker's words in {pair.a.log[-2000:]}")
    assert move(pair, [5])["state"] == "succeeded"
    assert metric(pair.a, "gantry_worker_restarts_total") == 0
