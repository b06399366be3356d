"""Holds when somebody dies or begins anew: a promise ends with its owner, and no reader keeps it beyond its own end."""

import signal
import time

import pytest

from held_blocks import HeldBlocks, put, read, shorten, state_of
from test_notifications import Reader
from workloads import (LARGE, connect, gantry, hold_in_the_middle, metric, new_memory, send, start_workload,  # noqa: F401
                       view_of, wait_for)

BLOCK = 4096


@pytest.fixture(params=["unix", "tcp"])
def pair(request, start_sidecar, start_workload, new_memory):
    return HeldBlocks(request.param, start_sidecar, start_workload, new_memory)


def test_a_read_in_the_middle_of_its_bytes_keeps_it(start_sidecar, start_workload, new_memory):
    p, d = start_sidecar("p"), start_sidecar("d")
    connect(d, p)
    owner, consumer = start_workload(p, "prefill"), start_workload(d, "decode")
    source, target = new_memory(LARGE, filled=True), new_memory(LARGE)
    owner.register(source, ("k", 0, LARGE))
    consumer.register(target, ("k", 0, LARGE))
    body = {"workload": "prefill", "groups": [{"buffers": ["k"]}], "ttl_ms": 60_000}
    assert p.ask("PUT", "/v1/holds/h", body)[0] == 200
    transfer, workers = hold_in_the_middle(d, "decode", "read", "k", "p/prefill/k", LARGE, hold="h")
    shorten(p, 500)
    time.sleep(1.5)
    owners = Reader(p, "prefill")
    owners.none("hold")
    assert state_of(p)["reading"] == 1
    send(workers, signal.SIGCONT)
    assert view_of(d, "decode", transfer, wait_ms=10_000)["state"] == "succeeded"
    assert target.differs_from(source) == []
    assert owners.next("hold")["hold"]["outcome"] == "expired"


def test_a_killed_sidecar_of_a_consumer_does_not_keep_it(pair):
    """The hold ends at its time, and nobody is counted."""
    put(pair.p, expected_consumers=1)
    pair.begin(deadline_ms=600_000)
    shorten(pair.p, 1500)
    pair.d.kill()
    assert pair.events.next("hold", seconds=10)["hold"] == {"outcome": "expired", "consumers": 0}


def test_a_killed_consumer_reads_no_more(pair):
    put(pair.p, expected_consumers=1)
    pair.begin(deadline_ms=600_000)
    pair.consumer.kill()
    pair.nobody_reads()
    assert (state_of(pair.p)["state"], state_of(pair.p)["consumers"]) == ("active", 0)


def test_a_peer_that_was_removed_reads_no_more(pair):
    """Its transfer has failed before the owner may take the blocks for something else."""
    put(pair.p)
    transfer = pair.begin(deadline_ms=600_000)
    shorten(pair.p, 1500)
    assert pair.d.ask("DELETE", "/v1/peers/p")[0] == 204
    pair.events.next("hold", seconds=10)
    pair.let_go()
    assert pair.end_of(transfer)["state"] == "failed"
    assert pair.nothing_arrived()


def test_it_ends_with_its_owner(pair):
    put(pair.p)
    transfer = pair.begin(deadline_ms=600_000)
    pair.owner.kill()
    assert pair.end_of(transfer)["state"] == "failed"
    assert read(pair.d, [1])[1]["code"] in ("unregistered", "draining")
    wait_for(lambda: metric(pair.p, "gantry_holds") == 0, 5, "the end of the hold")
    assert pair.nothing_arrived()


