"""Reads that the prefiller's sidecar executes, without engines: its writes, kills in the middle of one, and aborts."""

import os
import signal

import pytest
from forks import IMPORT_SECONDS
from leftovers import totals_of
from slow_link import PASSING, SlowLink
from test_kills_in_reads import LOCAL, REMOTE, kill_and_start, nothing_is_written_after_an_abort
from vllm_servers import wait_for
from workers import copy_workers_of, go_on, stand_still

pytestmark = [pytest.mark.timeout(180 + IMPORT_SECONDS), pytest.mark.parametrize("workers", [{"executor": "peer"}], indirect=True, ids=["peer"])]


class OverShm:
    """The copy workers of the producer's sidecar stand still."""

    path, address = "shm", None

    def __init__(self, workers):
        self._workers, self._standing = workers, []

    def stop(self):
        self._standing = copy_workers_of(self._workers.prefill_sidecar)
        stand_still(self._standing)

    def is_under_way(self):
        return totals_of(self._workers.prefill_sidecar)["transfers_running"] > 0

    def go_on(self):
        go_on(self._standing)

    close = come_back = go_on


class OverTcp:
    """Both sidecars meet over TCP. The producer is told of an address where a forwarder passes some of the bytes."""

    path = "tcp"

    def __init__(self, workers):
        self._workers, self._links = workers, []
        self.address = workers.prefill_sidecar.flags[1]
        ours = workers.decode_sidecar.flags[1::2]
        self._ports = [int(address.rpartition(":")[2]) for address in ours]
        self._ours = ours[0]
        workers.consumer.do("lives_at", address=self._ours)

    def stop(self):
        self._links.append(SlowLink(self._ports, PASSING, pushed=True))
        self._move(f"{SlowLink.host}:{self._ports[0]}")

    def _move(self, address):
        peer = self._workers.prefill_sidecar.ask("PUT", "/v1/peers/decode", {"address": address, "node_id": "elsewhere"})[1]
        assert peer["state"] == "up", peer

    def is_under_way(self):
        return self._links[-1].standing.is_set()

    def go_on(self):
        self._links[-1].open()

    def close(self):
        for link in self._links:
            link.close()
        self._links.clear()

    def come_back(self):
        self.close()
        self._move(self._ours)


@pytest.fixture(params=[OverShm, OverTcp], ids=["shm", "tcp"])
def link(request, workers):
    link = request.param(workers)
    yield link
    link.close()


def pushes(workers):
    """(path, state) of what the producer's sidecar has written for the consumer's, newest first."""
    transfers = workers.prefill_sidecar.ask("GET", "/v1/transfers?workload=vllm-prefill")[1]["transfers"]
    return [(transfer["path"], transfer["state"]) for transfer in transfers
            if (transfer.get("requested_by"), transfer["op"]) == ("decode", "write")]


def test_the_producers_sidecar_writes_the_blocks_and_the_hold_is_consumed(workers, link):
    assert workers.read(link.address)
    assert pushes(workers) == [(link.path, "succeeded")]
    wait_for(lambda: not workers.holds(), "the hold has ended")
    assert workers.read(link.address)


def kill_engine(workers, link):
    """Another one registers with the help of the copy workers."""
    workers.producer.kill()
    link.go_on()
    wait_for(lambda: not workers.prefill_sidecar.ask("GET", "/v1/status")[1]["workloads"], "its lease has ended")
    workers.start_producer()


def kill_worker(workers, _):
    pid = copy_workers_of(workers.prefill_sidecar)[0]
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: copy_workers_of(workers.prefill_sidecar) not in ([], [pid]), "another copy worker")


VICTIMS = {"producer's sidecar": lambda workers, _: kill_and_start(workers.prefill_sidecar),
           "consumer's sidecar": lambda workers, _: kill_and_start(workers.decode_sidecar),
           "producer's copy worker": kill_worker,
           "producer's engine": kill_engine}


@pytest.mark.parametrize("victim", VICTIMS)
def test_a_kill_in_the_middle_of_a_push(workers, link, victim):
    assert workers.read(link.address)
    link.stop()
    offer = workers.offer(REMOTE)
    workers.begin(offer, LOCAL, link.address)
    wait_for(link.is_under_way, "the push is under way")
    VICTIMS[victim](workers, link)
    link.go_on()
    succeeded = workers.end(offer, LOCAL)
    if victim == "producer's copy worker":
        assert succeeded, "its copies are repeated"
    link.come_back()
    workers.reads_come_back(link.address)
    workers.end_holds()


def test_an_aborted_push_writes_nothing_after_its_end(workers, link):
    assert workers.read(link.address)
    link.stop()
    nothing_is_written_after_an_abort(workers, link, workers.prefill_sidecar)
    link.come_back()
    workers.reads_come_back(link.address)
