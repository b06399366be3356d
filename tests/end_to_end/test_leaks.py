"""What stays behind when workloads, copy workers and peers die again and again: nothing.

Descriptors, mappings and private memory are compared after some rounds, when every pool has its size, and at the end.
GANTRY_LEAK_TIMES multiplies the soak's rounds. With more rounds a smaller leak of each is seen: soak-long has them.
"""

import os
import random
import signal

import pytest

from conftest import BIN_DIR
from workloads import (BOTH, MiB, connect, fd_count, map_counts, metric, new_memory, rss_bytes, send,
                       start_workload, totals_of, wait_for, workers_of)

KiB = 1 << 10
VIEW = 64 * KiB
VIEWS_OF_EACH = 8  # over two memories: 16 buffers a round
# Beyond the first rounds a sidecar keeps the statuses and events of the transfers that ended: about 2 KiB for each.
KEPT_BYTES_OF_A_ROUND = 8 * KiB
RSS_SLACK = 8 * MiB
MAPS_SLACK = 24  # arenas of malloc and stacks of threads
FILE_MAPS_SLACK = 4  # less than one in each of the quick tier's rounds; what a new worker has not mapped yet


class Footprint:
    """Descriptors, mappings and private memory of a sidecar and its copy workers."""

    def __init__(self, sidecar):
        self.pids = [sidecar.process.pid, *workers_of(sidecar)]
        self.fds = [fd_count(pid) for pid in self.pids]
        self.maps = [map_counts(pid) for pid in self.pids]
        self.rss = [rss_bytes(pid) for pid in self.pids]

    def assert_like(self, earlier, rounds):
        told = f"after {rounds} more rounds: {vars(earlier)} -> {vars(self)}"
        assert len(self.pids) == len(earlier.pids), told
        for now, then in zip(self.fds, earlier.fds):
            assert now <= then + 2, f"descriptors {told}"
        for (_, now), (_, then) in zip(self.maps, earlier.maps):
            assert now <= then + FILE_MAPS_SLACK, f"mappings of files {told}"
        if BIN_DIR.parent.name in ("asan", "tsan"):  # which keep what was freed, to see uses of it
            return
        for (now, _), (then, _) in zip(self.maps, earlier.maps):
            assert now <= then + MAPS_SLACK, f"mappings {told}"
        for now, then in zip(self.rss, earlier.rss):
            assert now <= then + RSS_SLACK + rounds * KEPT_BYTES_OF_A_ROUND, f"memory {told}"


def rounds(quick, early_quick, many):
    """(rounds, after how many the first look is) in the quick tier and in the soak."""
    many *= int(os.environ.get("GANTRY_LEAK_TIMES", "1"))
    return pytest.mark.parametrize("count, early", [
        pytest.param(quick, early_quick, id=f"{quick} rounds"),
        pytest.param(many, max(many // 10, 20), id=f"{many} rounds",
                     marks=[pytest.mark.soak, pytest.mark.timeout(300 + 2 * many)])])


def watch(sidecars, count, early, one_round):
    """Runs the rounds and compares the footprints."""
    before = None
    for number in range(1, count + 1):
        one_round(number)
        if number == early:
            before = [Footprint(sidecar) for sidecar in sidecars]
    for sidecar, then in zip(sidecars, before):
        wait_for(lambda: fd_count(sidecar.process.pid) <= then.fds[0] + 2, 3, "closing what is not needed")
        Footprint(sidecar).assert_like(then, count - early)


@rounds(100, 20, 350)
def test_workloads_that_are_killed(start_sidecar, start_workload, new_memory, count, early):
    a, b = start_sidecar("a"), start_sidecar("b")
    source = new_memory(2 * MiB, filled=True)
    owner = start_workload(b, "owner")
    owner.register(source, ("kv", 0, source.size))
    connect(a, b)
    memories = [new_memory(MiB), new_memory(MiB)]
    specs = [(f"view-{index}", index * VIEW, VIEW, BOTH, 4 * KiB) for index in range(2 * VIEWS_OF_EACH)]

    def one_round(number):
        workload = start_workload(a, f"w{number % 3}")
        workload.register(memories[0], *specs[:VIEWS_OF_EACH])
        workload.register(memories[1], *specs[VIEWS_OF_EACH:])
        first, last = specs[0][0], specs[-1][0]
        ranges = [(0, 0, 0, number * 16, VIEW)]
        assert workload.do("move", "read", first, "b/owner/kv", ranges=ranges) == ("succeeded", None)
        assert workload.do("move", "write", first, f"w{number % 3}/{last}", ranges=[(0, 0, 0, 0, VIEW)]) == (
            "succeeded", None)
        assert memories[1].map[specs[-1][1]:specs[-1][1] + VIEW] == source.map[number * 16:number * 16 + VIEW]
        # One that nobody waits for, running or not when its process dies.
        workload.do("move", "read", last, "b/owner/kv", wait=0, ranges=[(0, 0, 0, 0, VIEW)])
        workload.kill()
        wait_for(lambda: totals_of(a)["buffers"] == 0 and a.ask("GET", f"/v1/workloads/w{number % 3}")[0] == 404, 1.5,
                 "the end of the dead one's buffers")

    watch([a, b], count, early, one_round)
    assert not memories[0].mapped_by(workers_of(a)) and not memories[1].mapped_by(workers_of(a))
    wait_for(lambda: metric(a, "gantry_fds_held") == 0 and metric(a, "gantry_workloads") == 0, 1.5)


@rounds(12, 4, 120)
def test_copy_workers_that_are_killed(start_sidecar, start_workload, new_memory, count, early):
    sidecar = start_sidecar("a", workers=2, flags=["--worker-restart-ms-max", "20"])
    source, target = new_memory(32 * MiB, filled=True), new_memory(32 * MiB)
    workload = start_workload(sidecar, "w")
    workload.register(source, ("source", 0, source.size))
    workload.register(target, ("target", 0, target.size))
    random.seed(count)

    def one_round(number):
        workload.post("move", "read", "target", "w/source", ranges=[(0, 0, 0, 0, source.size)])
        victim = random.choice(workers_of(sidecar))
        send([victim], signal.SIGKILL)
        assert workload.result() == ("succeeded", None)
        if number % 10 == 0:
            assert not target.differs_from(source)
        wait_for(lambda: len(set(workers_of(sidecar)) - {victim}) == 2, 10, "another worker")

    watch([sidecar], count, early, one_round)
    assert metric(sidecar, "gantry_worker_restarts_total") == count


@rounds(8, 3, 50)
def test_a_peer_that_is_restarted(start_sidecar, start_workload, new_memory, count, early):
    a, b = start_sidecar("a"), start_sidecar("b")
    source, target = new_memory(MiB, filled=True), new_memory(MiB)
    reader = start_workload(a, "reader")
    reader.register(target, ("kv", 0, MiB))

    def one_round(number):
        owner = start_workload(b, "owner")
        owner.register(source, ("kv", 0, MiB))
        connect(a, b)
        source.fill()
        assert reader.do("move", "read", "kv", "b/owner/kv", ranges=[(0, 0, 0, 0, MiB)]) == ("succeeded", None)
        assert not target.differs_from(source)
        if number % 2:
            b.kill()
        else:
            assert b.stop() == 0
        wait_for(lambda: not source.mapped_by(workers_of(a)), 1.5, "unmapping")
        owner.kill()
        b.start()
        wait_for(lambda: a.ask("GET", "/v1/peers/b")[1]["state"] == "up", 10, "the reconnection")

    watch([a], count, early, one_round)
