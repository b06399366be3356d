"""Hundreds of reads with aborts, offers that are not read and a restart of each sidecar: no wrong byte, and nothing is left."""

import random

import pytest
from forks import IMPORT_SECONDS
from vllm_servers import wait_for

pytestmark = pytest.mark.timeout(300 + IMPORT_SECONDS)

READS = 300
WARM_UP = 60
BLOCKS = 64  # of a worker's cache
RSS_GROWTH_MAX = 8 << 20
LOST_MAX = 2  # messages that give blocks back, on a busy machine: such a hold ends at its time
CALLS_AT_ONCE_MAX = 28  # sockets: of threads that read, renew, follow holds and keep the lease, and this test's own


def rss(pid):
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * 4096


def memory_of(workers):
    return {"producer": rss(workers.producer.pid), "consumer": rss(workers.consumer.pid)}


def sidecar_memory_of(workers):
    return {sidecar.name: rss(sidecar.process.pid) for sidecar in (workers.prefill_sidecar, workers.decode_sidecar)}


def one(workers, chance):
    """Returns whether bytes came."""
    count = chance.randint(1, 16)
    local, remote = chance.sample(range(BLOCKS), count), chance.sample(range(BLOCKS), count)
    offer = workers.offer(remote)
    if offer is None:
        return False  # its sidecar is not back yet
    kind = chance.choices(["read", "abort", "unwanted"], [8, 1, 1])[0]
    if kind == "unwanted":
        workers.consumer.do("step", unwanted=[{"remote_request_id": offer["name"], "source": offer["source"]}])
        return False
    workers.begin(offer, local)
    if kind == "abort":
        workers.step(cancel=[offer["name"]])
    return workers.end(offer, local)


def test_many_reads_of_random_blocks(workers):
    chance = random.Random(11)
    came = sum(one(workers, chance) for _ in range(WARM_UP))
    for sidecar in (workers.prefill_sidecar, workers.decode_sidecar):
        sidecar.kill()
        sidecar.start()
        workers.reads_come_back()
    came += sum(one(workers, chance) for _ in range(WARM_UP))
    workers.end_holds()
    before, memory, sidecar_memory = workers.left(), memory_of(workers), sidecar_memory_of(workers)
    came += sum(one(workers, chance) for _ in range(READS - 2 * WARM_UP))
    assert came > READS / 2
    wait_for(lambda: len(workers.holds()) <= LOST_MAX, "the holds have ended")
    workers.end_holds()
    workers.nothing_more_is_left(before)
    assert workers.consumer.sockets() <= CALLS_AT_ONCE_MAX and workers.producer.sockets() <= CALLS_AT_ONCE_MAX
    for earlier, now in ((memory, memory_of(workers)), (sidecar_memory, sidecar_memory_of(workers))):
        assert all(now[name] < earlier[name] + RSS_GROWTH_MAX for name in now), (earlier, now)
