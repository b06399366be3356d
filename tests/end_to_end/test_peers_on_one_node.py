"""A handshake that says the peer's node and its TCP address: memory is shared on one node, and TCP is taken elsewhere."""

import re

import pytest

from python_client_parts import BLOCK, code_of, gantry  # noqa: F401
from test_peers_over_tcp import TCP
from workloads import metric

SERIES = 'gantry_path_fallbacks_total{from="shm",reason="over_tcp",to="tcp"}'


@pytest.fixture
def both(start_sidecar):
    """(a, b, b's GET /v1/info)"""
    a, b = start_sidecar("a", flags=TCP), start_sidecar("b", flags=TCP)
    return a, b, b.ask("GET", "/v1/info")[1]


def read_from(a, b, peer, **options):
    """Moves a block from b to a, and returns the status."""
    with gantry.Client(b.run_dir, "owner") as owner, gantry.Client(a.run_dir, "reader") as reader:
        source, target = owner.arena(BLOCK), reader.arena(BLOCK)
        source[:3] = b"abc"
        owned = owner.register("kv", source)
        mine = reader.register("kv", target)
        status = reader.read([mine], [f"b/{owner.workload}/{owned.name}"], ranges=[(0, 0, 0, 0, 3)], **options).wait(10)
        assert bytes(target[:3]) == b"abc" and peer["state"] == "up"
        return status


def put(a, info, **changes):
    status, peer = a.ask("PUT", "/v1/peers/b", {"address": info["tcp_address"], "node_id": info["node_id"], **changes})
    assert status in (200, 201), peer
    return peer


def test_the_nodes_socket_comes_first_on_one_node(both):
    a, b, info = both
    assert re.fullmatch(r"127\.0\.0\.1:\d+", info["tcp_address"]) and info["peer_address"] == b.peer_address
    peer = put(a, info)
    assert peer["address"] == b.peer_address
    assert read_from(a, b, peer).path == "shm" and metric(a, SERIES) == 0
    assert put(a, info) == peer | {"rtt_us": put(a, info)["rtt_us"]}, "the same again is no other peer"


@pytest.mark.parametrize("changes", [{"node_id": "another"}, {"node_id": ""}], ids=["another", "not said"])
def test_another_node_is_reached_over_tcp_and_one_that_is_this_one_is_counted(both, changes):
    a, b, info = both
    peer = put(a, info, **changes)
    assert peer["address"] == info["tcp_address"]
    assert read_from(a, b, peer, require_path=["tcp"]).path == "tcp" and metric(a, SERIES) == 0, "as was asked"
    assert read_from(a, b, peer).path == "tcp" and metric(a, SERIES) == 1


def test_without_a_socket_in_the_directory_it_is_tcp_and_counted(start_sidecar, folder):
    a = start_sidecar("a", flags=TCP)
    b = start_sidecar("b", flags=TCP, node_dir=folder / "other")
    peer = put(a, b.ask("GET", "/v1/info")[1])
    assert peer["address"] != b.peer_address
    assert read_from(a, b, peer).path == "tcp" and metric(a, SERIES) == 1


def test_the_client_passes_the_node_on(both):
    a, b, info = both
    with gantry.Client(a.run_dir, "w") as client:
        assert client.set_peer("b", info["tcp_address"], node_id=info["node_id"])["address"] == b.peer_address
        assert client.set_peer("b", info["tcp_address"])["address"] == info["tcp_address"]
        assert code_of(client.set_peer, "b", info["tcp_address"], node_id="x" * 129) == "invalid_argument"
