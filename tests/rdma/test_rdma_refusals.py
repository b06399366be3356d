"""What devices refuse, and a buffer that is taken back: either ends its own transfer, and no other of the same peer."""

import socket
import struct
import threading

import pytest

from rdma_scene import (MiB, SLOW, assert_moved, folder, gantry, metric, new_memory, rdma_scene, rdma_tool, resources, settled,
                        start_sidecar, start_workload, transfer, view_of, wait_for)
from test_peers_over_tcp import tcp_address

SIZE = 16 * MiB
ASIDE = 4096  # the second buffers begin elsewhere on each side, and the owner's region is known by its length
REFUSED = 'gantry_access_errors_total{path="rdma",reason="stale_generation"}'
RETRIED = 'gantry_transfer_retries_total{reason="stale_generation"}'


class Forger:
    """Stands before the TCP address of a peer, and puts other keys in the place of those that the peer tells."""

    def __init__(self, address):
        self.keys = {}  # by what the peer tells
        self._peer = address.split(":")
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = "%s:%d" % self._listener.getsockname()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            caller = self._listener.accept()[0]
            peer = socket.create_connection(self._peer)
            for ends in ((caller, peer, dict), (peer, caller, lambda: self.keys)):
                threading.Thread(target=self._carry, args=ends, daemon=True).start()

    @staticmethod
    def _carry(source, sink, keys):
        try:
            while said := source.recv(1 << 20):
                for key, other in keys().items():
                    said = said.replace(struct.pack("<I", key), struct.pack("<I", other))
                sink.sendall(said)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # the other direction has ended


class TwoBuffers:
    """A scene whose workloads have a second buffer each, "other": what happens to it must not hit transfers of "kv"."""

    def __init__(self, scene, new_memory):
        self.scene = scene
        self.ours, self.theirs = new_memory(ASIDE + SIZE, filled=True), new_memory(SIZE + ASIDE, filled=True)
        scene.reader.register(self.ours, ("other", ASIDE, SIZE))
        scene.owner.register(self.theirs, ("other", 0, SIZE + ASIDE))

    def bytes_of_other(self):
        return self.ours.map[ASIDE:], self.theirs.map[:SIZE]

    def prepare(self, operation):
        one, other = (self.scene.target, self.scene.source)[::1 if operation == "read" else -1]
        one.clear()
        other.fill()

    def check(self, identifier):
        view = settled(self.scene, identifier)
        assert (view["state"], view["path"]) == ("succeeded", "rdma"), view
        assert not self.scene.target.differs_from(self.scene.source)

    def move_other(self, operation, **options):
        ranges = [[0, start, 0, start, MiB] for start in range(0, SIZE, MiB)]
        return transfer(self.scene.a, operation, "other", "b/owner/other", ranges, **options)

    def take_back(self):
        """Soon, as the transfer would end by itself later."""
        try:
            self.scene.owner.do("unregister", "other", drain=0.1)
        except gantry.Error as error:
            assert error.code == "deadline_exceeded", error
            self.scene.owner.do("unregister", "other", drain=5.0)


def key_of(length):
    (key,) = [int(region["rkey"], 16) for region in rdma_tool("-d", "resource", "show", "mr") if region["mrlen"] == length]
    return key


def queue_pairs():
    return {(pair["ifname"], pair["lqpn"]) for pair in rdma_tool("resource", "show", "qp")}


@pytest.mark.parametrize("operation, key", [("read", "of nothing"), ("write", "of a neighbour")])
def test_a_forged_key_is_refused_by_the_device_and_other_transfers_go_on(rdma_scene, new_memory, operation, key):
    scene = rdma_scene(size=SIZE, over_tcp=True, a_flags=SLOW)
    two = TwoBuffers(scene, new_memory)
    scene.owner.register(two.theirs, ("neighbour", SIZE, ASIDE))
    true = key_of(SIZE + ASIDE)
    forger = Forger(tcp_address(scene.b))
    forger.keys = {true: true ^ 1 if key == "of nothing" else key_of(ASIDE)}
    assert scene.a.ask("DELETE", "/v1/peers/b")[0] == 204
    assert scene.a.ask("PUT", "/v1/peers/b", {"address": forger.address})[1]["path"] == "rdma"
    two.prepare(operation)
    before = two.bytes_of_other()
    running = scene.hold(operation)
    status, view = two.move_other(operation)
    assert (status, view["state"], view["error"]["code"]) == (200, "failed", "stale_generation"), view
    assert "remote access error" in view["error"]["detail"] and view["error"]["hint"], view
    assert (view["bytes_moved"], view["retries"]) == (0, 1), view
    assert metric(scene.a, REFUSED) == 2, "as it was told at first, and once more"
    two.check(running)
    assert two.bytes_of_other() == before
    # What is told from now on is true: the device refuses once more, and then it moves.
    forger.keys = {}
    assert assert_moved(two.move_other(operation))["retries"] == 1
    assert (metric(scene.a, REFUSED), metric(scene.a, RETRIED)) == (3, 2)
    ours, theirs = two.bytes_of_other()
    assert ours == theirs == before[1 if operation == "read" else 0]


@pytest.mark.parametrize("operation", ["read", "write"])
def test_a_buffer_is_taken_back_in_the_middle_and_other_transfers_go_on(rdma_scene, new_memory, operation):
    scene = rdma_scene(size=2 * SIZE, a_flags=SLOW)
    two = TwoBuffers(scene, new_memory)
    failed = f'gantry_transfers_total{{op="{operation}",outcome="failed",path="rdma"}}'
    two.prepare(operation)
    other = two.move_other(operation, wait_ms=0)[1]["id"]
    running = scene.hold(operation)
    connected = queue_pairs()
    wait_for(lambda: view_of(scene.a, "reader", other)["bytes_moved"] > 0, 5)
    two.take_back()
    assert view_of(scene.a, "reader", running)["state"] == "running"
    assert resources()["mr"] == 3, "both of the reader's, and one of the owner's"
    after = two.bytes_of_other()[1]
    view = settled(scene, other)
    assert (view["state"], view["path"], view["error"]["code"]) == ("failed", "rdma", "draining"), view
    assert "took the buffer back" in view["error"]["detail"] and 0 < view["bytes_moved"] < SIZE, view
    assert metric(scene.a, failed) == 1
    two.check(running)
    assert two.bytes_of_other()[1] == after, "nothing is written to it any more"
    # It was drained: devices had nothing to refuse, and no queue pair had to be made anew.
    assert metric(scene.a, REFUSED) == 0
    assert queue_pairs() == connected
