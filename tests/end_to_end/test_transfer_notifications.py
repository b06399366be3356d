"""Notifications of transfers: after the bytes, once, and not for a transfer that does not succeed."""

import base64
import signal
import struct
import time

import pytest

from test_notifications import Reader, encoded
from test_peers_over_tcp import TCP, meet
from workloads import LARGE, MiB, connect, hold_in_the_middle, new_memory, resume, send, start_workload, view_of, wait_for

ROUNDS = 1000


@pytest.fixture
def pair(request, start_sidecar, start_workload):
    """Sidecars a and b, which a reaches by the node's directory, or over TCP if the test asks for that."""
    flags = TCP if getattr(request, "param", "unix") == "tcp" else []
    a, b = start_sidecar("a", flags=flags), start_sidecar("b", flags=flags)
    assert (meet(a, b) if flags else connect(a, b))["state"] == "up"
    return a, b, start_workload(a, "prefill"), start_workload(b, "decode")


both_ways = pytest.mark.parametrize("pair", ["unix", "tcp"], indirect=True)


def write(sidecar, remote, ranges, notify, wait_ms=10_000, **fields):
    body = {"workload": "prefill", "op": "write", "local": ["src"], "remote": [remote], "ranges": ranges,
            "notify": notify, **fields}
    return sidecar.ask("POST", f"/v1/transfers?wait_ms={wait_ms}", body)


@both_ways
def test_whoever_is_notified_finds_the_bytes(pair, new_memory):
    """The receiver looks at both ends of what was written as soon as it is told, a thousand times."""
    a, b, prefill, decode = pair
    size = 4 * MiB
    source, target = new_memory(size), new_memory(size)
    prefill.register(source, ("src", 0, size))
    decode.register(target, ("dst", 0, size))
    receiver = Reader(b, "decode")
    for i in range(ROUNDS):
        mark = struct.pack("<Q", i + 1)
        source.map[:8] = source.map[-8:] = mark
        status, view = write(a, "b/decode/dst", [[0, 0, 0, 0, size]], {"to": "decode", "message": encoded(mark)},
                             wait_ms=0)
        assert status in (200, 202), view
        told = base64.b64decode(receiver.next("notification")["notification"]["message"])
        assert told == mark
        assert target.map[:8] == mark and target.map[-8:] == mark, i


@both_ways
def test_the_end_says_that_it_was_delivered(pair, new_memory):
    a, b, prefill, decode = pair
    source, target = new_memory(MiB), new_memory(MiB)
    prefill.register(source, ("src", 0, MiB))
    decode.register(target, ("dst", 0, MiB))
    status, view = write(a, "b/decode/dst", [[0, 0, 0, 0, MiB]],
                         {"to": "decode", "message": encoded(b"here"), "request_id": "r-1"}, id="t1")
    assert status == 200 and view["state"] == "succeeded" and view["notified"] is True, view
    event = Reader(b, "decode").next("notification")["notification"]
    assert (event["from_peer"], event["from_workload"], event["request_id"]) == ("a", "prefill", "r-1")
    assert Reader(a, "prefill").next("transfer")["transfer"]["notified"] is True
    # Submitted again it is the same transfer, and nothing is sent.
    assert write(a, "b/decode/dst", [[0, 0, 0, 0, MiB]],
                 {"to": "decode", "message": encoded(b"here"), "request_id": "r-1"}, id="t1")[1]["notified"] is True
    assert write(a, "b/decode/dst", [[0, 0, 0, 0, MiB]],
                 {"to": "decode", "message": encoded(b"other")}, id="t1")[1]["code"] == "conflict"
    receiver = Reader(b, "decode")
    receiver.next("notification")
    receiver.none("notification")


def test_the_end_says_that_it_was_not_delivered(pair, new_memory):
    a, _, prefill, decode = pair
    source, target = new_memory(MiB), new_memory(MiB)
    prefill.register(source, ("src", 0, MiB))
    decode.register(target, ("dst", 0, MiB))
    status, view = write(a, "b/decode/dst", [[0, 0, 0, 0, MiB]], {"to": "nobody", "message": ""})
    assert status == 200 and view["state"] == "succeeded", view
    assert view["notified"] is False and view["notify_error"]["code"] == "not_found", view


