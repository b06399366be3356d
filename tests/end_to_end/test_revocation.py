"""Who takes a buffer back learns which peers let go of it and which were refused it, over either path."""

import signal
import time

import pytest

from test_draining import buffer_of, delete
from test_peers_over_tcp import TCP, meet
from workloads import (MiB, connect, gantry, new_memory, send, start_workload, submit,
                       wait_for)


class Crowd:
    """Buffers "kv" and "more" of workload "owner" at sidecar "b", which "a" and "c" have read."""

    def __init__(self, start_sidecar, start_workload, new_memory, folder, path):
        self.path = path
        over_tcp = {"flags": TCP} if path == "tcp" else {}
        self.b = start_sidecar("b", **over_tcp)
        self.readers = [start_sidecar(name, **over_tcp) for name in "ac"]
        self.source = new_memory(MiB, filled=True)
        self.owner = start_workload(self.b, "owner")
        self.owner.register(self.source, ("kv", 0, MiB // 2), ("more", MiB // 2, MiB // 2))
        self.workloads, self.targets = [], []
        for reader in self.readers:
            peer = meet(reader, self.b) if path == "tcp" else connect(reader, self.b)
            assert peer["state"] == "up", peer
            self.targets.append(new_memory(MiB))
            self.workloads.append(start_workload(reader, "reader"))
            self.workloads[-1].register(self.targets[-1], ("kv", 0, MiB))
            for name in ("kv", "more"):
                self.read(reader, name)

    def read(self, reader, name):
        status, view = submit(reader, "reader", "read", "kv", f"b/owner/{name}", MiB // 2, 10_000)
        assert (status, view.get("state"), view.get("path")) == (200, "succeeded", self.path), view

    def entry(self, reader, outcome):
        generation = self.generations[reader.name]
        return {"name": reader.name, "generation": generation, "path": self.path, "outcome": outcome}

    def note_generations(self):
        """Before one of them stands still."""
        self.generations = {one.name: one.ask("GET", "/v1/info")[1]["generation"] for one in self.readers}


@pytest.fixture(params=["shm", "tcp"])
def crowd(start_sidecar, start_workload, new_memory, folder, request):
    made = Crowd(start_sidecar, start_workload, new_memory, folder, request.param)
    made.note_generations()
    yield made
    for reader in made.readers:
        if reader.process.poll() is None:
            send([reader.process.pid], signal.SIGCONT)


def by_name(peers):
    return sorted(peers, key=lambda peer: peer["name"])


def test_peers_that_drain_in_time_are_named(crowd):
    a, c = crowd.readers
    status, answer = delete(crowd.b, buffer_of(crowd.b, "owner")["id"], 3_000)
    assert status == 200
    assert by_name(answer["peers"]) == [crowd.entry(a, "drained"), crowd.entry(c, "drained")]
    crowd.read(a, "more")  # the other buffer stays what it was
    status, answer = crowd.b.ask("POST", "/v1/buffers:suspend", {"workload": "owner"})
    assert (status, answer["suspended"]) == (200, ["more"])
    assert by_name(answer["peers"]) == [crowd.entry(a, "drained"), crowd.entry(c, "drained")]


def test_the_peer_that_stands_still_is_named_and_no_other(crowd):
    a, c = crowd.readers
    kv = buffer_of(crowd.b, "owner")["id"]
    since = c.ask("GET", "/v1/peers/b")[1]["since_unix_ms"]
    send([c.process.pid], signal.SIGSTOP)
    begin = time.monotonic()
    status, answer = delete(crowd.b, kv, 1_000)
    assert time.monotonic() - begin < 1 + 1
    if crowd.path == "tcp":
        assert status == 200, answer
        assert by_name(answer["peers"]) == [crowd.entry(a, "drained"), crowd.entry(c, "refused")]
        page = crowd.b.ask("POST", "/v1/completions:poll", {"workload": "owner", "cursor": 0})[1]
        (event,) = [event for event in page["events"] if event["type"] == "buffer_revoked"]
        assert event["subject"] == "kv" and f"'c' (generation {crowd.generations['c']})" in event["detail"]
        assert event["detail"].endswith("is refused it"), event
    else:
        # What is mapped cannot be refused: the buffer stays until the peer lets go of it or dies.
        assert (status, answer["code"]) == (504, "deadline_exceeded"), answer
        assert by_name(answer["peers"]) == [crowd.entry(a, "drained"), crowd.entry(c, "holding")]
        assert "(c)" in answer["detail"] and "a" not in answer["detail"].split("confirmed")[1]
        status, answer = delete(crowd.b, kv, 100)
        assert (status, answer["peers"]) == (504, [crowd.entry(c, "holding")]), "the other one drained before"
    send([c.process.pid], signal.SIGCONT)
    wait_for(lambda: crowd.b.ask("GET", f"/v1/buffers/{kv}")[0] == 404, 5, "the end of the buffer")
    crowd.read(c, "more")
    peer = c.ask("GET", "/v1/peers/b")[1]
    assert (peer["state"], peer["since_unix_ms"]) == ("up", since), "its session is what it was"


def test_a_suspension_names_them_too(crowd):
    a, c = crowd.readers
    send([c.process.pid], signal.SIGSTOP)
    status, answer = crowd.b.ask("POST", "/v1/buffers:suspend", {"workload": "owner", "drain_ms": 1_000})
    worst = "refused" if crowd.path == "tcp" else "holding"
    assert status == (200 if crowd.path == "tcp" else 504), answer
    assert by_name(answer["peers"]) == [crowd.entry(a, "drained"), crowd.entry(c, worst)]


@pytest.mark.smoke(crowd="shm")
def test_a_peer_that_dies_is_gone(crowd):
    a, c = crowd.readers
    send([c.process.pid], signal.SIGSTOP)
    crowd.owner.post("unregister", "kv", drain=10.0)
    wait_for(lambda: buffer_of(crowd.b, "owner")["state"] == "draining", 10, "the removal to begin")
    time.sleep(0.3)
    c.kill()
    peers = crowd.owner.result()
    assert [(peer.name, peer.generation, peer.path, peer.outcome) for peer in sorted(peers, key=lambda p: p.name)] == [
        (a.name, crowd.generations["a"], crowd.path, "drained"), (c.name, crowd.generations["c"], crowd.path, "gone")]
    assert crowd.owner.do("unregister", "more") and buffer_of(crowd.b, "owner", "more") is None


def test_the_python_client_says_who_holds_it(start_sidecar, start_workload, new_memory, folder):
    crowd = Crowd(start_sidecar, start_workload, new_memory, folder, "shm")
    a, c = crowd.readers
    send([c.process.pid], signal.SIGSTOP)
    with pytest.raises(gantry.Error) as refused:
        crowd.owner.do("unregister", "kv", drain=0.5)
    assert refused.value.code == "deadline_exceeded"
    assert {peer.name: peer.outcome for peer in refused.value.peers} == {"a": "drained", "c": "holding"}
    send([c.process.pid], signal.SIGCONT)
    wait_for(lambda: buffer_of(crowd.b, "owner") is None, 5)
    assert crowd.owner.do("unregister", "kv") == [], "it is gone already"
