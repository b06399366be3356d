"""Holds: what a consumer may read of them, for how long, and what their owner learns."""

import threading
import time

import pytest

from held_blocks import BLOCK, HeldBlocks, put, read, shorten, state_of
from test_notifications import Reader
from workloads import gantry, metric, new_memory, start_workload, wait_for  # noqa: F401


@pytest.fixture(params=["unix", "tcp"])
def pair(request, start_sidecar, start_workload, new_memory):
    return HeldBlocks(request.param, start_sidecar, start_workload, new_memory)


def outcome(outcome, consumers):
    return {"outcome": outcome, "consumers": consumers}


@pytest.mark.smoke(pair="unix")
def test_a_consumer_reads_what_is_held_and_its_owner_learns_it(pair):
    p, d = pair.p, pair.d
    assert put(p, expected_consumers=2)["state"] == "active"
    assert metric(p, "gantry_holds") == 1
    for consumers in (1, 2):
        status, view = read(d, [5, 1])
        assert status == 200 and view["state"] == "succeeded", view
        if consumers == 1:
            wait_for(lambda: state_of(p)["consumers"] == 1, 5, "the first consumer")
    assert pair.arrived(1, 5) and not pair.arrived(2)
    event = pair.events.next("hold")
    assert (event["subject"], event["hold"]) == ("h", outcome("consumed", 2))
    status, problem = read(d, [1])
    assert (status, problem["code"], problem["field"]) == (410, "lease_expired", "/hold"), problem
    assert metric(p, "gantry_holds") == 0 and metric(p, "gantry_hold_expirations_total") == 0


def test_the_owner_learns_of_every_reader_though_all_end_at_once(pair):
    readers = 1500
    put(pair.p, expected_consumers=readers)
    fence = {"type": "timeline", "buffer": "counter", "offset": 0, "value": 1}
    for _ in range(readers):
        status, view = read(pair.d, [1], wait_ms=0, fence=fence, deadline_ms=120_000)
        assert status == 202, view
    assert state_of(pair.p)["reading"] == readers
    pair.value = 1
    pair.let_go()
    assert pair.events.next("hold")["hold"] == outcome("consumed", readers)


def test_blocks_outside_of_the_hold_are_refused(pair):
    p, d = pair.p, pair.d
    put(p)
    assert read(d, [3])[1]["code"] == "out_of_range"
    assert read(d, [1, 6])[1]["code"] == "out_of_range"
    assert read(d, [1], hold="none")[1]["code"] == "not_found"
    ranges = {"workload": "decode", "op": "read", "local": ["k"], "remote": ["p/prefill/k"], "ranges": [[0, 0, 0, 0, 8]],
              "hold": "h"}
    assert d.ask("POST", "/v1/transfers", ranges)[1]["code"] == "out_of_range"
    assert pair.nothing_arrived()
    put(p, hold="all", blocks=None)
    assert d.ask("POST", "/v1/transfers?wait_ms=9000", ranges | {"hold": "all"})[1]["state"] == "succeeded"


def test_an_expired_hold_is_refused_before_a_byte_moves(pair):
    p, d = pair.p, pair.d
    put(p, ttl_ms=300)
    time.sleep(0.4)
    status, problem = read(d, [1])
    assert (status, problem["code"]) == (410, "lease_expired"), problem
    assert pair.nothing_arrived()
    assert pair.events.next("hold")["hold"] == outcome("expired", 0)
    assert metric(p, "gantry_hold_expirations_total") == 1
    assert p.ask("PATCH", "/v1/holds/h", {"workload": "prefill", "ttl_ms": 1000})[1]["code"] == "lease_expired"
    assert metric(d, 'gantry_access_errors_total{path="none",reason="lease_expired"}') == 1
    assert put(p)["state"] == "active"  # it begins anew
    assert read(d, [1])[1]["state"] == "succeeded" and pair.arrived(1)


