"""Runs of gantry-bench: short ones, a long one in the background, and the processes that it starts."""

import os
import subprocess
from pathlib import Path

import pytest

from conftest import BIN_DIR, ask
from workloads import wait_for

GANTRY_BENCH = str(BIN_DIR / "gantry-bench")
QUICK = ["--bytes", "16MiB", "--workers", "1", "-n", "2"]


def bench(*words, **options):
    return subprocess.run([GANTRY_BENCH, *map(str, words)], capture_output=True, text=True, timeout=120, **options)


def processes_in(folder):
    """The ids of the processes whose command lines name this folder."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and str(folder).encode() in (entry / "cmdline").read_bytes():
                found.append(entry.name)
        except OSError:
            pass
    return found


@pytest.fixture
def running_bench(folder, request):
    """A long benchmark in the background, and the API socket of the sidecar that it drives; a parameter is more options."""
    more = getattr(request, "param", [])
    process = subprocess.Popen([GANTRY_BENCH, "--bytes", "64MiB", "--workers", "1", "-n", "1000", *more],
                               env=os.environ | {"TMPDIR": str(folder)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def first_transfer():
        for path in folder.glob("gantry-bench-*/local/api.sock"):
            try:
                if ask(path, "GET", "/v1/transfers")[1]["transfers"]:
                    return path
            except OSError:
                pass
        return None

    try:
        yield process, wait_for(first_transfer, 30, "a transfer of the benchmark")
    finally:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=20)
