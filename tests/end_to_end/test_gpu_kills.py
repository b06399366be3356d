"""kill -9 in the middle of a transfer between GPUs: it ends in time, and the memory is free again as soon as its owner is gone."""

import os
import random
import signal
import time

import pytest

from gpu_workloads import REAL, gpu_count, gpus, start_gpu_workload
from workloads import BOTH, MiB, TERMINAL, connect, ended, send, wait_for, workers_of

BLOCK = 1024
BLOCKS = (256 if REAL else 128) * MiB // BLOCK
DEADLINE_SECONDS = 5
QUIET_SECONDS = 2 + 1  # --quiesce-ms-max, and a margin
FREED_SECONDS = 2
SLACK = 16 * MiB  # of what others take and give back of a GPU meanwhile


class Moving:
    """Workload "reader" of a reads small blocks of "owner" of b, in random order and by copy engines, so that it takes long."""

    def __init__(self, start_sidecar, start_gpu_workload):
        self.a, self.b = (start_sidecar(name, workers=2, flags=["--gpu-copies", "engines"]) for name in "ab")
        connect(self.a, self.b)
        connect(self.b, self.a)
        gpu = min(1, gpu_count() - 1)
        self.watcher = start_gpu_workload(self.a, "watcher", gpu)
        self.reader, self.owner = start_gpu_workload(self.a, "reader", 0), start_gpu_workload(self.b, "owner")
        before = self.free()
        self.owner.do("use_gpu", gpu)
        for workload, name in ((self.owner, "out"), (self.reader, "into")):
            workload.do("allocate", name, BLOCK * BLOCKS)
            if workload is self.owner:
                self.owner_bytes = before - self.free()  # with its context
            workload.do("register_gpu", name, ("kv", 0, BLOCK * BLOCKS, BOTH, BLOCK))
        assert self.owner_bytes >= BLOCK * BLOCKS
        shuffled = random.Random(41)
        self.body = {"workload": "reader", "op": "read", "local": ["kv"], "remote": ["b/owner/kv"],
                     "deadline_ms": DEADLINE_SECONDS * 1000, "local_blocks": shuffled.sample(range(BLOCKS), BLOCKS),
                     "remote_blocks": shuffled.sample(range(BLOCKS), BLOCKS)}

    def free(self):
        return self.watcher.do("free_bytes")

    def shown(self, sidecar):
        """The newest transfer: of the reader, or what b executes for it."""
        workload = "reader" if sidecar is self.a else "owner"
        transfers = sidecar.ask("GET", f"/v1/transfers?workload={workload}")[1]["transfers"]
        return transfers[0] if transfers else {"state": "asked for", "bytes_moved": 0}

    def hold(self, executor):
        """Stops the workers that execute it when some bytes have moved. (workers, when it was submitted)"""
        executing = self.a if executor == "self" else self.b
        workers = workers_of(executing)
        for _ in range(10):
            submitted = time.monotonic()
            status, view = self.a.ask("POST", "/v1/transfers", {**self.body, "executor": executor})
            assert status == 202, view
            self.id = view["id"]
            before = wait_for(lambda: (view := self.shown(executing)) and view["bytes_moved"] and view, DEADLINE_SECONDS)
            send(workers, signal.SIGSTOP)
            view = self.shown(executing)
            if view["state"] == "running" and 0 < before["bytes_moved"] <= view["bytes_moved"] < view["bytes"]:
                return workers, submitted
            send(workers, signal.SIGCONT)
            self.ends(self.a, submitted)
        raise AssertionError("transfers end before a worker can be stopped: make them larger")

    def ends(self, sidecar, submitted):
        """Its view, in a terminal state and in time."""
        left = submitted + DEADLINE_SECONDS + QUIET_SECONDS - time.monotonic()
        view = wait_for(lambda: (view := self.shown(sidecar))["state"] in TERMINAL and view, left,
                        lambda: f"the end of {self.shown(sidecar)}")
        assert (view["state"] == "succeeded") == ("error" not in view), view
        return view

    def is_free_without_its_owner(self, before):
        gone = time.monotonic()
        os.kill(self.owner.pid, signal.SIGKILL)
        self.comes_back(before, gone)

    def comes_back(self, before, gone):
        wait_for(lambda: self.free() >= before + self.owner_bytes - SLACK, gone + FREED_SECONDS - time.monotonic(),
                 lambda: f"{self.owner_bytes >> 20} MiB more than the {before >> 20} that were free, and now {self.free() >> 20}")


@pytest.fixture
def moving(gpus, start_sidecar, start_gpu_workload):
    return Moving(start_sidecar, start_gpu_workload)


def resume(workers):
    for pid in workers:
        if not ended(pid):
            send([pid], signal.SIGCONT)


def both_workers(sidecar):
    return wait_for(lambda: len(workers_of(sidecar)) == 2, 20, "both workers")


by_either = pytest.mark.parametrize("executor", ["self", "peer"])


@by_either
def test_the_owner_of_the_memory(moving, executor):
    workers, submitted = moving.hold(executor)
    before = moving.free()
    killed = time.monotonic()
    os.kill(moving.owner.pid, signal.SIGKILL)
    resume(workers)
    moving.comes_back(before, killed)
    view = moving.ends(moving.a, submitted)
    assert view["state"] == "succeeded" or view["error"]["code"] == "peer_lost", view
    for sidecar in (moving.a, moving.b):
        both_workers(sidecar)
    assert moving.b.ask("GET", "/v1/workloads/owner")[0] == 404


@by_either
def test_a_worker_that_copies(moving, executor):
    workers, submitted = moving.hold(executor)
    os.kill(workers[0], signal.SIGKILL)
    resume(workers[1:])
    view = moving.ends(moving.a, submitted)
    assert view["state"] == "succeeded" or view["error"]["code"] == "worker_lost", view
    executing = moving.a if executor == "self" else moving.b
    both_workers(executing)
    assert workers[0] not in workers_of(executing)
    moving.is_free_without_its_owner(moving.free())


@by_either
def test_the_sidecar_that_asked(moving, executor):
    workers, submitted = moving.hold(executor)
    own = workers_of(moving.a) if executor == "peer" else workers
    moving.a.kill()
    resume([pid for pid in workers if executor == "peer"])
    wait_for(lambda: all(ended(pid) for pid in own), FREED_SECONDS, "its workers to go with it")
    if executor == "peer":
        view = moving.ends(moving.b, submitted)
        # Its call ends with it, and so does its session: whichever is noticed first.
        ended_as = view["state"], view["error"]["code"]
        assert ended_as in (("failed", "peer_lost"), ("cancelled", "cancelled")), view
    both_workers(moving.b)
    moving.is_free_without_its_owner(moving.free())


@by_either
def test_the_sidecar_of_the_owner(moving, executor):
    """A's transfer ends, and so do its mappings of what was b's: nobody could tell it that the memory is gone."""
    workers, submitted = moving.hold(executor)
    own = workers_of(moving.b) if executor == "self" else workers
    moving.b.kill()
    resume([pid for pid in workers if executor == "self"])
    wait_for(lambda: all(ended(pid) for pid in own), FREED_SECONDS, "its workers to go with it")
    view = moving.ends(moving.a, submitted)
    if executor == "peer":
        assert (view["state"], view["error"]["code"]) == ("failed", "peer_lost"), view
    wait_for(lambda: moving.a.ask("GET", "/v1/peers/b")[1]["state"] == "down", FREED_SECONDS, "a to notice")
    both_workers(moving.a)
    moving.is_free_without_its_owner(moving.free())