def test_a_new_life_of_its_owner_promises_nothing(pair):
    put(pair.p)
    generation = pair.p.ask("GET", "/v1/workloads/prefill")[1]["generation"]
    pair.owner.kill()
    wait_for(lambda: pair.p.ask("GET", "/v1/workloads/prefill")[0] == 404, 5, "the end of the owner")
    pair.start_owner()
    assert pair.p.ask("GET", "/v1/workloads/prefill")[1]["generation"] != generation
    assert read(pair.d, [1])[1]["code"] == "not_found"
    assert pair.p.ask("PATCH", "/v1/holds/h", {"workload": "prefill", "ttl_ms": 1000})[1]["code"] == "not_found"
    assert pair.nothing_arrived()
    put(pair.p, blocks=[3], expected_consumers=1)
    assert read(pair.d, [1])[1]["code"] == "out_of_range"
    assert read(pair.d, [3])[1]["state"] == "succeeded" and pair.arrived(3)
    assert pair.events.next("hold")["hold"] == {"outcome": "consumed", "consumers": 1}


def test_buffers_that_were_registered_anew_are_not_what_was_held(pair):
    put(pair.p)
    pair.owner.do("unregister", "k")
    pair.owner.register(pair.source, ("k", 0, 16 * BLOCK, ("remote_read",), BLOCK))
    assert read(pair.d, [1])[1]["code"] == "stale_generation"
    assert pair.nothing_arrived()
    put(pair.p)  # the same promise again is about the buffers as they are
    assert read(pair.d, [1])[1]["state"] == "succeeded" and pair.arrived(1)


def test_a_killed_sidecar_of_its_owner_fails_who_reads_and_promises_nothing_when_it_is_back(pair):
    put(pair.p)
    transfer = pair.begin(deadline_ms=600_000)
    pair.p.kill()
    assert pair.end_of(transfer)["state"] == "failed"
    pair.let_go()
    pair.owner.kill()
    pair.p.start()
    pair.start_owner()
    wait_for(lambda: pair.d.ask("GET", "/v1/peers/p")[1]["state"] == "up", 20, "the peer")
    assert read(pair.d, [1])[1]["code"] == "not_found"
    assert pair.nothing_arrived()


def test_with_the_python_client(pair):
    """Two clients of their own: a hold that is read, a heartbeat, and a notification with a transfer."""
    with gantry.Client(pair.p.run_dir, "owner") as owner, gantry.Client(pair.d.run_dir, "reader") as reader:
        kept = owner.arena(4 * BLOCK)
        kept[:] = bytes(range(256)) * (4 * BLOCK // 256)
        source = owner.register("blocks", kept, layout=gantry.Layout(BLOCK))
        target = reader.register("blocks", reader.arena(4 * BLOCK), layout=gantry.Layout(BLOCK))
        hold = owner.hold("r", gantry.HoldGroup(["blocks"], [1, 2]), ttl=30, expected_consumers=1)
        assert hold.extend(60) > time.time() + 50
        with pytest.raises(gantry.Error) as refused:
            reader.read(target, "p/owner/blocks", local_blocks=[0], remote_blocks=[3], hold="r")
        assert refused.value.code == "out_of_range"
        part = reader.read(target, "p/owner/blocks", local_blocks=[1], remote_blocks=[1], hold="r", hold_consumers=0)
        assert part.wait(10).state == "succeeded"
        message = gantry.Message(f"owner@{owner.generation}", "read", request_id="r-1")
        transfer = reader.read(target, "p/owner/blocks", local_blocks=[0], remote_blocks=[2], hold="r", notify=message)
        assert transfer.wait(10).state == "succeeded" and transfer.details()["notified"] is True
        events = {}
        for event in owner.events(timeout=5):
            events[event.type] = event
            if {"notification", "hold"} <= set(events):
                break
        assert events["notification"].message == b"read" and events["hold"].fields["hold"]["outcome"] == "consumed"
        assert events["hold"].fields["hold"]["consumers"] == 1
        with pytest.raises(gantry.Error) as over:
            hold.extend(1)
        assert over.value.code == "lease_expired"
        assert hold.release() is True
        sent = owner.notify("owner", b"to myself")
        outcome = next(event for event in owner.events(timeout=5) if event.type == "notification_outcome")
        assert outcome.subject == sent and source.registered
