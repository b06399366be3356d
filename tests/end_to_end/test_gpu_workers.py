"""Which copy workers have a GPU, and what becomes of those that cannot have one."""

import json
import random

import pytest

from gpu_memories import GpuMemory, succeeded
from gpu_workloads import REAL, gpus, start_gpu_workload, vendor
from test_gantryctl import run
from workloads import BOTH, MiB, metric, wait_for, workers_of

pytestmark = [pytest.mark.both_vendors, pytest.mark.skipif(REAL, reason="only the fake can be made to refuse a context")]

NO_MEMORY = {"nvidia": "CUDA_ERROR_OUT_OF_MEMORY", "amd": "hipErrorOutOfMemory"}


def homes_of(sidecar):
    return [worker["gpu"] for worker in sidecar.ask("GET", "/v1/status")[1]["workers"]]


def ipc_of(sidecar):
    return next(path for path in sidecar.ask("GET", "/v1/status")[1]["paths"] if path["path"] == "ipc")


def expect_no_gpu(sidecar, why):
    """It is ready, and says why there is no GPU."""
    assert homes_of(sidecar) == ["", ""] and metric(sidecar, "gantry_ipc_workers") == 0
    ipc = ipc_of(sidecar)
    assert not ipc["available"] and why in ipc["reason"], ipc
    assert len(workers_of(sidecar)) == 2


def test_workers_take_the_gpus_in_turn(gpus, start_sidecar):
    four, one, none = (start_sidecar(name, workers=4, flags=("--gpu-workers", share))
                       for name, share in (("four", "-1"), ("one", "1"), ("none", "0")))
    homes = homes_of(four)
    assert len(set(homes)) == 2 and homes[:2] == homes[2:] and all(homes)
    assert homes_of(one) == [homes[0], "", "", ""] and metric(one, "gantry_ipc_workers") == 1
    assert homes_of(none) == [""] * 4 and "--gpu-workers" in ipc_of(none)["reason"]


def test_a_gpu_that_is_short_of_memory_has_fewer_workers(gpus, start_sidecar, monkeypatch):
    with monkeypatch.context() as environment:
        environment.setenv("GANTRY_FAKE_CONTEXT_MIB", "4000")  # of 4096, and a half of it when it is open: one on each GPU
        sidecar = start_sidecar("a", workers=4)
    homes = homes_of(sidecar)
    assert len([home for home in homes if home]) == 2 and len(set(homes)) == 3, homes
    assert metric(sidecar, "gantry_ipc_workers") == 2 and "one fewer for GPU memory" in sidecar.log


@pytest.mark.parametrize("failure, why", [
    ("cuDevicePrimaryCtxRetain=2,primary_context=2", NO_MEMORY),
    ("cuStreamCreate=2,hipStreamCreateWithFlags=2", {"nvidia": "cuStreamCreate", "amd": "hipStreamCreateWithFlags"})])
def test_a_sidecar_whose_contexts_are_refused_is_ready(gpus, start_sidecar, monkeypatch, failure, why):
    monkeypatch.setenv("GANTRY_FAKE_GPU_FAIL", failure)
    expect_no_gpu(start_sidecar("a", workers=2), why[vendor()])


def test_a_driver_that_ends_its_process_costs_the_gpus_alone(gpus, start_sidecar, monkeypatch):
    monkeypatch.setenv("GANTRY_FAKE_GPU_FAIL", "cuInit=-1,hipInit=-1")
    sidecar = start_sidecar("a", workers=2)
    expect_no_gpu(sidecar, "without the GPU's driver")
    workers = sidecar.ask("GET", "/v1/status")[1]["workers"]
    assert all(worker["asks_for_gpu"] and "without the GPU's driver" in worker["no_gpu_because"] for worker in workers)
    findings = json.loads(run("doctor", "--json", "--socket", sidecar.api_socket).stdout)["findings"]
    assert {finding["level"] for finding in findings if finding["subject"].startswith("copy worker")} == {"warn"}


def test_a_refused_worker_asks_again_when_there_is_room(gpus, start_sidecar, start_gpu_workload, monkeypatch):
    """The engine took all memory before the sidecar started, and gives some back."""
    engine = start_gpu_workload(start_sidecar("engine", workers=1, flags=("--gpu-workers", "0")), "engine", 0)
    monkeypatch.setenv("GANTRY_FAKE_CONTEXT_MIB", "1000")
    engine.do("allocate", "weights", 3500 << 20)
    sidecar = start_sidecar("a", workers=2, flags=("--gpu-retry-ms", "200"))
    homes = homes_of(sidecar)
    assert [bool(home) for home in homes] == [False, True]
    refused = sidecar.ask("GET", "/v1/status")[1]["workers"][0]
    assert refused["asks_for_gpu"] and NO_MEMORY[vendor()] in refused["no_gpu_because"], refused
    assert metric(sidecar, "gantry_ipc_workers_refused") == 1 and metric(sidecar, "gantry_ipc_workers") == 1
    doctor = run("doctor", "--json", "--socket", sidecar.api_socket)
    said = {finding["subject"]: finding for finding in json.loads(doctor.stdout)["findings"]}
    assert said["copy worker 0"]["level"] == "warn" and NO_MEMORY[vendor()] in said["copy worker 0"]["said"], said
    assert said[homes[1]]["level"] == "ok" and "copy workers" in said[homes[1]]["said"], said
    pids = workers_of(sidecar)
    engine.do("free", "weights")
    wait_for(lambda: all(homes_of(sidecar)), 10, lambda: homes_of(sidecar))
    assert workers_of(sidecar) == pids and metric(sidecar, "gantry_worker_restarts_total") == 0
    assert metric(sidecar, "gantry_ipc_workers_refused") == 0 and metric(sidecar, "gantry_ipc_workers") == 2


@pytest.mark.amd_runs(workers=8, share=-1)
@pytest.mark.parametrize("workers, share, copying", [(2, 2, 2), (4, 4, 4), (6, 6, 6), (8, 8, 8), (8, -1, 6), (6, 3, 3)])
def test_all_workers_with_a_gpu_copy(gpus, start_sidecar, start_gpu_workload, workers, share, copying):
    """Between both GPUs, in either direction, and no others do."""
    sidecar = start_sidecar("a", workers=workers, flags=("--gpu-workers", str(share), "--gpu-copies", "engines"))
    assert len([home for home in homes_of(sidecar) if home]) == copying == metric(sidecar, "gantry_ipc_workers")
    into = GpuMemory(start_gpu_workload(sidecar, "reader", 0), "into", 18 * MiB)
    out = GpuMemory(start_gpu_workload(sidecar, "owner", 1), "out", 18 * MiB)
    block, count, mine, theirs = 4096, 4096, 512, MiB + 1536
    into.register(("kv", mine, block * count, BOTH, block))
    out.register(("kv", theirs, block * count, BOTH, block))
    shuffled = random.Random(workers)
    for operation in ("read", "write"):
        local, remote = (shuffled.sample(range(count), count) for _ in range(2))
        body = {"workload": "reader", "op": operation, "local": ["kv"], "remote": ["owner/kv"], "local_blocks": local,
                "remote_blocks": remote}
        view = succeeded(sidecar.ask("POST", "/v1/transfers?wait_ms=20000", body))
        assert view["workers"] == copying, view
        for here, there in zip(local, remote):
            if operation == "read":
                into.receives(mine + here * block, out, theirs + there * block, block)
            else:
                out.receives(theirs + there * block, into, mine + here * block, block)
        into.check()
        out.check()
