"""Holds: what a consumer may read of them, for how long, and what their owner learns."""

import signal
import time

import pytest

from test_notifications import Reader
from test_peers_over_tcp import TCP, meet
from workloads import (LARGE, connect, gantry, hold_in_the_middle, metric, new_memory, send, start_workload, view_of, wait_for)

BLOCK = 4096


@pytest.fixture(params=["unix", "tcp"])
def pair(request, start_sidecar, start_workload, new_memory):
    """Owner "prefill" at p with 16 blocks in k and in v, consumer "decode" at d, which reaches p either way."""
    flags = TCP if request.param == "tcp" else []
    p, d = start_sidecar("p", flags=flags), start_sidecar("d", flags=flags)
    assert (meet(d, p) if flags else connect(d, p))["state"] == "up"
    owner, consumer = start_workload(p, "prefill"), start_workload(d, "decode")
    source, target = new_memory(32 * BLOCK, filled=True), new_memory(32 * BLOCK)
    owner.register(source, ("k", 0, 16 * BLOCK, ("remote_read",), BLOCK), ("v", 16 * BLOCK, 16 * BLOCK, ("remote_read",), BLOCK))
    consumer.register(target, ("k", 0, 16 * BLOCK, (), BLOCK), ("v", 16 * BLOCK, 16 * BLOCK, (), BLOCK))
    return p, d, source, target


def put(sidecar, hold="h", ttl_ms=60_000, blocks=(1, 2, 5), workload="prefill", **fields):
    group = {"buffers": ["k", "v"]} | ({"blocks": list(blocks)} if blocks is not None else {})
    body = {"workload": workload, "groups": [group], "ttl_ms": ttl_ms, **fields}
    status, view = sidecar.ask("PUT", f"/v1/holds/{hold}", body)
    assert status == 200, view
    return view


def read(sidecar, blocks, hold="h", remote="p/prefill", **fields):
    body = {"workload": "decode", "op": "read", "local": ["k", "v"], "remote": [f"{remote}/k", f"{remote}/v"],
            "local_blocks": list(blocks), "remote_blocks": list(blocks), "hold": hold, **fields}
    return sidecar.ask("POST", "/v1/transfers?wait_ms=10000", body)


def test_a_consumer_reads_what_is_held_and_its_owner_learns_it(pair):
    p, d, source, target = pair
    assert put(p, expected_consumers=2)["state"] == "active"
    assert metric(p, "gantry_holds") == 1
    for consumers in (1, 2):
        status, view = read(d, [5, 1])
        assert status == 200 and view["state"] == "succeeded", view
        if consumers == 1:
            wait_for(lambda: p.ask("GET", "/v1/holds/h?workload=prefill")[1]["consumers"] == 1, 5, "the first consumer")
    for block in (1, 5):
        for base in (0, 16):
            start = (base + block) * BLOCK
            assert target.map[start:start + BLOCK] == source.map[start:start + BLOCK]
    event = Reader(p, "prefill").next("hold")
    assert (event["subject"], event["hold"]["outcome"], event["hold"]["consumers"]) == ("h", "consumed", 2)
    status, problem = read(d, [1])
    assert (status, problem["code"]) == (410, "lease_expired"), problem
    assert metric(p, "gantry_holds") == 0 and metric(p, "gantry_hold_expirations_total") == 0


def test_blocks_outside_of_the_hold_are_refused(pair):
    p, d, _, _ = pair
    put(p)
    assert read(d, [3])[1]["code"] == "out_of_range"
    assert read(d, [1, 6])[1]["code"] == "out_of_range"
    assert read(d, [1], hold="none")[1]["code"] == "not_found"
    ranges = {"workload": "decode", "op": "read", "local": ["k"], "remote": ["p/prefill/k"], "ranges": [[0, 0, 0, 0, 8]],
              "hold": "h"}
    assert d.ask("POST", "/v1/transfers", ranges)[1]["code"] == "out_of_range"
    put(p, hold="all", blocks=None)
    assert d.ask("POST", "/v1/transfers?wait_ms=9000", ranges | {"hold": "all"})[1]["state"] == "succeeded"


def test_an_expired_hold_is_refused_and_reported(pair):
    p, d, _, _ = pair
    put(p, ttl_ms=300)
    assert read(d, [1])[1]["state"] == "succeeded"
    time.sleep(0.4)
    status, problem = read(d, [1])
    assert (status, problem["code"]) == (410, "lease_expired"), problem
    event = Reader(p, "prefill").next("hold")
    assert event["hold"] == {"outcome": "expired", "consumers": 1}
    assert metric(p, "gantry_hold_expirations_total") == 1
    assert p.ask("PATCH", "/v1/holds/h", {"workload": "prefill", "ttl_ms": 1000})[1]["code"] == "lease_expired"
    assert metric(d, 'gantry_access_errors_total{path="none",reason="lease_expired"}') == 1