def test_heartbeats_keep_it_and_a_delete_ends_it(pair):
    p, d = pair.p, pair.d
    put(p, ttl_ms=2000)
    for _ in range(5):
        time.sleep(0.5)
        assert p.ask("PATCH", "/v1/holds/h", {"workload": "prefill", "ttl_ms": 2000})[0] == 200
    assert read(d, [1])[1]["state"] == "succeeded"
    pair.nobody_reads()
    assert p.ask("DELETE", "/v1/holds/h?workload=prefill")[0] == 204
    assert read(d, [1])[1]["code"] == "lease_expired"
    assert pair.events.next("hold")["hold"] == outcome("released", 1)
    assert p.ask("DELETE", "/v1/holds/h?workload=prefill")[0] == 204


def test_it_does_not_end_at_its_time_while_it_is_read(pair):
    put(pair.p)
    transfer = pair.begin()
    shorten(pair.p, 500)
    time.sleep(1.2)  # its time and a round of the housekeeping
    pair.events.none("hold")
    assert state_of(pair.p)["state"] == "ending"
    assert read(pair.d, [1])[1]["code"] == "lease_expired"  # but nobody else begins
    assert pair.nothing_arrived()
    pair.let_go()
    assert pair.end_of(transfer)["state"] == "succeeded" and pair.arrived(1)
    assert pair.events.next("hold")["hold"] == outcome("expired", 1)


def test_a_delete_waits_for_those_who_read(pair):
    put(pair.p)
    transfer = pair.begin()
    status, view = pair.p.ask("DELETE", "/v1/holds/h?workload=prefill")
    assert (status, view["state"], view["reading"]) == (202, "ending", 1), view
    assert read(pair.d, [1])[1]["code"] == "lease_expired"
    pair.events.none("hold")
    pair.let_go()
    assert pair.end_of(transfer)["state"] == "succeeded" and pair.arrived(1)
    assert pair.events.next("hold")["hold"] == outcome("released", 1)


def test_a_read_that_does_not_succeed_counts_nobody(pair):
    put(pair.p, expected_consumers=1)
    expired = pair.begin(deadline_ms=300)
    assert pair.end_of(expired)["state"] == "expired"
    cancelled = pair.begin()
    pair.d.ask("DELETE", f"/v1/transfers/{cancelled}?workload=decode")
    assert pair.end_of(cancelled)["state"] == "cancelled"
    pair.nobody_reads()
    assert (state_of(pair.p)["state"], state_of(pair.p)["consumers"]) == ("active", 0)
    pair.events.none("hold")


def test_it_is_over_when_the_last_of_many_has_read_it(pair, start_workload, new_memory):
    """Four ranks read at once, each its own blocks; the fifth comes too late."""
    ranks = [f"decode-{i}" for i in range(4)]
    memories = [new_memory(2 * 16 * BLOCK) for _ in ranks]
    for rank, memory in zip(ranks, memories):
        start_workload(pair.d, rank).register(memory, ("k", 0, 16 * BLOCK, (), BLOCK), ("v", 16 * BLOCK, 16 * BLOCK, (), BLOCK))
    put(pair.p, expected_consumers=4, blocks=range(8))
    views = [None] * 4

    def run(i):
        views[i] = read(pair.d, [2 * i, 2 * i + 1], workload=ranks[i])

    threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert [view[1].get("state") for view in views] == ["succeeded"] * 4, views
    for i, memory in enumerate(memories):
        for start in (2 * i * BLOCK, (16 + 2 * i) * BLOCK):
            assert memory.map[start:start + 2 * BLOCK] == pair.source.map[start:start + 2 * BLOCK]
    assert pair.events.next("hold")["hold"] == outcome("consumed", 4)
    pair.events.none("hold")
    assert read(pair.d, [0])[1]["code"] == "lease_expired"


