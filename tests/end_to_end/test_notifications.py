"""Notifications between the workloads of two sidecars: once each, to the life that was meant, within what there is room for."""

import base64
import itertools
import os
import random
import socket
import threading
import time

import pytest

from test_peers_over_tcp import meet
from workloads import connect, metric, wait_for

LEASE = {"engine_id": "e", "ttl_ms": 600_000}


def encoded(data):
    return base64.b64encode(data).decode()


class Reader:
    """The events of one workload, each once."""

    def __init__(self, sidecar, workload):
        self._sidecar, self._workload, self.cursor = sidecar, workload, 0
        self.events = []

    def poll(self, wait_ms=0):
        body = {"workload": self._workload, "cursor": self.cursor, "wait_ms": wait_ms}
        status, page = self._sidecar.ask("POST", "/v1/completions:poll", body)
        assert status == 200, page
        self.cursor = page["cursor"]
        self.events += page["events"]
        return page["events"]

    def next(self, event_type, seconds=10):
        """The oldest event of the type that was not taken yet."""
        deadline = time.monotonic() + seconds
        while True:
            for event in self.events:
                if event["type"] == event_type:
                    self.events.remove(event)
                    return event
            assert time.monotonic() < deadline, f"no event {event_type} within {seconds} s: {self.events}"
            self.poll(wait_ms=500)

    def none(self, event_type, seconds=0.3):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.poll(wait_ms=50)
        assert not [event for event in self.events if event["type"] == event_type], self.events


def notify(sidecar, workload, to, message, **fields):
    body = {"workload": workload, "to": to, "message": encoded(message), **fields}
    status, answer = sidecar.ask("POST", "/v1/notifications", body)
    assert status == 202, answer
    return answer["id"]


def enlist(sidecar, workload, engine="e"):
    status, info = sidecar.ask("PUT", f"/v1/workloads/{workload}", {**LEASE, "engine_id": engine})
    assert status in (200, 201), info
    return info["generation"]


@pytest.fixture(params=["unix", "tcp"])
def pair(request, start_sidecar):
    """Two sidecars that reach each other by the node's directory, or over TCP."""
    port = free_port() if request.param == "tcp" else None  # the same after a restart
    a = start_sidecar("a", flags=["--peer-listen", "127.0.0.1:0"] if port else [])
    b = start_sidecar("b", flags=["--peer-listen", f"127.0.0.1:{port}"] if port else [])
    enlist(a, "prefill")
    enlist(b, "decode")
    if port is None:
        connect(a, b)
    else:
        assert meet(a, b)["state"] == "up"
    return a, b


PORTS = range(20_000, 32_000)  # below those that the kernel gives out by itself
ports_taken = itertools.count(random.randrange(len(PORTS)))


def free_port():
    """A port that was not given before, and none that the kernel gives out by itself: a sidecar also asks for one of these.

    Each process that runs cases beside others takes from ports of its own.
    """
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", 1))
    mine = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    ports = PORTS[mine::processes]
    for _ in ports:
        with socket.socket() as listener:
            port = ports[next(ports_taken) % len(ports)]
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError(f"all of the {len(ports)} ports that are for cases of this process are in use")


def test_to_a_workload_of_a_peer_and_back_to_its_sender(pair):
    a, b = pair
    sender, receiver = Reader(a, "prefill"), Reader(b, "decode")
    data = bytes(range(256))
    sent = notify(a, "prefill", "decode", data, peer="b", request_id="r-17")
    event = receiver.next("notification")
    assert event["notification"] == {"from_peer": "a", "from_workload": "prefill", "request_id": "r-17",
                                     "message": encoded(data)}
    assert event["workload"] == "decode" and event["subject"] == sent
    outcome = sender.next("notification_outcome")
    assert outcome["subject"] == sent
    assert 0 < outcome["delivery"].pop("peer_us") < 10_000_000
    assert outcome["delivery"] == {"peer": "b", "to": "decode", "request_id": "r-17", "delivered": True}
    assert metric(a, 'gantry_notifications_total{direction="sent",outcome="succeeded"}') == 1
    assert metric(b, 'gantry_notifications_total{direction="received",outcome="succeeded"}') == 1


