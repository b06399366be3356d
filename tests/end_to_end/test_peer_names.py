"""A peer's name with several addresses, of which not all work: what connects, where the bytes go, and what is said of it.

An address that swallows is one behind the wire whose hardware nobody has: packets to it leave, and nothing comes back.
"""

import re
import subprocess
import time

import pytest

from certificates import Authority
from hosts import TwoHosts, VethWire, ip, two_hosts
from workloads import BOTH, MiB, new_memory, start_workload, submit, wait_for

NAME, PORT, DATA_PORT = "peer.test", 7450, 7451
A4, B4, SWALLOWS4 = "10.91.7.1", "10.91.7.2", "10.91.7.3"
FAR4 = "10.91.7.130"  # of b too; getaddrinfo prefers addresses that are nearer to its own, other resolvers do not
# No unique local ones: those are tried after IPv4.
A6, B6, SWALLOWS6 = "2001:db8:91::1", "2001:db8:91::2", "2001:db8:91::3"
NOBODY = "02:00:00:00:00:99"
MOUNTED = ["sh", "-c", 'mount --bind "$0" /etc/hosts && mount --bind "$1" /etc/resolv.conf && shift && exec "$@"']


class Scene:
    """Sidecar a on one host, which knows NAME by a file of its own, and b on the other, at all its addresses."""

    def __init__(self, hosts, folder, start_sidecar, start_workload, new_memory):
        self.hosts, self.folder = hosts, folder
        first, second = hosts.hosts
        ip("-n", first.name, "addr", "add", f"{A6}/64", "dev", "wire", "nodad")
        ip("-n", second.name, "addr", "add", f"{B6}/64", "dev", "wire", "nodad")
        ip("-n", second.name, "addr", "add", f"{FAR4}/24", "dev", "wire")
        for address in (SWALLOWS4, SWALLOWS6):
            ip("-n", first.name, "neigh", "add", address, "lladdr", NOBODY, "dev", "wire", "nud", "permanent")
        self.names = folder / "hosts"
        self.names.write_text("127.0.0.1 localhost\n")
        self.servers = folder / "resolv.conf"
        self.servers.write_text("")
        self.start_sidecar, self.start_workload, self.new_memory = start_sidecar, start_workload, new_memory

    def resolve(self, *addresses):
        """NAME has these, in this order."""
        self.names.write_text("127.0.0.1 localhost\n" + "".join(f"{address} {NAME}\n" for address in addresses))

    def start(self, owner_flags=(), flags=None, b_listens=f"[::]:{PORT}"):
        if flags is None:
            token = self.folder / "token"
            token.write_text("0123456789abcdef0123456789abcdef\n")
            token.chmod(0o600)
            flags = {name: ["--peer-token-file", str(token), "--peer-plaintext"] for name in "ab"}
        first, second = self.hosts.hosts
        self.a = self.start_sidecar("a", node_dir=self.folder / "node-a", flags=flags["a"],
                                    prefix=[*first.prefix, *MOUNTED, str(self.names), str(self.servers)])
        self.b = self.start_sidecar("b", node_dir=self.folder / "node-b", prefix=second.prefix,
                                    flags=["--peer-listen", b_listens, "--data-listen", f"[::]:{DATA_PORT}", *flags["b"],
                                           *owner_flags])
        self.source, self.target = self.new_memory(MiB, filled=True), self.new_memory(MiB)
        self.start_workload(self.b, "owner").register(self.source, ("kv", 0, MiB, BOTH))
        self.start_workload(self.a, "reader").register(self.target, ("kv", 0, MiB, BOTH))
        return self

    def meet(self):
        """What PUT says of the peer, which waits for it for some seconds."""
        status, peer = self.a.ask("PUT", "/v1/peers/b", {"address": f"{NAME}:{PORT}"})
        assert status == 201, peer
        return peer

    def read(self, **fields):
        return submit(self.a, "reader", "read", "kv", "b/owner/kv", MiB, wait_ms=20_000, **fields)[1]

    def tcp(self):
        """What the peer's view says of the path."""
        peer = self.a.ask("GET", "/v1/peers/b")[1]
        return next(path for path in peer["paths"] if path["path"] == "tcp")

    def reads_soon(self):
        began = time.monotonic()
        view = self.read()
        assert view["state"] == "succeeded" and view["path"] == "tcp", view
        assert time.monotonic() - began < 2
        assert not self.target.differs_from(self.source)
        assert self.tcp()["available"], self.tcp()


@pytest.fixture
def scene(two_hosts, folder, start_sidecar, start_workload, new_memory):
    return Scene(two_hosts(VethWire), folder, start_sidecar, start_workload, new_memory)


@pytest.fixture
def authority(folder):
    return Authority(folder, "authority")


@pytest.mark.parametrize("addresses", [[SWALLOWS4, B4], [B4, SWALLOWS4], [SWALLOWS6, B4], [SWALLOWS4, B6],
                                       [SWALLOWS6, SWALLOWS4, B6, B4], [FAR4, SWALLOWS4]],
                         ids=["swallows-works", "works-swallows", "v6-swallows", "v4-swallows", "two-of-four", "resolvers-differ"])
