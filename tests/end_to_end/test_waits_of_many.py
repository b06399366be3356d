"""Requests that wait hold a thread each: one workload that waits in all it can takes nothing from another one."""

import concurrent.futures
import json
import select

import pytest

from conftest import UnixConnection
from workloads import MiB, connect, gantry, new_memory, wait_for  # noqa: F401

HTTP_THREADS = 16
SHARE = HTTP_THREADS * 3 // 4 // 2  # of one workload alone
POLL = json.dumps({"workload": "greedy", "wait_ms": 60_000})


@pytest.fixture
def pair(start_sidecar, new_memory):  # noqa: F811
    """A sidecar with few threads, a client of it, a buffer of that, which can read from b/owner/kv, and its memory."""
    a, b = start_sidecar("a", flags=["--http-threads-max", str(HTTP_THREADS)]), start_sidecar("b")
    owner, reader = gantry.Client(str(b.run_dir), "owner"), gantry.Client(str(a.run_dir), "reader")
    owned = owner.register("kv", owner.adopt(new_memory(MiB, filled=True).fd))
    assert connect(a, b)["state"] == "up"
    target = new_memory(MiB)
    yield a, reader, reader.register("kv", reader.adopt(target.fd)), target
    reader.close()
    owned.unregister()
    owner.close()


@pytest.fixture
def greedy():
    """greedy(sidecar): one workload asks to wait in many more requests than there are threads. Returns the refusals."""
    opened = []

    def begin(sidecar):
        client = gantry.Client(str(sidecar.run_dir), "greedy")
        waiting = [UnixConnection(sidecar.api_socket) for _ in range(3 * HTTP_THREADS)]
        opened.extend([*waiting, client])
        for connection in waiting:
            connection.request("POST", "/v1/completions:poll", body=POLL, headers={"Content-Type": "application/json"})
        return [json.loads(connection.getresponse().read()) for connection in answered(waiting, len(waiting) - SHARE)]

    yield begin
    for each in opened:
        each.close()


def answered(connections, count):
    """So many of the connections, which have an answer; the others have none yet."""
    poll = select.poll()
    for connection in connections:
        poll.register(connection.sock, select.POLLIN)
    wait_for(lambda: len(poll.poll(0)) >= count, 20, f"{count} answers")
    ready = {fd for fd, _ in poll.poll(0)}
    assert len(ready) == count
    return [connection for connection in connections if connection.sock.fileno() in ready]


def test_more_threads_of_one_client_wait_than_its_share_has(pair):
    """Where the sidecar lets no more requests wait the library looks again and again."""
    _, reader, buffer, memory = pair
    with concurrent.futures.ThreadPoolExecutor(3 * SHARE) as threads:
        reads = [reader.read(buffer, "b/owner/kv", ranges=[(0, 0, 0, 0, 4096)], fence=(buffer, 8192, 1), deadline=30)
                 for _ in range(3 * SHARE)]
        waiting = [threads.submit(read.wait, 30) for read in reads]
        at_once = threads.submit(reader.read, buffer, "b/owner/kv", ranges=[(0, 0, 0, 0, 4096)], wait=10)
        memory.map[8192:8200] = (1).to_bytes(8, "little")
        assert {each.result(40).state for each in waiting} == {"succeeded"}
        assert at_once.result(40).wait(10).state == "succeeded"


def test_another_workload_waits_cancels_suspends_and_unregisters(pair, greedy):
    sidecar, reader, mine, _ = pair
    refused = greedy(sidecar)
    assert {problem["code"] for problem in refused} == {"resource_exhausted"}
    assert any(f"greedy waits in {SHARE} requests" in problem["detail"] for problem in refused), refused
    assert "--http-threads-max" in refused[0]["hint"]
    assert reader.read(mine, "b/owner/kv", ranges=[(0, 0, 0, 0, 4096)]).wait(10).state == "succeeded"
    never = reader.read(mine, "b/owner/kv", ranges=[(0, 0, 0, 0, 4096)], fence=(mine, 8192, 1))
    never.cancel(0)
    wait_for(lambda: never.poll().state == "cancelled", 10)
    reader.suspend([mine])
    reader.resume([mine])
    mine.unregister()
    assert not mine.registered
