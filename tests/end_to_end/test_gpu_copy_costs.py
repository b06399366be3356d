"""The costs of copies between GPUs: measured at the start, set, or the fallback. /v1/status shows them, and they choose the means."""

import random
import subprocess

import pytest

from conftest import BIN_DIR, FALLBACK_COSTS
from gpu_workloads import REAL, GpuPair, gpus, start_gpu_workload
from workloads import MiB, wait_for

pytestmark = pytest.mark.skipif(REAL, reason="only the fake's speeds are known")


@pytest.fixture(autouse=True)
def measured_costs(monkeypatch):
    monkeypatch.delenv("GANTRY_GPU_COPY_COSTS")

KiB = 1 << 10
SPEEDS = "kernel=100,block=2500,row=500,row_byte=0.03"
AT_THESE = {"block_ns": 4_250, "kernel_mb_s": 100_000, "row_ps": 250_000, "row_byte_fs": 30_000}


def costs_of(sidecar, gpu=0):
    return sidecar.ask("GET", "/v1/status")[1]["gpus"][gpu]["copy_costs"]


def all_from(costs, origin):
    return all(cost["origin"] == origin for name, cost in costs.items() if name != "turn_us")


def values_of(costs):
    return {name: cost["value"] for name, cost in costs.items()}


def start_measured(start_sidecar, *flags, fits=lambda sidecar: True):
    """A sidecar whose GPUs were both measured. Others on the machine may keep it from that: then another one."""
    measured = False
    for name in "abcdefghijklmnopqrst":
        sidecar = start_sidecar(name, workers=2, flags=flags)
        wait_for(lambda: sidecar.log.count("are measured") + sidecar.log.count("are not measured") == 2, 20, "two measurements")
        if "are not measured" not in sidecar.log and fits(sidecar):
            return sidecar
        measured |= "are not measured" not in sidecar.log
    if not measured:
        pytest.skip("no worker had the time to measure: the machine is too busy")
    raise AssertionError(f"{costs_of(sidecar)} {costs_of(sidecar, 1)}\n{sidecar.log}")


def is_near(costs):
    """Within what a busy machine adds, and far from the fallback."""
    return all(expected / 3 < costs[name]["value"] < expected * 3 for name, expected in AT_THESE.items())


@pytest.mark.alone
def test_status_shows_what_was_measured_of_each_gpu(gpus, start_sidecar, monkeypatch):
    monkeypatch.setenv("GANTRY_FAKE_GPU_SPEEDS", SPEEDS)
    sidecar = start_measured(start_sidecar, fits=lambda sidecar: all(is_near(costs_of(sidecar, gpu)) for gpu in range(2)))
    for gpu in range(2):
        costs = costs_of(sidecar, gpu)
        assert all_from(costs, "measured") and costs["turn_us"] == {"value": 750, "origin": "fallback"}


def test_a_measurement_that_fails_leaves_the_fallback(gpus, start_sidecar, monkeypatch):
    monkeypatch.setenv("GANTRY_FAKE_GPU_SPEEDS", SPEEDS)
    monkeypatch.setenv("GANTRY_FAKE_GPU_FAIL", "cuMemcpyBatchAsync=2")
    sidecar = start_sidecar("a", workers=2)
    wait_for(lambda: sidecar.log.count("are not measured") == 2, 10, "two failures")
    for gpu in range(2):
        costs = costs_of(sidecar, gpu)
        assert values_of(costs) == FALLBACK_COSTS and all_from(costs, "fallback"), costs


@pytest.mark.parametrize("gpus", ["amd"], indirect=True)
def test_several_amd_gpus_keep_the_fallback_and_one_line_says_so(gpus, start_sidecar):
    sidecar = start_sidecar("a", workers=2)
    wait_for(lambda: "are not measured" in sidecar.log, 10, "the line")
    sidecar.stop()
    lines = [line for line in sidecar.log.splitlines() if "are not measured" in line]
    assert len(lines) == 1 and lines[0].count("GPU-") >= 2, lines


@pytest.mark.alone
def test_what_is_set_is_neither_measured_nor_the_fallback(gpus, start_sidecar, monkeypatch):
    monkeypatch.setenv("GANTRY_FAKE_GPU_SPEEDS", SPEEDS)
    costs = costs_of(start_measured(start_sidecar, "--gpu-copy-costs", "turn_us=1500,block_ns=333"))
    assert costs["row_ps"]["origin"] == "measured"
    assert costs["block_ns"] == {"value": 333, "origin": "set"} and costs["turn_us"] == {"value": 1500, "origin": "set"}


@pytest.mark.parametrize("costs, plan", [("kernel_mb_s=375000", "kernel"), ("block_ns=20", "engines")])
def test_costs_choose_the_means_of_a_transfer(gpus, start_sidecar, start_gpu_workload, costs, plan):
    block = 16 * KiB
    pair = GpuPair(start_sidecar, start_gpu_workload, length=4 * MiB, block_bytes=block, size=8 * MiB,
                   flags=("--gpu-copy-costs", costs))
    ids = list(range(4 * MiB // block))
    mine, theirs = random.Random(3).sample(ids, len(ids)), random.Random(4).sample(ids, len(ids))
    status, view = pair.a.ask("POST", "/v1/transfers?wait_ms=20000",
                              {"workload": "reader", "op": "read", "local": ["into"], "remote": ["b/owner/out"],
                               "local_blocks": mine, "remote_blocks": theirs})
    assert (status, view["state"]) == (200, "succeeded"), view
    assert view["gpu_copies"]["plan"] == plan, view["gpu_copies"]
    assert ("feed the copy engines" in view["gpu_copies"]["reason"]) == (plan == "engines")


@pytest.mark.parametrize("wrong, said", [("speed=1", "names no cost"), ("block_ns=0", "no plausible cost"),
                                         ("row_ps=fast", "no plausible cost")])
def test_costs_that_are_none_are_refused_at_the_start(wrong, said):
    done = subprocess.run([BIN_DIR / "gantry-sidecar", "--gpu-copy-costs", wrong], capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 2 and said in done.stderr, done
