"""A limit of file sizes bounds shared memory too: a process that meets it says so, and no SIGXFSZ ends it."""

import subprocess

import pytest

from conftest import BIN_DIR


def run_sidecar(folder, bytes_max, *options):
    command = ["prlimit", f"--fsize={bytes_max}", str(BIN_DIR / "gantry-sidecar"), "--run-dir", str(folder), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=20)


def test_a_sidecar_says_which_limit_it_met(folder):
    result = run_sidecar(folder, 4096)
    assert result.returncode == 1, result
    assert "allocating shared memory: File too large" in result.stderr
    assert "raise RLIMIT_FSIZE" in result.stderr


@pytest.mark.parametrize("bytes_max", [0, 20])
def test_a_termination_log_is_cut_at_the_limit(folder, bytes_max):
    log = folder / "termination-log"
    log.touch()
    result = run_sidecar(folder, bytes_max, "--termination-log", str(log))
    assert result.returncode == 1, result
    assert log.read_text() == "the sidecar cannot start"[:bytes_max]
