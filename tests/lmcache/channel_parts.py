"""Shared by the cases with bare channels."""

import contextlib
import os
import signal
import time
from pathlib import Path

from programs import READ_DEADLINE, free_port, until

MIB = 1 << 20
SIZE = 64 * MIB
RESTART_WAIT = 6
AT_ONCE_SECONDS = 0.1
REQUEST_SECONDS = 10  # a request waits so long for a sidecar that stands still
AT_ONCE = 64  # reads of a channel
QUIESCE_SECONDS = 2  # --quiesce-ms-max
BUFFERS = 2  # of a channel: memory and fences


def opened(channels, sidecar, url=None, size=SIZE, **settings):
    """(a process with a channel, its URL)"""
    process, url = channels.process(), url or f"127.0.0.1:{free_port()}"
    process.open(url, {"run_dir": str(sidecar.run_dir), "read_deadline": READ_DEADLINE, "restart_wait": RESTART_WAIT, **settings}, size)
    return process, url


@contextlib.contextmanager
def stopped(sidecar):
    """The sidecar stands still meanwhile; its workers go on."""
    os.kill(sidecar.process.pid, signal.SIGSTOP)
    tasks = Path(f"/proc/{sidecar.process.pid}/task")
    until(lambda: all((task / "stat").read_text().rpartition(")")[2].split()[0] == "T" for task in tasks.iterdir()), 10, "it stands still")
    try:
        yield
    finally:
        os.kill(sidecar.process.pid, signal.SIGCONT)


@contextlib.contextmanager
def slow_workers(sidecar):
    """Its workers stand still as well."""
    tasks = Path(f"/proc/{sidecar.process.pid}/task").glob("*/children")
    workers = [int(word) for children in tasks for word in children.read_text().split()]
    assert workers
    for worker in workers:
        os.kill(worker, signal.SIGSTOP)
    try:
        yield
    finally:
        for worker in workers:
            with contextlib.suppress(ProcessLookupError):  # killed with its sidecar
                os.kill(worker, signal.SIGCONT)


def running(sidecar):
    return [found for found in sidecar.ask("GET", "/v1/transfers?active=true")[1]["transfers"] if found["state"] == "running"]


def peers_of(sidecar):
    return [peer["name"] for peer in sidecar.ask("GET", "/v1/peers")[1]["peers"]]


def read_some(reader, owner, url, count=100, size=40_000, seconds=20):
    """Reads objects at odd places into others, compares them, and what lies around them."""
    reader.fill(0, SIZE, 0)
    mine = [(number * 65_536 + 4096, size) for number in range(count)]
    theirs = [(SIZE - (number + 1) * 100_000, size) for number in range(count)]
    flags = reader.read(url, mine, theirs, seconds)
    if flags != [True] * count:
        return flags
    for (place, _), (other, _) in zip(mine, theirs):
        assert reader.bytes(place, size) == owner.bytes(other, size)
        assert reader.bytes(place - 4096, 4096) == bytes(4096) == reader.bytes(place + size, 4096)
    return flags


def end_of(reader, url, task):
    """The flags of the objects."""
    return until(lambda: (found := reader.query(url, task))[0] and found[1], 20, "the read ends")


def heals(reader, owner, url, seconds=20):
    until(lambda: read_some(reader, owner, url, 2)[0] is True, seconds, "reads succeed again")
