"""Processes that do not die but stand still, and sidecars that are told to stop in the middle of their work."""

import http.client
import signal
import socket
import threading
import time

import pytest

from conftest import UnixConnection
from bench_runs import processes_in
from workloads import (LARGE, MiB, Scene, connect, ended, metric, new_memory, scene, send,
                       start_workload, submit, view_of, wait_for, workers_of)

QUIESCE_SECONDS = 0.5


def test_a_transfer_whose_worker_stands_still_expires_and_the_worker_is_replaced(
        start_sidecar, start_workload, new_memory):
    scene = Scene(start_sidecar, start_workload, new_memory, LARGE,
                  flags=["--quiesce-ms-max", str(int(QUIESCE_SECONDS * 1000))])
    start = time.monotonic()
    transfer, (worker,) = scene.hold(deadline_ms=1_000)
    view = view_of(scene.a, "reader", transfer, 10_000)
    took = time.monotonic() - start
    assert view["state"] == "expired" and view["error"]["code"] == "deadline_exceeded", view
    assert 0.9 < took < 1 + QUIESCE_SECONDS + 1
    failed = {index * MiB for index in view["failed_items"]}
    assert failed and not scene.target.differs_from(scene.source, skip=failed)
    assert ended(worker)
    (fresh,) = wait_for(lambda: workers_of(scene.a), 5, "another worker")
    assert fresh != worker
    scene.everything_works()


def test_a_cancelled_transfer_whose_worker_stands_still_ends_within_the_quiesce_time(scene):
    transfer, (worker,) = scene.hold()
    start = time.monotonic()
    status, view = scene.a.ask("DELETE", f"/v1/transfers/{transfer}?workload=reader&wait_ms=0")
    assert (status, view["state"]) == (202, "stopping")
    status, view = scene.a.ask("DELETE", f"/v1/transfers/{transfer}?workload=reader&wait_ms=8000")
    assert (status, view["state"]) == (200, "cancelled")
    assert time.monotonic() - start < 2 + 1  # --quiesce-ms-max and a second
    wait_for(lambda: ended(worker), 1, "the end of the worker")
    wait_for(lambda: workers_of(scene.a), 5, "another worker")
    scene.everything_works()


def test_an_idle_worker_that_stands_still_delays_a_registration_by_two_seconds(
        start_sidecar, start_workload, new_memory):
    sidecar = start_sidecar("a", workers=3)
    workload = start_workload(sidecar, "owner")
    stopped = workers_of(sidecar)[1]
    send([stopped], signal.SIGSTOP)
    start = time.monotonic()
    workload.register(new_memory(MiB), ("kv", 0, MiB))
    assert time.monotonic() - start < 3.5
    wait_for(lambda: ended(stopped), 1, "the end of the worker")
    wait_for(lambda: len(workers_of(sidecar)) == 3, 5, "another worker")
    assert metric(sidecar, 'gantry_worker_mappings_total{outcome="failed"}') == 1
    assert metric(sidecar, 'gantry_worker_mappings_total{outcome="succeeded"}') == 3
    start = time.monotonic()
    workload.do("unregister", "kv")
    assert time.monotonic() - start < 1


def test_a_peer_that_stands_still_keeps_nobody_from_what_is_mapped_already(scene):
    scene.everything_works()
    more = scene.new_memory(MiB, filled=True)
    scene.owner.register(more, ("more", 0, MiB))
    send([scene.b.process.pid], signal.SIGSTOP)
    try:
        scene.target.clear()
        status, view = scene.read(wait_ms=2_000)
        assert (status, view["state"]) == (200, "succeeded")
        assert not scene.target.differs_from(scene.source)
        start = time.monotonic()
        status, problem = submit(scene.a, "reader", "read", "kv", "b/owner/more", MiB, 5_000, deadline_ms=700)
        assert (status, problem["code"]) == (504, "deadline_exceeded"), problem
        assert "'b'" in problem["detail"], "it names the peer"
        assert time.monotonic() - start < 0.7 + 1
    finally:
        send([scene.b.process.pid], signal.SIGCONT)
    status, view = submit(scene.a, "reader", "read", "kv", "b/owner/more", MiB, 5_000)
    assert (status, view["state"]) == (200, "succeeded")
    assert not scene.target.differs_from(more, MiB)


def test_a_peer_that_stands_still_for_long_is_down_and_comes_back(scene):
    scene.everything_works()
    send([scene.b.process.pid], signal.SIGSTOP)
    try:
        wait_for(lambda: scene.a.ask("GET", "/v1/peers/b")[1]["state"] == "down", 7, "noticing")
        wait_for(lambda: not scene.source.mapped_by(workers_of(scene.a)), 1.5, "unmapping")
        start = time.monotonic()
        status, problem = scene.read(deadline_ms=700)
        assert status in (502, 503, 504), problem
        assert problem["code"] in ("peer_lost", "peer_unavailable", "deadline_exceeded")
        assert time.monotonic() - start < 0.7 + 1
    finally:
        send([scene.b.process.pid], signal.SIGCONT)
    wait_for(lambda: scene.a.ask("GET", "/v1/peers/b")[1]["state"] == "up", 8, "the reconnection")
    scene.everything_works()


