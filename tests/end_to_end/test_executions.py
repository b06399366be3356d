"""Transfers that the peer executes: both sides show them, and they end quietly whoever dies or is cut off."""

import signal
import time

import pytest

from certificates import Authority
from hosts import VethWire, two_hosts
from test_hosts import sidecars_on
from test_peers_over_tcp import TCP, meet
from workloads import (LARGE, MiB, connect, new_memory, send, start_workload, submit, view_of,
                       wait_for, workers_of)

NOTICED_SECONDS = 6.5
SILENT_SECONDS = 5 + 2 + 1  # until nobody is missed, --quiesce-ms-max, and a margin
QUIET_SECONDS = 8.0  # what the requester waits for the peer's word, and what a busy machine adds


class Pair:
    """Workload "reader" of sidecar a holds `target`, "owner" of b holds `source`, both as "kv"; a and b have met."""

    def __init__(self, a, b, path, start_workload, new_memory, size=8 * MiB):
        self.a, self.b, self.path, self.size = a, b, path, size
        self.target, self.source = new_memory(size, filled=True), new_memory(size, filled=True)
        self.reader, self.owner = start_workload(a, "reader"), start_workload(b, "owner")
        self.reader.register(self.target, ("kv", 0, size, ("remote_read", "remote_write"), 4096))
        self.owner.register(self.source, ("kv", 0, size, ("remote_read", "remote_write"), 4096))

    def move(self, operation="read", length=None, wait_ms=20_000, executor="peer", **fields):
        return submit(self.a, "reader", operation, "kv", "b/owner/kv", length or self.size, wait_ms,
                      executor=executor, **fields)

    def executed(self):
        """What b shows of the transfers that a asked for, the newest first."""
        transfers = self.b.ask("GET", "/v1/transfers?workload=owner")[1]["transfers"]
        return [transfer for transfer in transfers if transfer.get("requested_by")]

    def uses(self, sidecar):
        return sum(buffer["uses"] for buffer in sidecar.ask("GET", "/v1/buffers")[1]["buffers"])

    def hold(self, operation, **fields):
        """A transfer that b has begun and, its workers standing still, does not end: its view at a."""
        assert self.move(operation, length=MiB)[1]["state"] == "succeeded"  # mapped: that needs the workers
        workers = workers_of(self.b)
        send(workers, signal.SIGSTOP)
        status, view = self.move(operation, wait_ms=0, **fields)
        assert status == 202, view
        wait_for(lambda: [one for one in self.executed() if one["state"] == "running"], 5, "the execution")
        return view, workers


def mutual(start_sidecar, path):
    over_tcp = {"flags": TCP} if path == "tcp" else {}
    a, b = start_sidecar("a", **over_tcp), start_sidecar("b", **over_tcp)
    for one, other in ((a, b), (b, a)):
        peer = meet(one, other) if path == "tcp" else connect(one, other)
        assert peer["state"] == "up", peer
    return a, b


@pytest.fixture(params=["shm", "tcp"])
def pair(request, start_sidecar, start_workload, new_memory):
    return Pair(*mutual(start_sidecar, request.param), request.param, start_workload, new_memory)


@pytest.fixture
def near(start_sidecar, start_workload, new_memory):
    """Large buffers of two sidecars of one node."""
    return Pair(*mutual(start_sidecar, "shm"), "shm", start_workload, new_memory, size=LARGE)


