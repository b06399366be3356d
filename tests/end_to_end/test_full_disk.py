"""Sidecars whose disk is full: run folders, node folder and logs lie on it. What moves needs none of it."""

import errno
import os
import signal
import subprocess

import pytest

from conftest import BIN_DIR, SidecarProcess
from test_peers_over_tcp import TCP, tcp_address
from workloads import MiB, Scene, connect, new_memory, send, start_workload, wait_for, workers_of

SIZE = 16 * MiB


@pytest.fixture
def disk(folder):
    """A file system of one megabyte and few files."""
    if os.geteuid() != 0:
        pytest.skip("mounting a file system needs root")
    path = folder / "disk"
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,nr_inodes=64", "none", path], check=True)
    yield path
    subprocess.run(["umount", "--lazy", path], check=True)


@pytest.fixture
def start_there(disk):
    started = []

    def start(name, **options):
        started.append(SidecarProcess(name, disk, **options))
        return started[-1].start()

    yield start
    for sidecar in started:
        sidecar.kill()


def fill(disk):
    """Not a byte is left, nor a file."""
    with pytest.raises(OSError) as full:
        with open(disk / "filler", "ab", buffering=0) as filler:
            while True:
                filler.write(bytes(4096))
    assert full.value.errno == errno.ENOSPC
    with pytest.raises(OSError):
        for number in range(100):
            (disk / f"file-{number}").touch()


def empty(disk):
    for path in [disk / "filler", *disk.glob("file-*")]:
        path.unlink()


@pytest.mark.parametrize("path", ["shm", "tcp"])
def test_a_full_disk_keeps_nobody_from_moving_bytes(disk, start_there, start_workload, new_memory, path):
    def start(name):
        sidecar = start_there(name, flags=TCP if path == "tcp" else [])
        if path == "tcp":
            sidecar.address = tcp_address(sidecar)
        return sidecar

    scene = Scene(start, start_workload, new_memory, SIZE)
    assert scene.read()[1]["path"] == path
    fill(disk)
    written = len(scene.a.log)
    scene.everything_works()
    # Each of these writes to the log, or would.
    worker, = workers_of(scene.a)
    send([worker], signal.SIGKILL)
    wait_for(lambda: workers_of(scene.a) not in ([], [worker]), 10, "another worker")
    scene.everything_works()
    assert scene.a.ask("DELETE", "/v1/peers/b")[0] == 204
    connect(scene.a, scene.b)
    scene.reader.kill()
    wait_for(lambda: not scene.target.mapped_by(workers_of(scene.a)), 5, "the end of the reader")
    scene.start_reader()
    scene.everything_works()
    assert scene.a.ask("GET", "/v1/nothing")[0] == 404
    assert len(scene.a.log) - written < 4096, "the disk was not full"
    empty(disk)
    scene.reader.kill()
    wait_for(lambda: len(scene.a.log) > written + 100, 5, "the log to go on")
    scene.start_reader()
    scene.everything_works()
    assert scene.a.stop() == 0 and scene.b.stop() == 0


def test_who_cannot_start_for_a_full_disk_says_so(disk, start_there):
    (disk / "run").mkdir()
    fill(disk)
    result = subprocess.run([BIN_DIR / "gantry-sidecar", "--name", "a", "--run-dir", disk / "run", "--workers", "1"],
                            capture_output=True, text=True, timeout=20)
    assert result.returncode == 1
    assert "No space left on device" in result.stderr and str(disk / "run") in result.stderr, result.stderr
    empty(disk)
    start_there("run")