class Caller(threading.Thread):
    """Waits for a transfer in one request; `outcome` is the code of its error, its state, or "closed"."""

    def __init__(self, scene, transfer):
        super().__init__()
        self._ask = lambda: view_of(scene.a, "reader", transfer, 30_000)
        self.outcome = None
        self.start()

    def run(self):
        try:
            view = self._ask()
            self.outcome = view.get("error", {}).get("code", view["state"])
        except (OSError, http.client.HTTPException):
            self.outcome = "closed"
        except AssertionError as problem:
            self.outcome = str(problem)


@pytest.mark.parametrize("frozen", [False, True])
def test_a_sidecar_that_is_told_to_stop_answers_and_leaves_nothing(scene, frozen):
    """`frozen`: its copy worker stands still, so that the transfer becomes quiet only by force."""
    transfer, workers = scene.hold()
    callers = [Caller(scene, transfer) for _ in range(3)]
    time.sleep(0.1)
    start = time.monotonic()
    scene.a.process.send_signal(signal.SIGTERM)
    if not frozen:
        send(workers, signal.SIGCONT)
    assert scene.a.stop() == 0
    assert time.monotonic() - start < 10  # --shutdown-ms
    for caller in callers:
        caller.join(2)
        assert caller.outcome in ("shutting_down", "closed", "succeeded"), caller.outcome
    if frozen:
        assert "succeeded" not in [caller.outcome for caller in callers]
    assert all(map(ended, workers)) and not processes_in(scene.a.run_dir)
    left = {path.name for path in scene.a.run_dir.iterdir()} - {"log", "sidecar.lock"}
    assert not left, "no socket is left"
    assert not [path.name for path in scene.a.node_dir.iterdir() if path.name.startswith("a.") and path.is_socket()]
    # The peer goes on, and whoever comes next under the same name as well.
    scene.owner.do("unregister", "kv", drain=2)
    scene.a.start()
    connect(scene.a, scene.b)
    scene.other.kill()
    scene.other = scene.start_workload(scene.a, "other")
    scene.other.register(scene.others, ("small", 0, MiB))
    scene.others_still_work()


def test_a_submission_is_idempotent_over_restarts_of_its_caller(scene):
    transfer, workers = scene.hold(id="once", deadline_ms=20_000)
    assert transfer == "once"
    again = {}
    retry = threading.Thread(target=lambda: again.update(view=scene.read(id="once", deadline_ms=20_000)[1]))
    retry.start()  # as a caller does that lost the connection and does not know whether it was heard
    time.sleep(0.1)
    send(workers, signal.SIGCONT)
    retry.join(10)
    assert again["view"]["state"] == "succeeded" and again["view"]["bytes_moved"] == scene.size
    started = again["view"]["timings"]["accepted_unix_ms"]
    scene.target.clear()
    status, view = scene.read(id="once", deadline_ms=20_000)
    assert (status, view["timings"]["accepted_unix_ms"]) == (200, started)
    assert scene.target.map[:MiB] == bytes(MiB), "nothing was copied once more"
    status, problem = scene.read(id="once", deadline_ms=20_000, priority=3)
    assert (status, problem["code"]) == (409, "conflict")
    # A caller that died takes its transfers along: its successor is another workload generation.
    scene.reader.kill()
    wait_for(lambda: scene.a.ask("GET", "/v1/workloads/reader")[0] == 404, 1.5)
    scene.start_reader()
    status, view = scene.read(id="once", deadline_ms=20_000)
    assert (status, view["state"]) == (200, "succeeded"), view
    assert not scene.target.differs_from(scene.source), "and its id is free again"


def idle_connections(path, kind, count, first_bytes=b""):
    sockets = []
    for _ in range(count):
        sockets.append(socket.socket(socket.AF_UNIX, kind))
        sockets[-1].connect(str(path))
        if first_bytes:
            sockets[-1].send(first_bytes)
    return sockets


def test_slow_and_idle_connections_do_not_hold_a_transfer_up(scene):
    idle = idle_connections(scene.a.api_socket, socket.SOCK_STREAM, 100)
    head = b"POST /v1/transfers HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    idle += idle_connections(scene.a.api_socket, socket.SOCK_STREAM, 100, head)
    slow = idle_connections(scene.a.api_socket, socket.SOCK_STREAM, 100, head + b"Content-Length: 100000\r\n\r\n[")
    idle += idle_connections(scene.a.handoff_socket, socket.SOCK_SEQPACKET, 200)
    # Requests that wait for long take a thread each; they are fewer than --http-threads-max.
    waiter = scene.start_workload(scene.a, "waiter")
    waiting = [UnixConnection(scene.a.api_socket) for _ in range(64)]
    for connection in waiting:
        connection.request("POST", "/v1/completions:poll",
                           body=b'{"workload": "waiter", "wait_ms": 20000}',
                           headers={"Content-Type": "application/json"})
    for number in range(10):
        for connection in slow:
            connection.send(b" ")
        start = time.monotonic()
        scene.others_still_work()
        assert time.monotonic() - start < 5  # a request that is never whole would hold it up for ten
        # A connection and a registration of its own also find their place.
        newcomer = scene.start_workload(scene.a, f"newcomer-{number}")
        newcomer.register(scene.others, ("mine", 0, MiB))
        newcomer.kill()
        assert time.monotonic() - start < 8
    scene.everything_works()
    for connection in [*idle, *slow, *waiting]:
        connection.close()
    waiter.kill()
    scene.others_still_work()
