"""kill -9 in the middle of a read and between two: the outcome is told, bytes are right, reads come back, nothing is left.

An abort in the middle of a read: no byte arrives after its end was told.
"""

import os
import signal

import pytest
from forks import IMPORT_SECONDS
from leftovers import totals_of
from slow_link import PASSING, SlowLink
from vllm_servers import wait_for
from workers import READ_DEADLINE, go_on, stand_still

pytestmark = pytest.mark.timeout(180 + IMPORT_SECONDS)

LOCAL, REMOTE = list(range(16)), list(range(30, 62, 2))
BLOCKS, BLOCK_BYTES, LAYERS = 64, 32 << 10, 6  # as worker_process.py has them
ATTEMPTS = 5


class OverShm:
    """The consumer's copy workers stand still."""

    address = None

    def __init__(self, workers):
        self._workers, self._standing = workers, []

    def stop(self):
        self._standing = self._workers.copy_workers()
        stand_still(self._standing)

    def is_under_way(self):
        return self._workers.running() > 0

    def go_on(self):
        go_on(self._standing)

    close = go_on


class OverTcp:
    """A forwarder passes some of the bytes."""

    def __init__(self, workers):
        self._links = []
        self.address, data_address = workers.prefill_sidecar.flags[1::2]
        self._ports = [int(address.rpartition(":")[2]) for address in (self.address, data_address)]

    def stop(self, passing=PASSING, together=False):
        self._links.append(SlowLink(self._ports, passing, together=together))
        self.address = f"{SlowLink.host}:{self.address.rpartition(':')[2]}"

    def is_under_way(self):
        return self._links[-1].standing.is_set()

    def go_on(self):
        self._links[-1].open()

    def close(self):
        for link in self._links:
            link.close()


@pytest.fixture(params=[OverShm, OverTcp], ids=["shm", "tcp"])
def link(request, workers):
    link = request.param(workers)
    yield link
    link.close()


def kill_and_start(sidecar):
    sidecar.kill()
    sidecar.start()


def kill_worker(workers):
    pid = workers.copy_workers()[0]
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: workers.copy_workers() not in ([], [pid]), "another copy worker")


def kill_producer(workers):
    workers.producer.kill()
    wait_for(lambda: not workers.prefill_sidecar.ask("GET", "/v1/status")[1]["workloads"], "its lease has ended")
    workers.start_producer()


VICTIMS = {"producer's sidecar": lambda workers: kill_and_start(workers.prefill_sidecar),
           "consumer's sidecar": lambda workers: kill_and_start(workers.decode_sidecar),
           "consumer's copy worker": kill_worker,
           "producer's engine": kill_producer}


@pytest.mark.parametrize("victim", VICTIMS)
def test_a_kill_in_the_middle_of_a_read(workers, link, victim):
    workers.reads_come_back(link.address)
    warmed_up(workers)
    before = workers.left()
    workers.reads_come_back(link.address)
    link.stop()
    offer = workers.offer(REMOTE)
    workers.begin(offer, LOCAL, link.address)
    wait_for(link.is_under_way, "the read is under way")
    VICTIMS[victim](workers)
    link.go_on()
    succeeded = workers.end(offer, LOCAL)
    if victim == "consumer's copy worker":
        assert succeeded, "its copies are repeated"
    link.close()
    everything_works(workers)
    workers.nothing_more_is_left(before)


@pytest.mark.parametrize("victim", VICTIMS)
def test_a_kill_between_two_reads(workers, victim):
    warmed_up(workers)
    before = workers.left()
    VICTIMS[victim](workers)
    everything_works(workers)
    workers.nothing_more_is_left(before)


def test_an_aborted_read_writes_nothing_after_its_end(workers, link):
    workers.reads_come_back(link.address)
    link.stop()
    nothing_is_written_after_an_abort(workers, link, workers.decode_sidecar)
    link.close()
    everything_works(workers)


def nothing_is_written_after_an_abort(workers, link, executor):
    """`link` is stopped in the middle of a read that the sidecar `executor` carries out; it goes on when the abort's end was told."""
    offer = workers.offer(REMOTE)
    workers.begin(offer, LOCAL, link.address)
    wait_for(link.is_under_way, "the read is under way")
    workers.step(cancel=[offer["name"]])
    assert not workers.end(offer, LOCAL)
    workers.consumer.do("fill", seed=offer["seed"] + 1)
    link.go_on()
    workers.end_holds()  # it waits for all who read
    wait_for(lambda: not totals_of(executor)["transfers_running"], "the sidecar is quiet")
    assert workers.untouched(offer, LOCAL)


@pytest.mark.parametrize("workers", [{"in_parts": True}], indirect=True, ids=["in parts"])
def test_only_blocks_that_a_cut_off_read_lacks_are_missing(workers):
    """The consumer's sidecar moves one layer after the other, so that some of the last layer's blocks come, and names the rest.

    It moves neighbours in one piece, and an engine's blocks mostly are neighbours: so there is no such case of engines.
    test_failed_blocks.py shows what vLLM does with the missing blocks.
    """
    assert any(is_told_in_parts(workers) for _ in range(ATTEMPTS))
    everything_works(workers)


def is_told_in_parts(workers):
    """False: the last layer's first blocks did not come. They come over several connections at once."""
    local, remote = list(range(BLOCKS)), [*range(0, BLOCKS, 2), *range(1, BLOCKS, 2)]
    link = OverTcp(workers)
    try:
        workers.reads_come_back(link.address)
        link.stop((BLOCKS * LAYERS - BLOCKS // 16) * BLOCK_BYTES, together=True)
        offer = workers.offer(remote)
        workers.begin(offer, local, link.address)
        wait_for(link.is_under_way, "the read is under way")
        kill_and_start(workers.prefill_sidecar)
        link.go_on()
        wait_for(lambda: workers.step()["received"], "the read has ended", 4 * READ_DEADLINE)
    finally:
        link.close()
    told = workers.step()
    if told["failed"]:
        return False
    assert 0 < len(told["missing"]) < BLOCKS, told
    arrived = [(mine, theirs) for mine, theirs in zip(local, remote) if mine not in told["missing"]]
    assert workers.consumer.do("differing", seed=offer["seed"], local=[mine for mine, _ in arrived], remote=[theirs for _, theirs in arrived]) == []
    return True


def warmed_up(workers):
    """Each sidecar was lost once: a worker's first lease leaves what its cache's memory began with."""
    for sidecar in (workers.prefill_sidecar, workers.decode_sidecar):
        kill_and_start(sidecar)
    everything_works(workers)


def everything_works(workers):
    """Over shm. A consumer without a sidecar cannot give back what it did not read: then a hold ends at its time."""
    workers.reads_come_back()
    workers.end_holds()
