"""kill -9 in the middle of a transfer between GPUs: it ends in time, and the memory is free again as soon as its owner is gone."""

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from gpu_workloads import REAL, gpu_count, gpus, start_gpu_workload, vendor
from workloads import BOTH, MiB, TERMINAL, connect, ended, resume, send, wait_for, workers_of

pytestmark = pytest.mark.both_vendors

BLOCK = 1024
BLOCKS = (256 if REAL else 128) * MiB // BLOCK
DEADLINE_SECONDS = 5
QUIET_SECONDS = 2 + 1  # --quiesce-ms-max, and a margin
FREED_SECONDS = 2
SLACK = 16 * MiB  # of what others take and give back of a GPU meanwhile


def used_of(workload):
    """Bytes of the workload's GPU that somebody else than its driver says are used, by whomever; 0 on the fake, of which nobody
    knows."""
    if not REAL:
        return 0
    uuid = workload.do("device_uuid")
    if vendor() == "nvidia":
        return int(subprocess.check_output(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits",
                                            "--id=" + uuid], text=True)) * MiB
    for device in Path("/sys/class/drm").glob("card*/device"):  # as rocm-smi reads it
        number = device / "unique_id"
        known_as = number.read_text().strip().lower() if number.exists() else device.resolve().name
        if uuid.startswith(f"GPU-{known_as}"):
            return int((device / "mem_info_vram_used").read_text())
    raise AssertionError(f"the kernel knows no GPU {uuid}")


class Moving:
    """Workload "reader" of a reads small blocks of "owner" of b, in random order and by copy engines, so that it takes long."""

    def __init__(self, start_sidecar, start_gpu_workload):
        self.a, self.b = (start_sidecar(name, workers=2, flags=["--gpu-copies", "engines"]) for name in "ab")
        connect(self.a, self.b)
        connect(self.b, self.a)
        gpu = min(1, gpu_count() - 1)
        self.watcher = start_gpu_workload(self.a, "watcher", gpu)
        self.reader, self.owner = start_gpu_workload(self.a, "reader", 0), start_gpu_workload(self.b, "owner")
        before, used_before = self.free(), used_of(self.watcher)
        self.owner.do("use_gpu", gpu)
        for workload, name in ((self.owner, "out"), (self.reader, "into")):
            workload.do("allocate", name, BLOCK * BLOCKS)
            if workload is self.owner:
                self.owner_bytes = before - self.free()  # with its context
                self.seen_from_outside = used_of(self.watcher) - used_before
            workload.do("register_gpu", name, ("kv", 0, BLOCK * BLOCKS, BOTH, BLOCK))
        assert self.owner_bytes >= BLOCK * BLOCKS
        assert not REAL or self.seen_from_outside >= BLOCK * BLOCKS
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
            # What a worker had done before it stood still is counted by one look and seen by the next.
            view, moved = self.shown(executing), None
            while view["bytes_moved"] != moved:
                moved, view = view["bytes_moved"], self.shown(executing)
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

    def memory(self):
        """(free, used): what the driver says, and who looks from outside."""
        return self.free(), used_of(self.watcher)

    def is_free_without_its_owner(self, before):
        gone = time.monotonic()
        os.kill(self.owner.pid, signal.SIGKILL)
        self.comes_back(before, gone)

    def comes_back(self, before, gone):
        free, used = before
        wait_for(lambda: self.free() >= free + self.owner_bytes - SLACK, gone + FREED_SECONDS - time.monotonic(),
                 lambda: f"{self.owner_bytes >> 20} MiB more than the {free >> 20} that were free, and now {self.free() >> 20}")
        wait_for(lambda: used_of(self.watcher) <= used - self.seen_from_outside + SLACK,
                 gone + FREED_SECONDS - time.monotonic(),
                 lambda: f"somebody else says {used_of(self.watcher) >> 20} MiB are used of {used >> 20}, of which the owner had"
                         f" {self.seen_from_outside >> 20}")


@pytest.fixture
def moving(gpus, start_sidecar, start_gpu_workload):
    return Moving(start_sidecar, start_gpu_workload)


def both_workers(sidecar):
    return wait_for(lambda: len(workers_of(sidecar)) == 2, 20, "both workers")


by_either = pytest.mark.parametrize("executor", ["self", "peer"])


@by_either
def test_the_owner_of_the_memory(moving, executor):
    workers, submitted = moving.hold(executor)
    before = moving.memory()
    killed = time.monotonic()
    os.kill(moving.owner.pid, signal.SIGKILL)
    resume(workers)
    moving.comes_back(before, killed)
    view = moving.ends(moving.a, submitted)
    # Stopped when its owner's --workload-end-ms is over; of a peer's execution that is told as the peer's loss.
    codes = ("peer_lost", "draining") if executor == "self" else ("peer_lost",)
    assert view["state"] == "succeeded" or view["error"]["code"] in codes, view
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
    moving.is_free_without_its_owner(moving.memory())


@by_either
@pytest.mark.parametrize("asked", [True, False], ids=["that-asked", "of-the-owner"])
def test_a_sidecar(moving, executor, asked):
    """Its workers go with it, and the other one's transfer ends, and so do that one's mappings of what was the dead one's: nobody
    could tell it any more that memory is gone."""
    dead, other = (moving.a, moving.b) if asked else (moving.b, moving.a)
    workers, submitted = moving.hold(executor)
    executes = (executor == "self") == asked
    own = workers if executes else workers_of(dead)
    dead.kill()
    resume([] if executes else workers)
    wait_for(lambda: all(ended(pid) for pid in own), FREED_SECONDS, "its workers to go with it")
    if executor == "peer" or not asked:  # the other one has something of it
        view = moving.ends(other, submitted)
        if executor == "peer":
            # The call of the one that asked ends with it, and so does its session: whichever is noticed first.
            endings = {("failed", "peer_lost")} | ({("cancelled", "cancelled")} if asked else set())
            assert (view["state"], view["error"]["code"]) in endings, view
    if not asked:
        wait_for(lambda: other.ask("GET", "/v1/peers/b")[1]["state"] == "down", FREED_SECONDS, "a to notice")
    both_workers(other)
    moving.is_free_without_its_owner(moving.memory())
