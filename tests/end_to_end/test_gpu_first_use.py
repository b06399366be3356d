"""Many that use one allocation for the first time, at the same moment: each copy worker opens it once."""

import itertools
import json
import multiprocessing
import signal
import threading
import time

import pytest

from conftest import UnixConnection
from gpu_memories import GpuMemory, succeeded
from gpu_workloads import gpu_count, gpus, start_gpu_workload
from handoff import RawWorkload
from workloads import connect, metric, send, totals_of, wait_for, workers_of

pytestmark = pytest.mark.both_vendors

BUFFERS, PROCESSES = 1000, 4
LENGTH, STRIDE = 4096, 8192
OFFSET = 1536
SIZE = OFFSET + BUFFERS * STRIDE + 512
ANSWERED_SECONDS = 40
HELD_SECONDS = 0.5  # much less than the two after which a worker that stands still is replaced
_forking = multiprocessing.get_context("fork")


def at(number):
    return OFFSET + number * STRIDE


def opened(sidecar):
    """How often its copy workers mapped something."""
    assert metric(sidecar, 'gantry_worker_mappings_total{outcome="failed"}') == 0
    return metric(sidecar, 'gantry_worker_mappings_total{outcome="succeeded"}')


def mappings_of(sidecar):
    return [worker["mappings"] for worker in sidecar.ask("GET", "/v1/status")[1]["workers"]]


def at_once(calls):
    """What each of `calls` returns or raises, each in a thread of its own; none begins before all are there."""
    barrier, outcomes = threading.Barrier(len(calls)), [None] * len(calls)

    def run(index):
        barrier.wait()
        try:
            outcomes[index] = calls[index]()
        except Exception as error:  # pylint: disable=broad-except
            outcomes[index] = repr(error)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


def connected(api_socket):
    """Waits while more ask for a connection than the socket keeps in its queue."""
    connection = UnixConnection(api_socket, ANSWERED_SECONDS)

    def connects():
        try:
            connection.connect()
        except BlockingIOError:
            return False
        return True

    wait_for(connects, 10, "a connection")
    return connection


def post(connection, body, token):
    """The status, and the answer where it is not the one that is wanted."""
    connection.request("POST", "/v1/buffers", json.dumps(body),
                       {"Content-Type": "application/json", "Authorization": f"Bearer {token}"})
    answer = connection.getresponse()
    text = answer.read().decode()
    return answer.status, "" if answer.status == 201 else text


def post_at_once(pipe, api_socket, bodies, token):
    """One of several processes: all of the bodies when it is told to; answers what was not done."""
    connections = [connected(api_socket) for _ in bodies]
    pipe.send("ready")
    pipe.recv()
    calls = [lambda pair=pair: post(*pair, token) for pair in zip(connections, bodies)]
    pipe.send([outcome for outcome in at_once(calls) if outcome != (201, "")])


class Posting:
    """Processes that are ready to post their share of the bodies."""

    def __init__(self, sidecar, bodies, token):
        self.pipes, self.processes = [], []
        for share in range(PROCESSES):
            mine, theirs = _forking.Pipe()
            self.pipes.append(mine)
            self.processes.append(_forking.Process(
                target=post_at_once, daemon=True,
                args=(theirs, sidecar.api_socket, bodies[share::PROCESSES], token)))
            self.processes[-1].start()
            assert mine.poll(10) and mine.recv() == "ready"

    def begin(self):
        for pipe in self.pipes:
            pipe.send("go")

    def refused(self):
        for pipe in self.pipes:
            assert pipe.poll(ANSWERED_SECONDS), "a process that registers does not answer"
        found = list(itertools.chain.from_iterable(pipe.recv() for pipe in self.pipes))
        for process in self.processes:
            process.join()
        return found


@pytest.fixture
def sidecar(gpus, start_sidecar):
    return start_sidecar("b", workers=2)


@pytest.fixture
def memory(sidecar, start_gpu_workload):
    return GpuMemory(start_gpu_workload(sidecar, "owner", min(1, gpu_count() - 1)), "out", SIZE)


def allocation_of(memory):
    """As a connector without the client library states it."""
    workload = memory.workload
    return {"kind": "gpu", "size": SIZE, "device_uuid": workload.do("device_uuid"), "buffer_id": 4711, "pid": workload.pid,
            "ipc_handle": workload.do("ipc_handle", memory.name)}


def body_of(allocation, number, workload="raw"):
    return {"workload": workload, "allocations": [allocation],
            "buffers": [{"name": f"kv.{number}", "access": ["remote_read"],
                         "pieces": [{"allocation": 0, "offset": at(number), "length": LENGTH}]}]}


def test_a_thousand_registrations_open_an_allocation_once_a_worker(sidecar, memory):
    """From several processes. The workers stand still at first, so that none of them is done before the others come."""
    raw = RawWorkload(sidecar, "raw")
    allocation = allocation_of(memory)
    posting = Posting(sidecar, [body_of(allocation, number) for number in range(BUFFERS)], raw.token)
    workers = workers_of(sidecar)
    send(workers, signal.SIGSTOP)
    try:
        posting.begin()
        time.sleep(HELD_SECONDS)
    finally:
        send(workers, signal.SIGCONT)
    assert posting.refused() == []
    assert workers_of(sidecar) == workers, "a worker was replaced: it stood still for too long"
    totals = totals_of(sidecar)
    assert (totals["buffers"], totals["allocations"]) == (BUFFERS, 1), totals
    assert opened(sidecar) == len(workers) and mappings_of(sidecar) == [1, 1]
    raw.close()
    wait_for(lambda: mappings_of(sidecar) == [0, 0], 5, "the lease to end")
    assert totals_of(sidecar)["buffers"] == 0 and metric(sidecar, "gantry_ipc_mapped_bytes") == 0


def test_threads_of_a_workload_open_an_allocation_once_a_worker(sidecar, memory):
    """By the client library, which is one for all of them."""
    memory.workload.do("register_gpu_at_once", memory.name, [(f"kv.{i}", at(i), LENGTH) for i in range(200)], seconds=60)
    assert totals_of(sidecar)["buffers"] == 200 and totals_of(sidecar)["allocations"] == 1
    assert opened(sidecar) == 2 and mappings_of(sidecar) == [1, 1]


def test_a_peer_that_reads_them_all_at_once_opens_the_allocation_once_a_worker(sidecar, memory, start_sidecar,
                                                                               start_gpu_workload):
    a = start_sidecar("a", workers=2)
    connect(a, sidecar)
    into = GpuMemory(start_gpu_workload(a, "reader", 0), "into", SIZE)
    into.register(("kv", 3 * 512, SIZE - 3 * 512))
    memory.register(*((f"kv.{number}", at(number), LENGTH) for number in range(BUFFERS)))
    assert opened(a) == 2

    def read(first):
        numbers = range(first, BUFFERS, 20)
        body = {"workload": "reader", "op": "read", "local": ["kv"], "remote": [f"b/owner/kv.{i}" for i in numbers],
                "ranges": [[0, i * STRIDE, place, 0, LENGTH] for place, i in enumerate(numbers)]}
        return a.ask("POST", "/v1/transfers?wait_ms=30000", body)

    for answer in at_once([lambda first=first: read(first) for first in range(20)]):
        succeeded(answer)
    for number in range(BUFFERS):
        into.receives(3 * 512 + number * STRIDE, memory, at(number), LENGTH)
    into.check()
    assert opened(a) == 4 and mappings_of(a) == [2, 2]
