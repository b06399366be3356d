"""client/python/examples/move_kv_cache.py as docs/getting_started_pytorch.md runs it.

With memory of the host; with PyTorch's tensors where GANTRY_GPU=real and PyTorch is installed (tests/gpu/run).
"""

import importlib.util
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from conftest import BIN_DIR, ROOT
from gpu_workloads import REAL, gpu_count
from workloads import totals_of, wait_for

PACKAGE = ROOT / "client" / "python"
EXAMPLE = PACKAGE / "examples" / "move_kv_cache.py"
SECONDS = 110
BLOCK_BYTES = 32 << 10
sys.path.insert(0, str(EXAMPLE.parent))
import move_kv_cache

on_gpus = pytest.mark.skipif(not REAL or importlib.util.find_spec("torch") is None,
                             reason="needs GPUs (GANTRY_GPU=real) and PyTorch: make test-gpu")


def run_example(*words, **environment):
    """Its exit code, stdout and stderr, once no process that it started is left."""
    paths = [str(PACKAGE), *filter(None, [os.environ.get("PYTHONPATH")])]
    process = subprocess.Popen([sys.executable, EXAMPLE, *map(str, words)], stdin=subprocess.DEVNULL, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
                               env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)} | environment)
    try:
        out, errors = process.communicate(timeout=SECONDS)
        wait_for(lambda: not alive_in(process.pid), 10, "the end of all that the example started")
    except BaseException:
        if alive_in(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
        raise
    return process.returncode, out, errors


def alive_in(group):
    """Processes of a process group; those that ended and were not waited for left out."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, its_group = stat.read_text().rpartition(")")[2].split()[:3]
        except (OSError, ValueError):
            continue
        if int(its_group) == group and state not in "ZX":
            found.append(int(stat.parent.name))
    return found


def moved_everything(result, tensors, blocks, path):
    """Checks what a run said that pulled `blocks` of each of `tensors`; returns its stdout."""
    code, out, errors = result
    assert code == 0, out + errors
    for which in ("first", "again"):
        said = re.search(rf"consumer: {which}: ([0-9,]+) bytes, {blocks} blocks of each of {tensors} tensors, "
                         rf"by {path} in [0-9.]+ ms, [0-9.]+ GB/s", out)
        assert said, out + errors
        assert int(said[1].replace(",", "")) == tensors * blocks * BLOCK_BYTES
    assert "every byte of the cache was compared" in out
    return out


def test_memory_of_the_host_with_sidecars_of_its_own():
    result = run_example("--memory", "host", "--layers", 2, "--blocks", 40, "--move", 13, "--workers", 1,
                         "--program", BIN_DIR / "gantry-sidecar")
    out = moved_everything(result, tensors=4, blocks=13, path="shm")
    assert "producer: registered 4 tensors of 1,310,720 bytes, in 1 allocations, on host" in out
    assert "  not by ipc: " in out and "  not by tcp: " in out


def test_with_sidecars_that_run_already(start_sidecar):
    a, b = start_sidecar("a"), start_sidecar("b")
    moved_everything(run_example("--memory", "host", "--layers", 1, "--blocks", 8, "--sidecar", a.run_dir, b.api_socket),
                     tensors=2, blocks=4, path="shm")
    for sidecar in (a, b):  # nothing stays behind
        wait_for(lambda: totals_of(sidecar)["buffers"] == 0, 5, "the buffers to go")


@pytest.mark.parametrize("missing", ["producer", "consumer"])
def test_an_error_is_shown_as_the_package_says_it(start_sidecar, folder, missing):
    there = start_sidecar("a").run_dir
    sidecars = [folder / "none", there] if missing == "producer" else [there, folder / "none"]
    code, out, errors = run_example("--memory", "host", "--layers", 1, "--blocks", 2, "--sidecar", *sidecars)
    assert code == 1 and "by shm" not in out
    assert f"move_kv_cache: peer_unavailable: PUT /v1/workloads/{missing}" in errors
    assert "is the sidecar running" in errors and "Traceback" not in errors


def test_a_block_that_is_wrong_is_found():
    blocks, source_of = 4, {1: 3, 2: 0}
    right = b"".join(move_kv_cache.content("producer", 0, source_of[block]) if block in source_of else
                     move_kv_cache.content("consumer", 0, block) for block in range(blocks))

    def wrong(data):
        return move_kv_cache.wrong_blocks(SimpleNamespace(tensors=[None], read=lambda _: data), blocks, source_of)

    assert wrong(right) == []
    for block, moved in ((0, "not moved"), (1, "moved")):
        for at in (0, BLOCK_BYTES - 1):
            data = bytearray(right)
            data[block * BLOCK_BYTES + at] ^= 1
            assert wrong(data) == [f"block {block} of tensor 0, which was {moved}"]


@on_gpus
@pytest.mark.parametrize("allocator", ["default", "expandable"])
@pytest.mark.parametrize("devices", [("cuda:0", "cuda:1"), ("cuda:0", "cuda:0")], ids=["two-gpus", "one-gpu"])
def test_tensors_of_pytorch(devices, allocator, capsys):
    if "cuda:1" in devices and gpu_count() < 2:
        pytest.skip("there is one GPU")
    result = run_example("--device", *devices, "--allocator", allocator, "--program", BIN_DIR / "gantry-sidecar")
    out = moved_everything(result, tensors=64, blocks=128, path="ipc")
    with capsys.disabled():  # the times belong into the log
        print(f"\n{out}")
    for workload, device in zip(("producer", "consumer"), devices):
        said = re.search(rf"{workload}: registered 64 tensors of 8,388,608 bytes, in (\d+) allocations, on {device}", out)
        assert said and int(said[1]) < 64, out  # so tensors lie inside of allocations, not each at the base of one
    assert "  not by shm: the local buffer is not host memory" in out


@on_gpus
def test_stream_ordered_memory_of_pytorch_is_refused():
    code, out, errors = run_example("--layers", 1, "--blocks", 8, "--workers", 1,
                                    "--program", BIN_DIR / "gantry-sidecar",
                                    PYTORCH_CUDA_ALLOC_CONF="backend:cudaMallocAsync")
    assert code == 1, out + errors
    assert "move_kv_cache: not_exportable: " in errors and "stream-ordered memory (cudaMallocAsync" in errors