def test_heartbeats_keep_it_and_a_delete_ends_it(pair):
    p, d, _, _ = pair
    put(p, ttl_ms=400)
    for _ in range(4):
        time.sleep(0.2)
        assert p.ask("PATCH", "/v1/holds/h", {"workload": "prefill", "ttl_ms": 400})[0] == 200
    assert read(d, [1])[1]["state"] == "succeeded"
    assert p.ask("DELETE", "/v1/holds/h?workload=prefill")[0] == 204
    assert read(d, [1])[1]["code"] == "lease_expired"
    assert Reader(p, "prefill").next("hold")["hold"]["outcome"] == "released"


def test_it_does_not_expire_under_a_read(start_sidecar, start_workload, new_memory):
    p, d = start_sidecar("p"), start_sidecar("d")
    connect(d, p)
    owner, consumer = start_workload(p, "prefill"), start_workload(d, "decode")
    owner.register(new_memory(LARGE), ("k", 0, LARGE))
    consumer.register(new_memory(LARGE), ("k", 0, LARGE))
    body = {"workload": "prefill", "groups": [{"buffers": ["k"]}], "ttl_ms": 1500}
    assert p.ask("PUT", "/v1/holds/h", body)[0] == 200
    transfer, workers = hold_in_the_middle(d, "decode", "read", "k", "p/prefill/k", LARGE, hold="h")
    time.sleep(2)
    owners = Reader(p, "prefill")
    owners.none("hold")
    assert p.ask("GET", "/v1/holds/h?workload=prefill")[1]["reading"] == 1
    send(workers, signal.SIGCONT)
    assert view_of(d, "decode", transfer, wait_ms=10_000)["state"] == "succeeded"
    assert owners.next("hold")["hold"] == {"outcome": "expired", "consumers": 1}


def test_a_killed_consumer_does_not_keep_it(start_sidecar, start_workload, new_memory):
    """Its sidecar is killed in the middle of a read: the hold ends at its time, and nobody is counted."""
    p, d = start_sidecar("p"), start_sidecar("d")
    connect(d, p)
    owner, consumer = start_workload(p, "prefill"), start_workload(d, "decode")
    owner.register(new_memory(LARGE), ("k", 0, LARGE))
    consumer.register(new_memory(LARGE), ("k", 0, LARGE))
    body = {"workload": "prefill", "groups": [{"buffers": ["k"]}], "ttl_ms": 2000, "expected_consumers": 1}
    assert p.ask("PUT", "/v1/holds/h", body)[0] == 200
    hold_in_the_middle(d, "decode", "read", "k", "p/prefill/k", LARGE, hold="h", deadline_ms=600_000)
    assert p.ask("GET", "/v1/holds/h?workload=prefill")[1]["reading"] == 1
    d.kill()
    event = Reader(p, "prefill").next("hold", seconds=10)
    assert event["hold"] == {"outcome": "expired", "consumers": 0}


def test_a_cancelled_read_counts_nobody(start_sidecar, start_workload, new_memory):
    p, d = start_sidecar("p"), start_sidecar("d")
    connect(d, p)
    owner, consumer = start_workload(p, "prefill"), start_workload(d, "decode")
    owner.register(new_memory(LARGE), ("k", 0, LARGE))
    consumer.register(new_memory(LARGE), ("k", 0, LARGE))
    body = {"workload": "prefill", "groups": [{"buffers": ["k"]}], "ttl_ms": 60_000, "expected_consumers": 1}
    assert p.ask("PUT", "/v1/holds/h", body)[0] == 200
    transfer, workers = hold_in_the_middle(d, "decode", "read", "k", "p/prefill/k", LARGE, hold="h")
    d.ask("DELETE", f"/v1/transfers/{transfer}?workload=decode")
    send(workers, signal.SIGCONT)
    assert view_of(d, "decode", transfer, wait_ms=10_000)["state"] == "cancelled"
    wait_for(lambda: p.ask("GET", "/v1/holds/h?workload=prefill")[1]["reading"] == 0, 5, "the end of the read")
    assert p.ask("GET", "/v1/holds/h?workload=prefill")[1]["consumers"] == 0