def test_to_a_workload_of_the_same_sidecar(sidecar):
    enlist(sidecar, "one")
    enlist(sidecar, "two")
    sent = notify(sidecar, "one", "two", b"")
    assert Reader(sidecar, "two").next("notification")["notification"] == {
        "from_peer": "", "from_workload": "one", "message": ""}
    outcome = Reader(sidecar, "one").next("notification_outcome")
    assert outcome["subject"] == sent
    assert outcome["delivery"] == {"peer": "", "to": "two", "delivered": True}


def test_the_order_is_kept(pair):
    a, b = pair
    for i in range(200):
        notify(a, "prefill", "decode", i.to_bytes(4, "big"), peer="b")
    receiver = Reader(b, "decode")
    messages = [base64.b64decode(receiver.next("notification")["notification"]["message"]) for _ in range(200)]
    assert messages == [i.to_bytes(4, "big") for i in range(200)]


def test_the_same_id_is_delivered_once(pair):
    a, b = pair
    sender, receiver = Reader(a, "prefill"), Reader(b, "decode")
    for _ in range(3):
        assert notify(a, "prefill", "decode", b"once", peer="b", id="mine") == "mine"
        assert sender.next("notification_outcome")["delivery"]["delivered"] is True
    receiver.next("notification")
    receiver.none("notification")
    notify(a, "prefill", "decode", b"other", peer="b", id="mine")
    assert sender.next("notification_outcome")["delivery"]["error"]["code"] == "conflict"
    assert metric(b, 'gantry_notifications_total{direction="received",outcome="repeated"}') == 2


def test_what_cannot_be_delivered_is_reported(pair):
    a, _ = pair
    sender = Reader(a, "prefill")
    for options, to, code in (({"peer": "b"}, "nobody", "not_found"), ({"peer": "nowhere"}, "decode", "not_found"),
                              ({}, "decode", "not_found"), ({"peer": "b"}, "decode@00000000000000ff", "stale_generation")):
        sent = notify(a, "prefill", to, b"x", **options)
        outcome = sender.next("notification_outcome")
        assert (outcome["subject"], outcome["delivery"]["delivered"]) == (sent, False)
        assert outcome["delivery"]["error"]["code"] == code, outcome


def test_a_new_life_of_the_receiver_reads_nothing_of_the_old_one(pair):
    a, b = pair
    sender = Reader(a, "prefill")
    first = b.ask("GET", "/v1/workloads/decode")[1]["generation"]
    notify(a, "prefill", f"decode@{first}", b"for the first", peer="b")
    assert sender.next("notification_outcome")["delivery"]["delivered"] is True
    second = enlist(b, "decode", engine="another")
    assert second != first
    Reader(b, "decode").none("notification")
    notify(a, "prefill", f"decode@{first}", b"late", peer="b")
    assert sender.next("notification_outcome")["delivery"]["error"]["code"] == "stale_generation"
    notify(a, "prefill", "decode", b"for the second", peer="b")
    assert Reader(b, "decode").next("notification")["notification"]["message"] == encoded(b"for the second")


def test_a_receiver_that_does_not_read_costs_bounded_memory(pair):
    a, b = pair
    sender = Reader(a, "prefill")
    large = b"x" * 65536
    outcomes = []
    for _ in range(70):
        notify(a, "prefill", "decode", large, peer="b")
        outcomes.append(sender.next("notification_outcome")["delivery"])
    assert [outcome["delivered"] for outcome in outcomes] == [True] * 64 + [False] * 6
    assert {outcome["error"]["code"] for outcome in outcomes[64:]} == {"resource_exhausted"}
    receiver = Reader(b, "decode")
    while receiver.poll():
        pass
    assert len(receiver.events) >= 64
    notify(a, "prefill", "decode", large, peer="b")  # what was read makes room
    assert sender.next("notification_outcome")["delivery"]["delivered"] is True


