"""tests/rdma/guest itself, on the host: what comes back from a guest, and what is said where there is none."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GUEST = ROOT / "tests" / "rdma" / "guest"
NO_GUEST, TIME_LIMIT = 125, 124


def run(*arguments, cwd=ROOT, **environment):
    environment = {**os.environ, "GANTRY_TEST_RDMA": "", **environment}
    return subprocess.run([GUEST, *arguments], cwd=cwd, env=environment, capture_output=True, text=True)


def test_a_command_gets_what_it_is_called_with_and_its_outcome_comes_back(tmp_path):
    folder = tmp_path / "with, a comma"
    folder.mkdir()
    script = ('printf "<%s>" "$@"; echo "$SAYS"; pwd; cat; ls /sys/class/infiniband; echo "$GANTRY_TEST_RDMA" >kept; '
              f'echo lost >{tmp_path}/lost; echo aside >/dev/stderr; exit 42')
    result = run("--rw", str(folder), "bash", "-c", script, "x", "two words", "", "it's $HOME\n",
                 cwd=folder, SAYS='a "line"\nmore')
    assert result.stdout == f'<two words><><it\'s $HOME\n>a "line"\nmore\n{folder}\nrxe0\n'
    assert (result.stderr, result.returncode) == ("aside\n", 42)
    assert (folder / "kept").read_text() == "guest\n"
    assert not (tmp_path / "lost").exists()


def fake_qemu(folder, script):
    """A PATH on which QEMU is this script; $job is the folder that the guest would report to."""
    script = f"""echo boot >>{folder}/boots
job=$(printf '%s\\n' "$@" | sed -n 's/^local,path=\\(.*\\),mount_tag=job,.*/\\1/p')
{script}"""
    program = folder / "qemu-system-x86_64"
    program.write_text("#!/bin/sh\n" + script)
    program.chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def test_a_boot_that_dies_is_repeated_once_and_then_said(tmp_path):
    path = fake_qemu(tmp_path, "echo no machine >&2; exit 1\n")
    result = run("true", PATH=path)
    assert result.returncode == NO_GUEST
    assert result.stderr.count("no machine") == 2
    assert (tmp_path / "boots").read_text() == "boot\nboot\n"


def test_a_command_that_has_begun_is_never_run_again(tmp_path):
    path = fake_qemu(tmp_path, ': >"$job/started"\n')
    result = run("true", PATH=path)
    assert result.returncode == NO_GUEST
    assert "died while it ran the command" in result.stderr
    assert (tmp_path / "boots").read_text() == "boot\n"


def test_a_guest_is_ended_at_the_time_limit_and_leaves_nothing(tmp_path):
    path = fake_qemu(tmp_path, f': >"$job/started"; echo $$ >{tmp_path}/pid; exec sleep 100\n')
    left = tmp_path / "left"
    left.mkdir()
    result = run("--timeout", "10", "true", PATH=path, TMPDIR=str(left))
    assert result.returncode == TIME_LIMIT
    assert "time limit of 10 s" in result.stderr
    assert not Path("/proc", (tmp_path / "pid").read_text().strip()).exists()
    assert list(left.iterdir()) == []


def test_a_kernel_that_cannot_be_had_is_named_with_what_to_do(tmp_path):
    result = run("true", GANTRY_CACHE=str(tmp_path), GANTRY_TEST_RDMA_KERNEL="linux-image-of-nowhere")
    assert result.returncode == NO_GUEST
    assert "linux-image-of-nowhere cannot be downloaded" in result.stderr
    assert "apt-get update" in result.stderr


@pytest.mark.skipif(any(Path("/sys/class").glob("infiniband/*")), reason="this machine has RDMA devices")
def test_a_machine_without_devices_is_not_taken_for_real():
    result = run("true", GANTRY_TEST_RDMA="real")
    assert result.returncode == NO_GUEST
    assert "no RDMA device on this machine" in result.stderr