@pytest.mark.parametrize("operation", ["read", "write"])
def test_the_peer_executes_and_both_sides_show_it(pair, operation):
    source, target = (pair.source, pair.target) if operation == "read" else (pair.target, pair.source)
    before = bytes(target.map)
    status, view = pair.move(operation, length=5 * MiB)
    assert (status, view["state"], view["executor"], view["path"]) == (200, "succeeded", "peer", pair.path), view
    assert view["bytes_moved"] == view["bytes"] == 5 * MiB and "requested_by" not in view
    assert target.map[:5 * MiB] == source.map[:5 * MiB] and target.map[5 * MiB:] == before[5 * MiB:]
    (there,) = pair.executed()
    assert (there["state"], there["executor"], there["requested_by"], there["path"]) == \
        ("succeeded", "self", "a", pair.path), there
    assert there["op"] == ("write" if operation == "read" else "read") and there["bytes_moved"] == 5 * MiB
    assert there["peer"] == "a" and there["workload"] == "owner"
    # The owner's workload did not submit it, and is not told of its end.
    page = pair.b.ask("POST", "/v1/completions:poll", {"workload": "owner", "cursor": 0})[1]
    assert not [event for event in page["events"] if event["type"] == "transfer"]


@pytest.mark.smoke(pair="shm")
def test_either_side_executes_the_same_transfer(pair):
    for executor, shown in (("self", "self"), ("any", "self"), ("peer", "peer")):
        pair.source.fill()
        status, view = pair.move(executor=executor)
        assert (status, view["state"], view["executor"]) == (200, "succeeded", shown), view
        assert not pair.target.differs_from(pair.source)


def test_block_ids_and_what_comes_after_the_bytes(pair):
    blocks = pair.size // 4096
    local = list(range(0, blocks, 3))
    remote = [blocks - 1 - block for block in local]
    body = {"workload": "reader", "op": "read", "local": ["kv"], "remote": ["b/owner/kv"], "local_blocks": local,
            "remote_blocks": remote, "executor": "peer", "notify": {"to": "owner", "message": "ZG9uZQ=="}}
    before = bytes(pair.target.map)
    status, view = pair.a.ask("POST", "/v1/transfers?wait_ms=20000", body)
    assert (status, view["state"], view["executor"], view["notified"]) == (200, "succeeded", "peer", True), view
    moved = dict(zip(local, remote))
    for block in range(blocks):
        at = slice(block * 4096, (block + 1) * 4096)
        there = moved.get(block)
        expected = before[at] if there is None else pair.source.map[there * 4096:(there + 1) * 4096]
        assert pair.target.map[at] == expected, block