def test_who_reads_beside_the_receiver_makes_no_room(sidecar):
    enlist(sidecar, "sender")
    enlist(sidecar, "receiver")
    sender, outcomes = Reader(sidecar, "sender"), []
    for _ in range(70):
        notify(sidecar, "sender", "receiver", b"x" * 65536)
        outcomes.append(sender.next("notification_outcome")["delivery"]["delivered"])
        beside = {"workload": "receiver", "acknowledge": 0}
        now = sidecar.ask("POST", "/v1/completions:poll", beside)[1]["cursor"]
        assert sidecar.ask("POST", "/v1/completions:poll", beside | {"cursor": now})[0] == 200
    assert outcomes == [True] * 64 + [False] * 6


def test_without_a_cursor_events_begin_now(sidecar):
    enlist(sidecar, "w")
    notify(sidecar, "w", "w", b"before")
    Reader(sidecar, "w").next("notification")
    page = sidecar.ask("POST", "/v1/completions:poll", {"workload": "w"})[1]
    assert page["events"] == [] and page["cursor"] > 0
    notify(sidecar, "w", "w", b"after")
    body = {"workload": "w", "cursor": page["cursor"], "wait_ms": 5000}
    events = sidecar.ask("POST", "/v1/completions:poll", body)[1]["events"]
    assert [event["notification"]["message"] for event in events if event["type"] == "notification"] == [encoded(b"after")]


def test_it_survives_a_restart_of_the_receiving_sidecar(pair):
    a, b = pair
    sender = Reader(a, "prefill")
    b.kill()
    sent = notify(a, "prefill", "decode", b"patient", peer="b", deadline_ms=30_000)
    b.start()
    enlist(b, "decode")
    # The first attempts may reach the new sidecar before its workload has registered; then it is refused.
    outcome = sender.next("notification_outcome", seconds=30)
    assert outcome["subject"] == sent
    if outcome["delivery"]["delivered"]:
        assert Reader(b, "decode").next("notification")["notification"]["message"] == encoded(b"patient")
    else:
        assert outcome["delivery"]["error"]["code"] == "not_found"


def test_it_is_given_up_at_its_deadline(pair):
    a, b = pair
    sender = Reader(a, "prefill")
    b.kill()
    begin = time.monotonic()
    notify(a, "prefill", "decode", b"x", peer="b", deadline_ms=700)
    outcome = sender.next("notification_outcome")
    assert outcome["delivery"]["error"]["code"] == "deadline_exceeded", outcome
    assert 0.6 < time.monotonic() - begin < 3


def test_bodies_that_are_refused(sidecar):
    enlist(sidecar, "one")
    for change, code in (({"message": "x"}, "invalid_argument"), ({"message": "eB=="}, "invalid_argument"),
                         ({"message": encoded(b"x" * 65537)}, "invalid_argument"), ({"to": "a/b"}, "invalid_argument"),
                         ({"to": "a@0"}, "invalid_argument"), ({"request_id": "x" * 257}, "invalid_argument"),
                         ({"deadline_ms": 0}, "invalid_argument"), ({"deadline_ms": 600_001}, "invalid_argument"),
                         ({"other": 1}, "malformed_body"), ({"workload": "nobody"}, "not_found")):
        body = {"workload": "one", "to": "one", "message": "eA==", **change}
        status, problem = sidecar.ask("POST", "/v1/notifications", body)
        assert status >= 400 and problem["code"] == code, (change, problem)


def test_they_are_streamed(sidecar):
    enlist(sidecar, "one")
    enlist(sidecar, "two")
    lines = []

    def read():
        from conftest import UnixConnection
        connection = UnixConnection(sidecar.api_socket, timeout=10)
        connection.request("GET", "/v1/events?workload=two&cursor=0")
        answer = connection.getresponse()
        while not any(line.startswith("data:") for line in lines):
            lines.append(answer.readline().decode())

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    notify(sidecar, "one", "two", b"hello")
    wait_for(lambda: any("aGVsbG8=" in line for line in lines), 10, "the notification in the stream")
    thread.join(5)
