"""tools/demo (make run) with its cache on GPUs, over the fake of either vendor: it moves, compares every byte, and says so."""

import os
import re
import subprocess
import sys

import pytest

from conftest import BIN_DIR, ROOT
import workloads  # sets GANTRY_LIBRARY, beside which the fakes are

LIBRARIES = {"fake": "libcuda.so.1", "fake-hip": "libamdhip64.so.7"}


def demo(gpu, **environment):
    """Its exit status and what it printed, of a prompt that is as short as one can be."""
    process = subprocess.run([sys.executable, ROOT / "tools" / "demo", "--bin-dir", BIN_DIR, "--gpu", gpu, "--tokens", "256",
                              "--workers", "1", "--repeat", "1"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True, timeout=110, env=os.environ | environment)
    return process.returncode, process.stdout


@pytest.mark.parametrize("gpu", LIBRARIES)
def test_a_cache_moves_between_gpus_and_to_the_host(gpu):
    code, said = demo(gpu)
    assert code == 0, said
    assert ("AMD" in said) == (gpu == "fake-hip"), said
    assert re.search(r"GPU 0 to GPU 1 +GPU 0 to the host's memory", said), said
    assert re.search(r"^  path +ipc +ipc", said, re.M), said
    assert len(re.findall(r"(?:decode|prefill): all [0-9.]+ GiB compared", said)) == 3, said


def test_it_runs_without_standard_streams():
    command = [sys.executable, ROOT / "tools" / "demo", "--bin-dir", BIN_DIR, "--tokens", "256", "--workers", "1", "--repeat", "1"]
    assert subprocess.run(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *command], timeout=110, check=False).returncode == 0


@pytest.mark.parametrize("gpu, library", LIBRARIES.items())
def test_it_is_that_vendors_library_which_is_used(gpu, library):
    code, said = demo(gpu, GANTRY_FAKE_GPU_FAIL="cuInit=100,hipInit=100")
    assert code == 1 and "this process has no GPU: " in said and f"{library} sees no GPU" in said, said
