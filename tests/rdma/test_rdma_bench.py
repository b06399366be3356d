"""`gantry-bench --transport rdma` runs: what it moves is verified, and compared where there is something to compare with."""

import json
import os
import shutil
import subprocess

import pytest

from rdma_scene import MiB, folder

from conftest import BIN_DIR

BYTES = 4 * MiB


def bench(folder, *words, path=os.environ["PATH"]):
    done = subprocess.run([BIN_DIR / "gantry-bench", "--transport", "rdma", "--bytes", str(BYTES), "--workers", "1", "-n", "1",
                           *words], env=os.environ | {"TMPDIR": str(folder), "PATH": path}, capture_output=True, text=True,
                          timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("operation,block", [("write", "1MiB"), ("read", "64KiB")])
def test_bytes_are_verified_and_compared_with_perftest(folder, operation, block):
    measured = json.loads(bench(folder, "--json", "--op", operation, "--block", block))
    assert (measured["path"], measured["operation"], measured["verified"]) == ("rdma", operation, True), measured
    assert measured["bytes"] == BYTES and measured["gbps"] > 0
    if shutil.which("ib_write_bw") is None:
        assert "perftest" in measured["no_ceiling"], measured
        pytest.skip("perftest is not installed: nothing was compared")
    assert measured["ratio"] == pytest.approx(measured["gbps"] / measured["ceiling_gbps"]) and measured["ratio"] > 0


def test_without_perftest_it_is_said_and_measured_all_the_same(folder):
    measured = json.loads(bench(folder, "--json", path="/nonexistent"))
    assert measured["path"] == "rdma" and measured["verified"] and measured["gbps"] > 0, measured
    assert "ib_read_bw is not installed" in measured["no_ceiling"] and "perftest" in measured["no_ceiling"], measured
    assert not {"ratio", "ceiling_gbps", "engine_ratio", "moving_ratio"} & measured.keys(), measured
    text = bench(folder, path="/nonexistent")
    assert "nothing to compare with: ib_read_bw is not installed" in text, text
