"""The plugin shares a sidecar with others: it withdraws memory when it says so, and leaves their peers alone."""

import time

import pytest
from agents import Failed
from test_agent_lives import Stopped, outcome, prepare
from test_transfers import SIZE, move


def wait_until(holds, seconds=20):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def buffers_at(sidecar, workload):
    status, answer = sidecar.ask("GET", f"/v1/buffers?workload={workload}")
    assert status == 200
    return answer["buffers"]


def test_memory_that_a_reader_still_uses_is_not_deregistered(world):
    agents, addresses, sidecars = [], [], []
    for name in ("one", "two"):
        sidecars.append(world.sidecar(name))
        agents.append(world.agent(name, sidecars[-1]))
        addresses.append(agents[-1].allocate("kv", SIZE))
        agents[-1].register("kv", 0, SIZE)
    for agent, other in (agents, agents[::-1]):
        agent.load(other.metadata())
    move(agents, addresses, "READ")
    prepare(agents, addresses)
    with Stopped(sidecars[1]):
        assert agents[1].post("read") == "PROC"
        try:
            agents[0].deregister("kv")
        except Failed:
            pass  # some versions of NIXL pass the error on
        assert "memory is not unregistered: " in agents[0].log
        assert buffers_at(sidecars[0], "nixl-one")
    outcome(agents[1], "read")
    wait_until(lambda: not buffers_at(sidecars[0], "nixl-one"))


@pytest.fixture
def strangers(world):
    """(agents, sidecars) of two nodes; the sidecar of the first was told of the other's by the test."""
    flags = ("--peer-listen", "127.0.0.1:0", "--data-listen", "127.0.0.1:0")
    sidecars = [world.sidecar(name, flags=flags, node_dir=world.folder / name[0]) for name in ("one", "two")]
    agents = [world.agent(sidecar.name, sidecar) for sidecar in sidecars]
    address = sidecars[1].ask("GET", "/v1/info")[1]["tcp_address"]
    assert sidecars[0].ask("PUT", "/v1/peers/two", {"address": address})[1]["state"] == "up"
    return agents, sidecars, address


def test_metadata_does_not_replace_a_peer_of_others(strangers):
    agents, sidecars, address = strangers
    blob = agents[1].metadata()
    assert address.encode() in blob
    agents[0].load(blob.replace(address.encode(), address.replace("127.0.0.1", "127.0.0.9").encode()))
    peer = sidecars[0].ask("GET", "/v1/peers/two")[1]
    assert (peer["address"], peer["state"]) == (address, "up")


def test_a_peer_of_others_stays_when_its_agent_is_forgotten(strangers):
    agents, sidecars, _ = strangers
    agents[0].load(agents[1].metadata())
    sidecars[1].kill()
    wait_until(lambda: sidecars[0].ask("GET", "/v1/peers/two")[1]["state"] != "up")
    agents[0].unload("two")
    assert sidecars[0].ask("GET", "/v1/peers/two")[0] == 200


def test_a_peer_of_its_own_goes_with_its_agent(world):
    flags = ("--peer-listen", "127.0.0.1:0", "--data-listen", "127.0.0.1:0")
    sidecars = [world.sidecar(name, flags=flags, node_dir=world.folder / name[0]) for name in ("one", "two")]
    agents = [world.agent(sidecar.name, sidecar) for sidecar in sidecars]
    agents[0].load(agents[1].metadata())
    assert sidecars[0].ask("GET", "/v1/peers/two")[1]["state"] == "up"
    sidecars[1].kill()
    wait_until(lambda: sidecars[0].ask("GET", "/v1/peers/two")[1]["state"] != "up")
    agents[0].unload("two")
    assert sidecars[0].ask("GET", "/v1/peers/two")[0] == 404
