"""Descriptors at one step become blocks of a view, and stay right before, while and after."""

import os
import time

import pytest
from agents import Failed, introduce

BLOCK, BLOCKS, LAYERS = 4096, 64, 8
LAYER = BLOCK * BLOCKS


@pytest.fixture
def pair(world):
    """Agents with a registration for each layer: (agents, addresses of their layers, sidecars)."""
    agents, layers, sidecars = [], [], []
    for name in ("one", "two"):
        sidecars.append(world.sidecar(name))
        agent = world.agent(name, sidecars[-1])
        layers.append([agent.allocate(f"layer {i}", LAYER) for i in range(LAYERS)])
        for i in range(LAYERS):
            agent.register(f"layer {i}", 0, LAYER)
        agents.append(agent)
    introduce(*agents)
    return agents, layers, sidecars


def fill(agent):
    content = [os.urandom(LAYER) for _ in range(LAYERS)]
    for i, data in enumerate(content):
        agent.write(f"layer {i}", 0, data)
    return content


def read(agents, layers, mine, theirs, operation="READ", message=b""):
    """Moves these blocks of every layer by a handle of its own, and compares every byte of both sides."""
    one, two = agents
    there, here = fill(one), fill(two)
    rows = [[(base + block * BLOCK, BLOCK) for base in bases for block in blocks]
            for bases, blocks in zip((layers[1], layers[0]), (mine, theirs))]
    two.prepare("blocks", operation, *rows, "one")
    assert two.finish("blocks", message) == "DONE"
    two.release("blocks")
    origins, places, source, target = (theirs, mine, there, here) if operation == "READ" else (mine, theirs, here, there)
    for i, data in enumerate(target):
        expected = bytearray(data)
        for origin, place in zip(origins, places):
            expected[place * BLOCK:(place + 1) * BLOCK] = source[i][origin * BLOCK:(origin + 1) * BLOCK]
        target[i] = bytes(expected)
    for agent, content in ((one, there), (two, here)):
        for i, data in enumerate(content):
            assert agent.read(f"layer {i}", 0, LAYER) == data, f"layer {i} of {agent.name}"


def read_by_a_view(agents, layers, mine, theirs, times=1, seconds=20):
    """Until the reader has said so often that it has a view, which it makes beside the transfers."""
    end, says = time.monotonic() + seconds, f"name blocks of {BLOCK} bytes by a view of {LAYERS} pairs of buffers"
    while agents[1].log.count(says) < times:
        assert time.monotonic() < end, agents[1].log
        read(agents, layers, mine, theirs)


MINE, THEIRS = list(range(0, 32)), list(range(63, 31, -1))


def views_at(sidecar):
    return len(sidecar.ask("GET", "/v1/views?workload=nixl-two")[1]["views"])


def test_a_view_is_made_beside_the_transfers(pair):
    agents, layers, sidecars = pair
    read_by_a_view(agents, layers, MINE, THEIRS)
    assert views_at(sidecars[1]) == 1
    for operation in ("READ", "WRITE"):
        read(agents, layers, MINE, THEIRS, operation, b"moved")
        assert agents[0].notifications() == [("two", b"moved")]
    # Other blocks of the same layers go by the same view.
    read(agents, layers, [5] + list(range(20, 60)), [7] + list(range(3, 43)))
    assert views_at(sidecars[1]) == 1


def test_a_view_outlives_the_other_sidecar(pair):
    agents, layers, sidecars = pair
    read_by_a_view(agents, layers, MINE, THEIRS)
    sidecars[0].kill()
    sidecars[0].start()
    until_it_works(agents, layers)


def test_views_are_made_again_at_a_sidecar_that_came_back(pair):
    agents, layers, sidecars = pair
    read_by_a_view(agents, layers, MINE, THEIRS)
    sidecars[1].kill()
    sidecars[1].start()
    until_it_works(agents, layers)
    read_by_a_view(agents, layers, MINE, THEIRS, times=2)


def until_it_works(agents, layers, seconds=30):
    end = time.monotonic() + seconds
    while True:
        try:
            return read(agents, layers, MINE, THEIRS)
        except Failed:
            assert time.monotonic() < end, agents[1].log


def test_memory_that_is_registered_no_more_is_refused_by_a_view_too(pair):
    agents, layers, _ = pair
    read_by_a_view(agents, layers, MINE, THEIRS)
    agents[0].deregister("layer 3")
    end = time.monotonic() + 10
    with pytest.raises(Failed, match="NIXL_ERR_REMOTE_DISCONNECT"):
        while time.monotonic() < end:
            read(agents, layers, MINE, THEIRS)


def test_memory_is_free_when_it_is_deregistered(pair):
    """Its blocks are offered beside it, and go with it, even if a handle is left."""
    agents, layers, sidecars = pair
    read_by_a_view(agents, layers, MINE, THEIRS)
    agents[1].prepare("left", "READ", [(layers[1][0], BLOCK)], [(layers[0][0], BLOCK)], "one")
    for agent in agents:
        for i in range(LAYERS):
            agent.deregister(f"layer {i}")
    for sidecar in sidecars:
        assert sidecar.ask("GET", "/v1/buffers")[1]["buffers"] == []