def test_a_consumer_that_reads_in_parts_counts_once(pair):
    put(pair.p, expected_consumers=3)
    for block in (1, 2):
        assert read(pair.d, [block], hold_consumers=0)[1]["state"] == "succeeded"
    pair.nobody_reads()
    assert state_of(pair.p)["consumers"] == 0
    assert read(pair.d, [5])[1]["state"] == "succeeded"
    assert read(pair.d, [5], hold_consumers=2)[1]["state"] == "succeeded"  # for another rank, too
    assert pair.events.next("hold")["hold"] == outcome("consumed", 3)


def test_the_same_request_again(pair):
    """A hold that was put twice is one; a transfer that is asked for again is found, also when its hold is over."""
    first = put(pair.p, expected_consumers=1)
    time.sleep(0.01)
    again = put(pair.p, expected_consumers=1)
    assert again["expires_unix_ms"] > first["expires_unix_ms"] and metric(pair.p, "gantry_holds") == 1
    assert read(pair.d, [1], id="mine")[1]["state"] == "succeeded"
    assert pair.events.next("hold")["hold"] == outcome("consumed", 1)
    assert read(pair.d, [1], id="mine")[1]["state"] == "succeeded"
    assert read(pair.d, [1], id="mine", hold="other")[1]["code"] == "conflict"


def test_by_a_view_with_groups_and_layers(pair):
    body = {"workload": "prefill", "ttl_ms": 60_000,
            "groups": [{"buffers": ["k"], "blocks": [3, 4]}, {"buffers": ["v"], "blocks": [7]}]}
    assert pair.p.ask("PUT", "/v1/holds/h", body)[0] == 200
    view = {"workload": "decode", "id": "w", "peer": "p", "remote_workload": "prefill",
            "groups": [{"group": 0, "pairs": [["k", "k"]]}, {"group": 1, "pairs": [["v", "v"]]}]}
    status, answer = pair.d.ask("POST", "/v1/views", view)
    assert status == 201, answer

    def move(k, v):
        groups = [{"group": 0, "local_blocks": k, "remote_blocks": k}, {"group": 1, "local_blocks": v, "remote_blocks": v}]
        return pair.d.ask("POST", "/v1/transfers?wait_ms=10000",
                          {"workload": "decode", "op": "read", "view": "w", "groups": groups, "hold": "h"})[1]

    for k, v in (([3], [4]), ([7], [7]), ([3, 5], [7])):
        assert move(k, v)["code"] == "out_of_range", (k, v)
    assert pair.nothing_arrived()
    assert move([4, 3], [7])["state"] == "succeeded"
    assert pair.target.map[3 * BLOCK:5 * BLOCK] == pair.source.map[3 * BLOCK:5 * BLOCK]


def test_within_one_sidecar(sidecar, start_workload, new_memory):
    owner, consumer = start_workload(sidecar, "prefill"), start_workload(sidecar, "decode")
    memory = new_memory(64 * BLOCK)
    owner.register(memory, ("k", 0, 16 * BLOCK, ("remote_read",), BLOCK), ("v", 16 * BLOCK, 16 * BLOCK, ("remote_read",), BLOCK))
    consumer.register(memory, ("k", 32 * BLOCK, 16 * BLOCK, (), BLOCK), ("v", 48 * BLOCK, 16 * BLOCK, (), BLOCK))
    put(sidecar, expected_consumers=1)
    assert read(sidecar, [3], remote="prefill")[1]["code"] == "out_of_range"
    assert read(sidecar, [5], remote="prefill")[1]["state"] == "succeeded"
    assert Reader(sidecar, "prefill").next("hold")["hold"] == outcome("consumed", 1)
    assert read(sidecar, [5], remote="prefill")[1]["code"] == "lease_expired"


