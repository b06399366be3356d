"""Bytes between hosts through TLS: with the peer API's certificates, also after they were replaced."""

import shutil
import subprocess
import threading

import pytest

from certificates import Authority
from test_peers_over_tcp import TCP, address_of, meet, refuses_to_start
from workloads import MiB, new_memory, start_workload, submit, wait_for

SIZE = 8 * MiB


@pytest.fixture
def authority(folder):
    return Authority(folder, "authority")


class Pair:
    """Workload "reader" at sidecar "a" with a buffer as large as that of "owner" at "b"."""

    def __init__(self, start_sidecar, start_workload, new_memory, flags_a, flags_b):
        self.a, self.b = start_sidecar("a", flags=TCP + flags_a), start_sidecar("b", flags=TCP + flags_b)
        assert meet(self.a, self.b)["state"] == "up"
        self.source, self.target = new_memory(SIZE, filled=True), new_memory(SIZE)
        owner, reader = start_workload(self.b, "owner"), start_workload(self.a, "reader")
        owner.register(self.source, ("kv", 0, SIZE))
        reader.register(self.target, ("kv", 0, SIZE))
        self.workloads = owner, reader

    def read(self):
        self.target.clear()
        status, view = submit(self.a, "reader", "read", "kv", "b/owner/kv", SIZE, wait_ms=20_000, deadline_ms=15_000)
        if view.get("state") == "succeeded":
            assert view["path"] == "tcp" and not self.target.differs_from(self.source)
        return status, view


@pytest.fixture
def pair(start_sidecar, start_workload, new_memory):
    return lambda flags_a, flags_b: Pair(start_sidecar, start_workload, new_memory, flags_a, flags_b)


def named(authority, name):
    """A certificate that is for no address: peers are told which names to expect."""
    return authority.issue(name, f"URI:spiffe://test/{name}") + ["--peer-tls-names", "spiffe://test/*"]


def data_address(sidecar):
    return address_of(sidecar, "data connections are taken")


def test_bytes_go_through_tls_where_the_owner_wants_it(pair, authority):
    world = pair(named(authority, "a"), named(authority, "b") + ["--data-tls"])
    assert world.read()[1]["state"] == "succeeded"
    # Who shows no certificate does not even come to say its ticket.
    talk = subprocess.run(["openssl", "s_client", "-connect", data_address(world.b), "-quiet", "-no_ign_eof"],
                          input=b"hello", capture_output=True, timeout=20)
    assert b"certificate required" in talk.stderr, talk.stderr
    plain = subprocess.run(["openssl", "s_client", "-connect", data_address(world.a), "-brief"],
                           input=b"", capture_output=True, timeout=20)
    assert b"Verification" not in plain.stderr and plain.returncode != 0, "its own are plain"
    assert world.read()[1]["state"] == "succeeded"


def test_who_wants_tls_gets_no_plain_connection(pair, authority):
    world = pair(named(authority, "a") + ["--data-tls"], named(authority, "b"))
    status, view = world.read()
    assert view.get("state") != "succeeded"
    problem = view["error"] if "error" in view else view
    assert "without TLS" in str(problem) and "--data-tls" in str(problem), view
    assert world.target.map[:] == bytes(SIZE), "nothing moved"


def test_data_tls_needs_certificates(start_sidecar, tmp_path):
    assert "--peer-tls-cert" in refuses_to_start(tmp_path, "--data-tls")


def test_certificates_are_replaced_while_bytes_move(pair, authority, folder):
    world = pair(named(authority, "a") + ["--data-tls"], named(authority, "b") + ["--data-tls"])
    outcomes, stop = [], threading.Event()

    def load():
        while not stop.is_set():
            outcomes.append(world.read()[1])

    reading = threading.Thread(target=load)
    reading.start()
    wait_for(lambda: outcomes, 15)
    named(authority, "next")
    for kind in (".key", ".pem"):
        for name in "ab":
            shutil.copy(folder / f"next{kind}", folder / f"{name}{kind}.new")
    for name in "ab":
        for kind in (".key", ".pem"):
            (folder / f"{name}{kind}.new").rename(folder / f"{name}{kind}")
    wait_for(lambda: "certificates were replaced" in world.b.log, 15)
    # New connections, with the new certificates, while the load goes on.
    assert world.a.ask("DELETE", "/v1/peers/b")[0] == 204
    before = len(outcomes)
    assert meet(world.a, world.b)["state"] == "up"
    wait_for(lambda: len([view for view in outcomes[before:] if view.get("state") == "succeeded"]) > 2, 20)
    stop.set()
    reading.join(30)
    failed = [view for view in outcomes if view.get("state") != "succeeded"]
    known = {"peer_lost", "peer_unavailable", "unregistered", "not_found", "cancelled"}
    assert all((view.get("error") or view)["code"] in known for view in failed), failed
    assert world.read()[1]["state"] == "succeeded"