@pytest.mark.parametrize("operation", ["read", "write"])
def test_layers_of_one_allocation(pair, operation):
    layer = pair.size // 4
    names = [f"layer.{i}" for i in range(4)]
    for workload, memory in ((pair.reader, pair.target), (pair.owner, pair.source)):
        workload.register(memory, *[(name, i * layer, layer, ("remote_read", "remote_write"), 4096)
                                    for i, name in enumerate(names)])
    blocks = list(range(0, layer // 4096, 2))
    body = {"workload": "reader", "op": operation, "local": names, "remote": [f"b/owner/{name}" for name in names],
            "local_blocks": blocks, "remote_blocks": blocks[::-1], "executor": "peer"}
    source, target = (pair.source, pair.target) if operation == "read" else (pair.target, pair.source)
    pairs = list(zip(blocks, blocks[::-1]) if operation == "read" else zip(blocks[::-1], blocks))
    expected = bytearray(target.map)
    for start in range(0, pair.size, layer):
        for to, come in pairs:
            expected[start + to * 4096:start + (to + 1) * 4096] = source.map[start + come * 4096:start + (come + 1) * 4096]
    status, view = pair.a.ask("POST", "/v1/transfers?wait_ms=20000", body)
    assert (status, view["state"], view["executor"]) == (200, "succeeded", "peer"), view
    assert bytes(target.map) == bytes(expected)


def test_the_peer_moves_what_cannot_be_mapped_here(start_sidecar, start_workload, new_memory):
    a, b = start_sidecar("a", flags=["--peer-fds-max", "1"]), start_sidecar("b")
    for one, other in ((a, b), (b, a)):
        assert connect(one, other)["state"] == "up"
    pair = Pair(a, b, "shm", start_workload, new_memory, size=2 * MiB)
    other = new_memory(MiB, filled=True)  # a second descriptor, on this side alone
    pair.reader.register(pair.target, ("two", MiB, MiB, ("remote_read", "remote_write"), 4096))
    pair.owner.register(other, ("two", 0, MiB, ("remote_read", "remote_write"), 4096))
    body = {"workload": "reader", "op": "read", "local": ["kv", "two"], "remote": ["b/owner/kv", "b/owner/two"],
            "local_blocks": [0], "remote_blocks": [1]}
    status, problem = a.ask("POST", "/v1/transfers?wait_ms=20000", body)
    assert (status, problem["code"]) == (429, "resource_exhausted") and "--peer-fds-max" in problem["hint"], problem
    status, made = a.ask("POST", "/v1/views", {"id": "v", "workload": "reader", "peer": "b", "remote_workload": "owner",
                                               "pairs": "by_name"})
    assert status == 201 and made["pair_count"] == 2, made
    assert any("could not be mapped" in warning for warning in made["warnings"]), made
    for name in ("lists", "view"):
        pair.source.fill()
        if name == "view":
            body = {"workload": "reader", "op": "read", "view": "v", "local_blocks": [0], "remote_blocks": [1]}
        status, moved = a.ask("POST", "/v1/transfers?wait_ms=20000", {**body, "executor": "peer"})
        assert (status, moved["state"], moved["executor"]) == (200, "succeeded", "peer"), moved
        assert pair.target.map[:4096] == pair.source.map[4096:8192]
        assert pair.target.map[MiB:MiB + 4096] == other.map[4096:8192]


def test_a_peer_that_may_need_long_to_be_quiet_is_not_asked(start_sidecar, start_workload, new_memory):
    a, b = start_sidecar("a"), start_sidecar("b", flags=["--quiesce-ms-max", "70000"])
    for one, other in ((a, b), (b, a)):
        assert connect(one, other)["state"] == "up"
    pair = Pair(a, b, "shm", start_workload, new_memory, size=MiB)
    status, problem = pair.move()
    assert (problem["code"], problem["field"]) == ("path_unavailable", "/executor"), (status, problem)
    assert "70000" in problem["detail"] and "--quiesce-ms-max" in problem["hint"]
    assert pair.move(executor="any")[1]["executor"] == "self"


@pytest.mark.parametrize("how", ["delete", "stop"])
def test_two_that_execute_for_each_other_part_without_waiting_for_ever(near, how):
    """Each could wait for the end of a session that the other keeps until its own wait is over."""
    a, b = near.a, near.b
    assert near.move("read", length=MiB)[1]["state"] == "succeeded"
    assert submit(b, "owner", "read", "kv", "a/reader/kv", MiB, 10_000, executor="peer")[1]["state"] == "succeeded"
    workers = workers_of(a) + workers_of(b)
    send(workers, signal.SIGSTOP)
    views = [(a, "reader", near.move("read", wait_ms=0, deadline_ms=20_000)[1]),
             (b, "owner", submit(b, "owner", "read", "kv", "a/reader/kv", near.size, 0, executor="peer",
                                 deadline_ms=20_000)[1])]
    for one, workload, view in views:
        wait_for(lambda: view_of(one, workload, view["id"])["state"] == "running", 5, "the execution")
    if how == "delete":
        a.ask("DELETE", "/v1/peers/b?drain_ms=1000")
    else:
        sidecars = [a.process.pid, b.process.pid]
        send(sidecars, signal.SIGSTOP)
        time.sleep(8)
        send(sidecars, signal.SIGCONT)
    for one, workload, view in views:
        wait_for(lambda: view_of(one, workload, view["id"])["state"] in ("succeeded", "failed", "cancelled", "expired"),
                 45, lambda: f"the end: {view_of(one, workload, view['id'])}")
    send([pid for pid in workers if pid in workers_of(a) + workers_of(b)], signal.SIGCONT)


@pytest.mark.parametrize("path", ["plain data", "encrypted data"])
def test_with_certificates_the_names_tell_whose_session_it_is(start_sidecar, start_workload, new_memory, folder, path):
    authority = Authority(folder, "authority")
    (folder / "rules").write_text("spiffe://test/a  owner   read,write\nspiffe://test/b  reader  read,write\n")
    flags = ["--peer-rules", str(folder / "rules"), *(["--data-tls"] if path == "encrypted data" else [])]
    a, b = (start_sidecar(name, flags=TCP + flags + authority.issue(name, f"URI:spiffe://test/{name},IP:127.0.0.1"))
            for name in "ab")
    for one, other in ((a, b), (b, a)):
        assert meet(one, other)["state"] == "up"
    pair = Pair(a, b, "tcp", start_workload, new_memory, size=MiB)
    for operation in ("read", "write"):
        pair.source.fill()
        status, view = pair.move(operation)
        assert (status, view["state"], view["executor"], view["path"]) == (200, "succeeded", "peer", "tcp"), view
        assert not pair.target.differs_from(pair.source)


def test_what_it_needs_is_said(start_sidecar, start_workload, new_memory):
    a, b = start_sidecar("a"), start_sidecar("b")
    connect(a, b)
    pair = Pair(a, b, "shm", start_workload, new_memory, size=MiB)
    status, problem = pair.move()
    assert (status, problem["code"], problem["field"]) == (503, "peer_unavailable", "/executor"), problem
    assert "no session with this sidecar" in problem["detail"] and "PUT /v1/peers" in problem["hint"]
    connect(b, a)
    assert pair.move()[1]["state"] == "succeeded"
    memory = new_memory(MiB)
    pair.reader.register(memory, ("private", 0, MiB, ()), ("readable", 0, MiB, ("remote_read",)))
    for local in ("private", "readable"):
        status, problem = submit(a, "reader", "read", local, "b/owner/kv", MiB, executor="peer")
        assert (status, problem["code"], problem["field"]) == (403, "permission_denied", "/local/0"), problem
    assert submit(a, "reader", "write", "readable", "b/owner/kv", MiB, 10_000, executor="peer")[1]["state"] == "succeeded"
    status, problem = submit(a, "reader", "read", "kv", "private", MiB, executor="peer")
    assert (status, problem["code"], problem["field"]) == (400, "invalid_argument", "/executor"), problem
    status, problem = pair.move(executor="both")
    assert (status, problem["field"]) == (400, "/executor"), problem
    status, problem = pair.move(require_path=["ipc"])
    assert problem.get("code") == "path_unavailable" or problem["error"]["code"] == "path_unavailable", problem
    assert not pair.uses(a) and not pair.uses(b)


@pytest.mark.parametrize("operation", ["read", "write"])
def test_a_cancel_ends_when_the_peer_is_quiet(near, operation):
    view, workers = near.hold(operation)
    status, view = near.a.ask("DELETE", f"/v1/transfers/{view['id']}?workload=reader&wait_ms=10000")
    assert view["state"] == "cancelled", view
    assert near.executed()[0]["state"] == "cancelled"
    assert near.uses(near.a) == near.uses(near.b) == 0
    destination = near.target if operation == "read" else near.source
    seen = bytes(destination.map)
    send([pid for pid in workers if pid in workers_of(near.b)], signal.SIGCONT)
    time.sleep(0.3)
    assert bytes(destination.map) == seen
    assert near.move(operation)[1]["state"] == "succeeded" and not near.target.differs_from(near.source)


def test_a_deadline_is_kept(near):
    begin = time.monotonic()
    view, workers = near.hold("read", deadline_ms=700)
    view = view_of(near.a, "reader", view["id"], wait_ms=10_000)
    assert view["state"] == "expired" and time.monotonic() - begin < 0.7 + QUIET_SECONDS, view
    assert near.uses(near.a) == 0


def test_an_executor_that_dies_fails_the_transfer_and_frees_it(near):
    view, workers = near.hold("read")
    near.b.kill()
    begin = time.monotonic()
    view = view_of(near.a, "reader", view["id"], wait_ms=10_000)
    assert (view["state"], view["error"]["code"]) == ("failed", "peer_lost"), view
    assert time.monotonic() - begin < 5  # it is looked for again for a while before that is its outcome
    seen = bytes(near.target.map)
    assert near.uses(near.a) == 0 and not near.target.mapped_by(workers)
    time.sleep(0.3)
    assert bytes(near.target.map) == seen


def test_a_workload_that_dies_does_not_wait_in_turn_for_all_that_its_silent_executor_may_need(
        start_sidecar, start_workload, new_memory):
    """docs/operations.md, "Who executes": what the peer has read it may store for so long, counted from the stop."""
    a, b = mutual(start_sidecar, "tcp")
    pair = Pair(a, b, "tcp", start_workload, new_memory, size=LARGE)
    assert pair.move("write", length=MiB)[1]["state"] == "succeeded"
    for _ in range(10):
        status, view = pair.move("write", wait_ms=0, deadline_ms=60_000)
        wait_for(lambda: pair.executed()[0]["state"] != "queued", 5)
        send([b.process.pid], signal.SIGSTOP)
        if view_of(a, "reader", view["id"])["state"] == "running":
            break
        send([b.process.pid], signal.SIGCONT)  # it was faster
    pair.reader.kill()
    begin = time.monotonic()
    wait_for(lambda: not a.ask("GET", "/v1/transfers?active=true")[1]["transfers"], 20, "the end of its transfer")
    took = time.monotonic() - begin
    send([b.process.pid], signal.SIGCONT)
    print(f"quiet after {took:.1f} s")
    assert SILENT_SECONDS - 0.5 < took < SILENT_SECONDS + 2, took
    wait_for(lambda: pair.uses(a) == 0, 1, "the end of its buffers")


def test_a_requester_that_dies_stops_it(near):
    view, workers = near.hold("write")
    near.a.kill()
    send(workers, signal.SIGCONT)
    wait_for(lambda: near.executed()[0]["state"] in ("failed", "cancelled", "succeeded"), 5, "the end at the executor")
    wait_for(lambda: near.uses(near.b) == 0, 1)


def test_a_cut_wire_leaves_nothing_that_moves(two_hosts, sidecars_on, start_workload, new_memory):
    hosts = two_hosts(VethWire)
    a, b = sidecars_on(hosts)
    connect(a, b)
    connect(b, a)
    pair = Pair(a, b, "tcp", start_workload, new_memory, size=LARGE)
    assert pair.move(length=MiB)[1]["state"] == "succeeded"
    for operation, destination in (("read", pair.target), ("write", pair.source)):
        status, view = pair.move(operation, wait_ms=0, deadline_ms=60_000)
        assert status == 202, view
        wait_for(lambda: pair.executed()[0]["state"] != "queued", 5)
        hosts.wire.cut()
        begin = time.monotonic()
        view = view_of(a, "reader", view["id"], wait_ms=30_000)
        seen = bytes(destination.map)
        print(f"{operation}: {view['state']} after {time.monotonic() - begin:.1f} s")
        assert view["state"] == "succeeded" or view["error"]["code"] in ("peer_lost", "peer_unavailable"), view
        wait_for(lambda: pair.executed()[0]["state"] not in ("queued", "running", "stopping"), 15, "the end at b")
        hosts.wire.heal()
        for one, other in ((a, "b"), (b, "a")):
            wait_for(lambda: one.ask("GET", f"/v1/peers/{other}")[1]["state"] == "up", 15, "the reconnection")
        assert bytes(destination.map) == seen, "bytes moved after the transfer was over"
        assert pair.uses(a) == pair.uses(b) == 0
    assert pair.move(length=MiB)[1]["state"] == "succeeded"