def test_lists(pair):
    p = pair.p
    put(p, hold="b")
    put(p, hold="a")
    assert [hold["id"] for hold in p.ask("GET", "/v1/holds?workload=prefill")[1]["holds"]] == ["a", "b"]
    assert [hold["id"] for hold in p.ask("GET", "/v1/holds?limit=1")[1]["holds"]] == ["a"]
    assert p.ask("GET", "/v1/holds/none?workload=prefill")[1]["code"] == "not_found"
    assert p.ask("GET", "/v1/holds/a")[1]["field"] == "?workload"
    assert p.ask("DELETE", "/v1/holds/none?workload=prefill")[1]["code"] == "not_found"


def test_bodies_that_are_refused(pair):
    p, d = pair.p, pair.d
    put(p, hold="a")
    whole = {"workload": "prefill", "groups": [{"buffers": ["k"]}], "ttl_ms": 10}
    assert p.ask("PUT", "/v1/holds/a", whole)[1]["code"] == "conflict"
    k = {"buffers": ["k"]}
    for change, code, field in (
            ({"groups": []}, "invalid_argument", "/groups"), ({"groups": [{"buffers": []}]}, "invalid_argument", None),
            ({"groups": [k | {"blocks": []}]}, "invalid_argument", "/groups/0/blocks"),
            ({"groups": [k | {"blocks": [1, 16]}]}, "out_of_range", "/groups/0/blocks/1"),
            ({"groups": [k | {"blocks": [-1]}]}, "invalid_argument", None),
            ({"groups": [k | {"blocks": [2**63]}]}, "invalid_argument", None),
            ({"groups": [k, k]}, "invalid_argument", "/groups/1/buffers/0"),
            ({"groups": [{"buffers": ["none"]}]}, "unregistered", "/groups/0/buffers/0"),
            ({"groups": [{"buffers": ["a/b"]}]}, "invalid_argument", None), ({"groups": "k"}, "malformed_body", None),
            ({"ttl_ms": 0}, "invalid_argument", "/ttl_ms"), ({"ttl_ms": 3_600_001}, "invalid_argument", "/ttl_ms"),
            ({"ttl_ms": "10"}, "malformed_body", "/ttl_ms"), ({"expected_consumers": 0}, "invalid_argument", None),
            ({"expected_consumers": 1_000_001}, "invalid_argument", None), ({"other": 1}, "malformed_body", None),
            ({"workload": "nobody"}, "not_found", None)):
        status, problem = p.ask("PUT", "/v1/holds/c", whole | change)
        assert status >= 400 and problem["code"] == code, (change, problem)
        assert field is None or problem["field"] == field, (change, problem)
    assert p.ask("PUT", f"/v1/holds/{'x' * 513}", whole)[1]["code"] == "invalid_argument"
    for body, code in (({"workload": "prefill"}, "malformed_body"), ({"workload": "prefill", "ttl_ms": 0}, "invalid_argument"),
                       ({"workload": "prefill", "ttl_ms": 3_600_001}, "invalid_argument"),
                       ({"workload": "nobody", "ttl_ms": 1}, "not_found")):
        assert p.ask("PATCH", "/v1/holds/a", body)[1]["code"] == code, body
    assert p.ask("PATCH", "/v1/holds/none", {"workload": "prefill", "ttl_ms": 1})[1]["code"] == "not_found"
    for fields, code, field in (({"op": "write"}, "invalid_argument", "/hold"), ({"hold": ""}, "invalid_argument", "/hold"),
                                ({"hold_consumers": 1_000_001}, "invalid_argument", "/hold_consumers"),
                                ({"hold_consumers": -1}, "invalid_argument", "/hold_consumers"),
                                ({"hold_consumers": 0, "hold": None}, "invalid_argument", "/hold_consumers")):
        body = {"workload": "decode", "op": "read", "local": ["k"], "remote": ["p/prefill/k"], "local_blocks": [1],
                "remote_blocks": [1], "hold": "a", **fields}
        status, problem = d.ask("POST", "/v1/transfers", {key: value for key, value in body.items() if value is not None})
        assert (status, problem["code"], problem["field"]) == (400, code, field), (fields, problem)