def test_one_address_swallows(scene, addresses):
    scene.resolve(*addresses)
    peer = scene.start().meet()
    assert peer["state"] == "up", peer
    scene.reads_soon()


def test_with_certificates_for_the_name(scene, authority):
    """What a certificate is compared with is the name, whichever address took the connection."""
    flags = {"a": authority.issue("a", "URI:spiffe://test/a"), "b": authority.issue("b", f"DNS:{NAME}")}
    scene.resolve(SWALLOWS4, B4)
    peer = scene.start(flags={name: each + ["--data-tls"] for name, each in flags.items()}).meet()
    assert peer["state"] == "up", peer
    scene.reads_soon()


def test_a_name_that_is_told_for_data(scene):
    """--data-host names both: data connections try its addresses side by side."""
    scene.resolve(SWALLOWS4, B4)
    scene.start(owner_flags=["--data-host", NAME])
    assert scene.meet()["state"] == "up"
    scene.reads_soon()


def test_an_address_that_dies_after_the_connection(scene):
    """The next session takes the other address, in all its connections."""
    scene.resolve(B4, B6)
    scene.start()
    assert scene.meet()["state"] == "up"
    scene.reads_soon()
    first, second = scene.hosts.hosts
    for address in (B6, B4):  # first of all the one that is used: IPv6 comes first
        scene.target.clear()
        ip("-n", first.name, "neigh", "replace", address, "lladdr", NOBODY, "dev", "wire", "nud", "permanent")
        view = scene.read(deadline_ms=2_000)
        assert view["state"] in ("failed", "expired"), view
        wait_for(lambda: scene.a.ask("GET", "/v1/peers/b")[1]["state"] == "down", 8, "noticing")
        if address == B6:
            wait_for(lambda: scene.a.ask("GET", "/v1/peers/b")[1]["state"] == "up", 8, "the other address")
            scene.reads_soon()


def test_what_is_said_when_no_address_works(scene):
    scene.resolve(SWALLOWS4, SWALLOWS6)
    peer = scene.start().meet()
    assert peer["state"] == "connecting", peer
    assert f"{SWALLOWS4}:{PORT}: no answer" in peer["error"]["detail"], peer
    assert f"[{SWALLOWS6}]:{PORT}: no answer" in peer["error"]["detail"], peer
    scene.resolve(SWALLOWS4)
    message = wait_for(lambda: said_of(scene, lambda text: SWALLOWS6 not in text), 10)
    assert f"{SWALLOWS4}:{PORT}" in message, message
    scene.names.write_text("")
    message = wait_for(lambda: said_of(scene, lambda text: "address" in text), 10)
    assert f"'{NAME}' has no address" in message, message


def said_of(scene, wanted):
    message = scene.a.ask("GET", "/v1/peers/b")[1]["error"]["detail"]
    return message if wanted(message) else None


def test_data_that_has_no_way(scene):
    """As behind a firewall that lets the peer API through and not the data: what is said of the path is so before any transfer."""
    scene.resolve(B4)
    peer = scene.start(owner_flags=["--data-host", SWALLOWS4]).meet()
    assert peer["state"] == "up" and peer.get("path") is None, peer
    path = next(path for path in peer["paths"] if path["path"] == "tcp")
    assert not path["available"] and f"{SWALLOWS4}:{DATA_PORT}: no answer" in path["reason"], path
    view = scene.read()
    assert view["state"] == "failed" and f"{SWALLOWS4}:{DATA_PORT}" in view["error"]["detail"], view
    assert not scene.tcp()["available"]
    first, second = scene.hosts.hosts
    ip("-n", second.name, "addr", "add", f"{SWALLOWS4}/24", "dev", "wire")
    ip("-n", first.name, "neigh", "del", SWALLOWS4, "dev", "wire")
    wait_for(lambda: scene.read().get("state") == "succeeded", 10, "a transfer that tries again")
    assert scene.tcp()["available"], scene.tcp()
    scene.b.kill()
    wait_for(lambda: scene.a.ask("GET", "/v1/peers/b")[1]["state"] == "down", 8, "noticing")
    assert not any(path["available"] for path in scene.a.ask("GET", "/v1/peers/b")[1]["paths"])


def test_a_name_server_that_does_not_answer(scene):
    """It holds nobody up: the error says so, the peer can be taken away, and the sidecar stops."""
    scene.servers.write_text(f"nameserver {SWALLOWS4}\n")
    peer = scene.start().meet()
    assert peer["state"] == "connecting" and "no name server answered" in peer["error"]["detail"], peer
    began = time.monotonic()
    assert scene.a.ask("DELETE", "/v1/peers/b")[0] == 204
    assert time.monotonic() - began < 1
    scene.a.ask("PUT", "/v1/peers/b?wait_ms=0", {"address": f"{NAME}:{PORT}"})
    began = time.monotonic()
    assert scene.a.stop() == 0
    assert time.monotonic() - began < 4


def test_the_peer_api_of_one_address_alone(scene):
    """b listens at one of the two: the other refuses, which is no reason to wait."""
    scene.resolve(B6, B4)
    began = time.monotonic()
    assert scene.start(b_listens=f"{B4}:{PORT}").meet()["state"] == "up"
    scene.reads_soon()