def test_within_one_sidecar(sidecar, start_workload, new_memory):
    prefill, decode = start_workload(sidecar, "prefill"), start_workload(sidecar, "decode")
    memory = new_memory(MiB)
    prefill.register(memory, ("src", 0, MiB // 2))
    decode.register(memory, ("dst", MiB // 2, MiB // 2))
    view = write(sidecar, "decode/dst", [[0, 0, 0, 0, 100]], {"to": "decode", "message": ""})[1]
    assert view["state"] == "succeeded" and view["notified"] is True, view
    assert Reader(sidecar, "decode").next("notification")["notification"]["from_peer"] == ""


def test_a_transfer_that_is_cancelled_sends_nothing(pair, new_memory):
    a, b, prefill, decode = pair
    source, target = new_memory(LARGE), new_memory(LARGE)
    prefill.register(source, ("src", 0, LARGE))
    decode.register(target, ("dst", 0, LARGE))
    transfer, workers = hold_in_the_middle(a, "prefill", "write", "src", "b/decode/dst", LARGE,
                                           notify={"to": "decode", "message": ""})
    a.ask("DELETE", f"/v1/transfers/{transfer}?workload=prefill")
    send(workers, signal.SIGCONT)
    view = view_of(a, "prefill", transfer, wait_ms=10_000)
    assert view["state"] == "cancelled" and "notified" not in view, view
    Reader(b, "decode").none("notification")


def test_the_receiver_died_after_the_bytes(pair, new_memory):
    """The peer is gone when it is to be told: the transfer ends at its deadline, succeeded and not notified."""
    a, b, prefill, decode = pair
    source, target = new_memory(MiB), new_memory(MiB)
    prefill.register(source, ("src", 0, MiB))
    decode.register(target, ("dst", 0, MiB))
    assert write(a, "b/decode/dst", [[0, 0, 0, 0, 8]], {"to": "decode", "message": ""})[1]["notified"] is True
    send([b.process.pid], signal.SIGSTOP)
    try:
        status, view = write(a, "b/decode/dst", [[0, 0, 0, 0, MiB]], {"to": "decode", "message": ""},
                             deadline_ms=1500)
    finally:
        send([b.process.pid], signal.SIGCONT)
    assert status == 200 and view["state"] == "succeeded" and view["notified"] is False, view
    assert view["notify_error"]["code"] == "deadline_exceeded"
    assert view["bytes_moved"] == MiB


@pytest.fixture
def written(pair, new_memory):
    """a, b, what the owner has and a write with these fields whose bytes are there and whose receiver's sidecar stands still."""
    a, b, prefill, decode = pair
    source, target = new_memory(MiB, filled=True), new_memory(MiB)
    prefill.register(source, ("src", 0, MiB))
    decode.register(target, ("dst", 0, MiB))
    assert write(a, "b/decode/dst", [[0, 0, 0, 0, 8]], {"to": "decode", "message": ""})[1]["notified"] is True
    send([b.process.pid], signal.SIGSTOP)

    def make(**fields):
        view = write(a, "b/decode/dst", [[0, 0, 0, 0, MiB]], {"to": "decode", "message": encoded(b"here")}, wait_ms=0, **fields)[1]
        # The bytes are there some moments before the sidecar counts them.
        wait_for(lambda: view_of(a, "prefill", view["id"])["bytes_moved"] == MiB, 10, "the bytes")
        assert not target.differs_from(source)
        return view_of(a, "prefill", view["id"])

    yield a, b, make
    resume([b.process.pid])


def test_the_peer_is_killed_between_the_bytes_and_the_notification(written):
    """The end comes soon after the peer is known to be down, not at the deadline, and says that the bytes are there."""
    a, b, make = written
    # A message of its own is tried for longer, and is nothing that the transfer waits for.
    a.ask("POST", "/v1/notifications", {"workload": "prefill", "to": "b/decode", "message": "", "deadline_ms": 30_000})
    view = make(deadline_ms=60_000)
    assert view["state"] == "running" and view["bytes_moved"] == MiB, view
    began = time.monotonic()
    b.kill()
    view = view_of(a, "prefill", view["id"], wait_ms=30_000)
    assert time.monotonic() - began < 4
    assert view["state"] == "succeeded" and view["notified"] is False, view
    assert view["notify_error"]["code"] == "peer_lost" and "the bytes have arrived" in view["notify_error"]["detail"], view
    assert "error" not in view and "failed_items" not in view, view
    assert Reader(a, "prefill").next("transfer")["transfer"]["notified"] in (True, False)


def test_the_peer_stands_still_after_the_bytes(written):
    """It is known to be down after some seconds of silence."""
    a, b, make = written
    began = time.monotonic()
    view = view_of(a, "prefill", make(deadline_ms=60_000)["id"], wait_ms=30_000)
    assert time.monotonic() - began < 12
    assert view["state"] == "succeeded" and view["notify_error"]["code"] == "peer_lost", view


def test_the_peer_comes_back_without_the_receiver(written):
    a, b, make = written
    view = make(deadline_ms=60_000)
    b.kill()
    b.start()
    view = view_of(a, "prefill", view["id"], wait_ms=30_000)
    assert view["state"] == "succeeded" and view["notified"] is False, view
    assert view["notify_error"]["code"] == "not_found", view


def test_the_peer_goes_on_in_time(written):
    """It stood still for less than it takes to be given up: it is told, once."""
    a, b, make = written
    view = make(deadline_ms=60_000)
    time.sleep(1)
    resume([b.process.pid])
    view = view_of(a, "prefill", view["id"], wait_ms=30_000)
    assert view["state"] == "succeeded" and view["notified"] is True, view
    receiver = Reader(b, "decode")
    assert [receiver.next("notification")["notification"]["message"] for _ in range(2)] == ["", encoded(b"here")]
    receiver.none("notification")