def test_within_one_sidecar(sidecar, start_workload, new_memory):
    owner, consumer = start_workload(sidecar, "prefill"), start_workload(sidecar, "decode")
    memory = new_memory(64 * BLOCK)
    owner.register(memory, ("k", 0, 16 * BLOCK, ("remote_read",), BLOCK), ("v", 16 * BLOCK, 16 * BLOCK, ("remote_read",), BLOCK))
    consumer.register(memory, ("k", 32 * BLOCK, 16 * BLOCK, (), BLOCK), ("v", 48 * BLOCK, 16 * BLOCK, (), BLOCK))
    put(sidecar, expected_consumers=1)
    assert read(sidecar, [3], remote="prefill")[1]["code"] == "out_of_range"
    assert read(sidecar, [5], remote="prefill")[1]["state"] == "succeeded"
    assert Reader(sidecar, "prefill").next("hold")["hold"] == {"outcome": "consumed", "consumers": 1}
    assert read(sidecar, [5], remote="prefill")[1]["code"] == "lease_expired"


def test_it_ends_with_its_owner(pair, start_workload):
    p, d, _, _ = pair
    put(p)
    assert p.ask("DELETE", "/v1/workloads/prefill")[0] == 204
    assert read(d, [1])[1]["code"] in ("unregistered", "not_found", "draining")
    wait_for(lambda: metric(p, "gantry_holds") == 0, 5, "the end of the hold")


def test_lists_and_refusals(pair):
    p, _, _, _ = pair
    put(p, hold="b")
    put(p, hold="a")
    assert [hold["id"] for hold in p.ask("GET", "/v1/holds?workload=prefill")[1]["holds"]] == ["a", "b"]
    assert [hold["id"] for hold in p.ask("GET", "/v1/holds?limit=1")[1]["holds"]] == ["a"]
    for change, code in (({"groups": []}, "invalid_argument"), ({"groups": [{"buffers": []}]}, "invalid_argument"),
                         ({"groups": [{"buffers": ["k"], "blocks": []}]}, "invalid_argument"),
                         ({"groups": [{"buffers": ["k"], "blocks": [16]}]}, "out_of_range"),
                         ({"groups": [{"buffers": ["none"]}]}, "unregistered"), ({"ttl_ms": 0}, "invalid_argument"),
                         ({"ttl_ms": 3_600_001}, "invalid_argument"), ({"expected_consumers": 0}, "invalid_argument"),
                         ({"workload": "nobody"}, "not_found")):
        body = {"workload": "prefill", "groups": [{"buffers": ["k"]}], "ttl_ms": 10, **change}
        assert p.ask("PUT", "/v1/holds/c", body)[1]["code"] == code, change
    assert p.ask("PUT", "/v1/holds/a", {"workload": "prefill", "groups": [{"buffers": ["k"]}], "ttl_ms": 9})[1]["code"] == "conflict"
    assert p.ask("GET", "/v1/holds/none?workload=prefill")[1]["code"] == "not_found"
    assert p.ask("DELETE", "/v1/holds/none?workload=prefill")[1]["code"] == "not_found"


def test_with_the_python_client(pair):
    """Two clients of their own: a hold that is read, a heartbeat, and a notification with a transfer."""
    p, d, _, _ = pair
    with gantry.Client(p.run_dir, "owner") as owner, gantry.Client(d.run_dir, "reader") as reader:
        kept = owner.arena(4 * BLOCK)
        kept[:] = bytes(range(256)) * (4 * BLOCK // 256)
        source = owner.register("blocks", kept, layout=gantry.Layout(BLOCK))
        target = reader.register("blocks", reader.arena(4 * BLOCK), layout=gantry.Layout(BLOCK))
        hold = owner.hold("r", gantry.HoldGroup(["blocks"], [1, 2]), ttl=30, expected_consumers=1)
        assert hold.extend(60) > time.time() + 50
        with pytest.raises(gantry.Error) as refused:
            reader.read(target, "p/owner/blocks", local_blocks=[0], remote_blocks=[3], hold="r")
        assert refused.value.code == "out_of_range"
        message = gantry.Message(f"owner@{owner.generation}", "read", request_id="r-1")
        transfer = reader.read(target, "p/owner/blocks", local_blocks=[0], remote_blocks=[2], hold="r", notify=message)
        assert transfer.wait(10).state == "succeeded" and transfer.details()["notified"] is True
        events = {}
        for event in owner.events(timeout=5):
            events[event.type] = event
            if {"notification", "hold"} <= set(events):
                break
        assert events["notification"].message == b"read" and events["hold"].fields["hold"]["outcome"] == "consumed"
        with pytest.raises(gantry.Error) as over:
            hold.extend(1)
        assert over.value.code == "lease_expired"
        hold.release()
        sent = owner.notify("owner", b"to myself")
        outcome = next(event for event in owner.events(timeout=5) if event.type == "notification_outcome")
        assert outcome.subject == sent and source.registered
