"""Bytes between hosts through TLS: with the peer API's certificates, also after they were replaced."""

import ssl
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

    def __init__(self, start_sidecar, start_workload, new_memory, flags_a, flags_b, a_listens=True):
        self.a = start_sidecar("a", flags=(TCP if a_listens else []) + flags_a)
        self.b = start_sidecar("b", flags=TCP + flags_b)
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
    return lambda flags_a, flags_b, **options: Pair(start_sidecar, start_workload, new_memory, flags_a, flags_b,
                                                    **options)


def named(authority, name):
    """A certificate that is for no address: peers are told which names to expect."""
    return authority.issue(name, f"URI:spiffe://test/{name}") + ["--peer-tls-names", "spiffe://test/*"]


def data_address(sidecar):
    return address_of(sidecar, "data connections are taken")


def test_bytes_go_through_tls_where_the_owner_wants_it(pair, authority):
    world = pair(named(authority, "a"), named(authority, "b") + ["--data-tls"])
    assert world.read()[1]["state"] == "succeeded"
    # Who shows no certificate does not even come to say its ticket.
    talk = subprocess.run(["openssl", "s_client", "-connect", data_address(world.b), "-quiet", "-ign_eof"],
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


def shown_at(address):
    """The certificate that a new connection there is shown, in PEM."""
    host, port = address.rsplit(":", 1)
    return ssl.get_server_certificate((host, int(port)), timeout=10)


def replace(authority, names):
    """New certificates and keys in the files of these sidecars."""
    for name in names:
        named(authority, f"next-{name}")
        for kind in (".key", ".pem"):
            (authority.folder / f"next-{name}{kind}").rename(authority.folder / f"{name}{kind}")


def test_certificates_are_replaced_while_bytes_move(pair, authority, folder):
    # The reader listens for nobody, and shows its certificate all the same.
    world = pair(named(authority, "a") + ["--data-tls"], named(authority, "b") + ["--data-tls"], a_listens=False)
    outcomes, stop = [], threading.Event()

    def load():
        while not stop.is_set():
            outcomes.append(world.read()[1])

    reading = threading.Thread(target=load)
    reading.start()
    try:
        wait_for(lambda: outcomes, 15)
        before = shown_at(data_address(world.b))
        assert before == (folder / "b.pem").read_text(), "that of the peer API"
        replace(authority, "ab")
        for sidecar in world.a, world.b:
            wait_for(lambda: "certificates were replaced" in sidecar.log, 15, f"{sidecar.name} reads its files again")
        wait_for(lambda: shown_at(data_address(world.b)) == (folder / "b.pem").read_text(), 5)
        assert shown_at(data_address(world.b)) != before
        count = len(outcomes)
        wait_for(lambda: len(outcomes) > count + 2, 20)
    finally:
        stop.set()
        reading.join(30)
    failed = [view for view in outcomes if view.get("state") != "succeeded"]
    assert not failed, "the connections that were open live on"
    # New ones, with the new certificates: the first transfer over them succeeds.
    assert world.a.ask("DELETE", "/v1/peers/b")[0] == 204
    assert meet(world.a, world.b)["state"] == "up"
    view = world.read()[1]
    assert view["state"] == "succeeded", view
