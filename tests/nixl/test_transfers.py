"""Bytes and notifications between two agents with a sidecar each."""

import os
import re
import signal

import pytest
from agents import NEWEST, SUPPORTED, Failed, introduce

MIB = 1 << 20
SIZE = 2 * MIB


def pair_of(world, wheel=NEWEST, flags=(), kinds=("arena", "arena"), nodes=(None, None), variables=None):
    """(agents, addresses): memory "kv" is registered at both, and each knows the other."""
    agents, addresses = [], []
    for name, kind, node in zip(("one", "two"), kinds, nodes):
        sidecar = world.sidecar(name, flags=flags, node_dir=node and world.folder / node)
        agent = world.agent(name, sidecar, wheel, **(variables or {}))
        addresses.append(agent.allocate("kv", SIZE, kind))
        agent.register("kv", 0, SIZE)
        agents.append(agent)
    introduce(*agents)
    return agents, addresses


def move(agents, addresses, operation, segments=("DRAM", "DRAM"), message=b""):
    """Moves the second quarter of one's memory to the third of two's, or back, and compares all of both."""
    (one, two), quarter = agents, SIZE // 4
    here, there = os.urandom(SIZE), os.urandom(SIZE)
    one.write("kv", 0, here)
    two.write("kv", 0, there)
    two.prepare("move", operation, [(addresses[1] + 2 * quarter, quarter)], [(addresses[0] + quarter, quarter)], "one", segments)
    assert two.finish("move", message) == "DONE"
    two.release("move")
    if operation == "READ":
        there = there[:2 * quarter] + here[quarter:2 * quarter] + there[3 * quarter:]
    else:
        here = here[:quarter] + there[2 * quarter:3 * quarter] + here[2 * quarter:]
    assert one.read("kv", 0, SIZE) == here
    assert two.read("kv", 0, SIZE) == there


@pytest.mark.parametrize("wheel", SUPPORTED)
def test_every_supported_version_moves_bytes_and_notifies(world, wheel):
    agents, addresses = pair_of(world, wheel)
    move(agents, addresses, "READ", message=b"read\0it")
    assert agents[0].notifications() == [("two", b"read\0it")]
    move(agents, addresses, "WRITE", message=b"wrote it")
    assert agents[0].notifications() == [("two", b"wrote it")]
    agents[0].send("two", b"alone")
    assert agents[1].notifications() == [("one", b"alone")]


@pytest.mark.parametrize("wheel", SUPPORTED)
def test_every_supported_version_counts_what_moves(world, wheel):
    """NIXL's telemetry, which vLLM demands, writes to members of the plugin's engine."""
    sidecar = world.sidecar("one")
    agent = world.agent("one", sidecar, wheel, telemetry=True)
    address = agent.allocate("kv", SIZE)
    agent.register("kv", 0, SIZE)
    data = os.urandom(MIB)
    agent.write("kv", 0, data)
    agent.prepare("self", "WRITE", [(address, MIB)], [(address + MIB, MIB)], "one")
    assert agent.finish("self") == "DONE"
    assert agent.telemetry("self") == MIB
    assert agent.read("kv", MIB, MIB) == data
    assert agent.stop() == 0


def test_agents_of_two_nodes_take_tcp(world):
    agents, addresses = pair_of(world, flags=("--peer-listen", "127.0.0.1:0", "--data-listen", "127.0.0.1:0"), nodes=("a", "b"))
    move(agents, addresses, "READ", message=b"read")
    move(agents, addresses, "WRITE", message=b"written")
    assert agents[0].notifications(2) == [("two", b"read"), ("two", b"written")]
    assert "take the path tcp, as faster ones are not to be had" in agents[1].log


@pytest.mark.parametrize("path, flags, nodes", [
    ("shm", (), (None, None)),
    ("tcp", ("--peer-listen", "127.0.0.1:0", "--data-listen", "127.0.0.1:0"), ("a", "b")),
])
@pytest.mark.parametrize("kinds", [("file", "file"), ("file", "arena")])
def test_files_that_their_owner_can_truncate(world, kinds, path, flags, nodes):
    """As engines share them between their processes: unlinked files in /dev/shm."""
    agents, addresses = pair_of(world, flags=(*flags, "--unsealed-memory"), kinds=kinds, nodes=nodes)
    move(agents, addresses, "READ", message=b"read")
    move(agents, addresses, "WRITE", message=b"written")
    assert agents[0].notifications(2) == [("two", b"read"), ("two", b"written")]
    assert f"take the path {path}" in agents[1].log


@pytest.mark.parametrize("kinds", [("gpu", "gpu"), ("gpu", "arena"), ("arena", "gpu")])
def test_memory_of_gpus(gpus, world, kinds):
    agents, addresses = pair_of(world, kinds=kinds)
    segments = tuple("VRAM" if kind == "gpu" else "DRAM" for kind in reversed(kinds))  # the reader's first
    move(agents, addresses, "READ", segments, b"read")
    move(agents, addresses, "WRITE", segments, b"written")
    assert agents[0].notifications(2) == [("two", b"read"), ("two", b"written")]
    assert "take the path ipc" in agents[1].log


def test_agents_of_one_sidecar_and_an_agent_by_itself(world):
    sidecar = world.sidecar("one")
    one, two = agents = [world.agent(name, sidecar) for name in ("one", "two")]
    addresses = [agent.allocate("kv", SIZE) for agent in agents]
    for agent in agents:
        agent.register("kv", 0, SIZE)
    introduce(*agents)
    move(agents, addresses, "READ", message=b"here")
    assert one.notifications() == [("two", b"here")]
    data = os.urandom(MIB)
    one.write("kv", 0, data)
    one.prepare("self", "WRITE", [(addresses[0], MIB)], [(addresses[0] + MIB, MIB)], "one")
    assert one.finish("self", b"to myself") == "DONE"
    assert one.read("kv", MIB, MIB) == data
    assert one.notifications() == [("one", b"to myself")]


def test_a_handle_is_posted_again_and_again(world):
    (one, two), addresses = pair_of(world)
    two.prepare("again", "READ", [(addresses[1], MIB)], [(addresses[0], MIB)], "one")
    for turn in range(20):
        data = os.urandom(MIB)
        one.write("kv", 0, data)
        assert two.finish("again", b"turn %d" % turn) == "DONE"
        assert two.read("kv", 0, MIB) == data
    assert one.notifications(20) == [("two", b"turn %d" % turn) for turn in range(20)]


def test_prepared_lists_of_many_descriptors(world):
    (one, two), addresses = pair_of(world)
    blocks, size = 512, SIZE // 512
    data = os.urandom(SIZE)
    one.write("kv", 0, data)
    two.prepare_list("mine", "", [(addresses[1] + i * size, size) for i in range(blocks)])
    two.prepare_list("theirs", "one", [(addresses[0] + i * size, size) for i in range(blocks)])
    backwards = list(range(blocks))[::-1]
    for turn in range(3):
        two.write("kv", 0, bytes(SIZE))
        two.choose(f"turn {turn}", "READ", "mine", list(range(blocks)), "theirs", backwards)
        assert two.finish(f"turn {turn}") == "DONE"
        assert two.read("kv", 0, SIZE) == b"".join(data[i * size:(i + 1) * size] for i in backwards)
        two.release(f"turn {turn}")


def test_a_hundred_thousand_descriptors(world):
    (one, two), addresses = pair_of(world)
    count, size = 100_000, 16
    data = os.urandom(SIZE)
    one.write("kv", 0, data)
    # Steps of 17 keep neighbours from becoming one range.
    order = [(i * 17) % count for i in range(count)]
    two.prepare("many", "READ", [(addresses[1] + i * size, size) for i in range(count)],
                [(addresses[0] + i * size, size) for i in order], "one")
    assert two.finish("many", b"all of them") == "DONE"
    assert two.read("kv", 0, count * size) == b"".join(data[i * size:(i + 1) * size] for i in order)
    assert one.notifications() == [("two", b"all of them")]


@pytest.mark.parametrize("length", [0, 1, 65_000, 65_536, 1 << 20])
def test_notifications_of_any_length(world, length):
    agents, addresses = pair_of(world)
    message = os.urandom(length)
    agents[0].send("two", message)
    assert agents[1].notifications() == [("one", message)]
    if length:  # NIXL's Python takes an empty one for none
        move(agents, addresses, "READ", message=message)
        assert agents[0].notifications() == [("two", message)]


def test_a_notification_that_is_refused_says_why(world):
    """Its receiver stands still, so that the messages that it does not take become too many."""
    (one, two), addresses = pair_of(world)
    two.prepare("read", "READ", [(addresses[1], 4096)], [(addresses[0], 4096)], "one")
    one.process.send_signal(signal.SIGSTOP)
    try:
        with pytest.raises(Failed, match="NIXL_ERR_BACKEND"):
            for _ in range(100):
                assert two.finish("read", bytes(60_000)) == "DONE"
    finally:
        one.process.send_signal(signal.SIGCONT)
    assert re.search(r"the notification was not delivered: .* has \d+ notifications that it has not read", two.log), two.log


def test_what_a_transfer_costs_is_estimated(world):
    (_, two), addresses = pair_of(world)
    two.prepare("small", "READ", [(addresses[1], 4096)], [(addresses[0], 4096)], "one")
    two.prepare("large", "READ", [(addresses[1], SIZE)], [(addresses[0], SIZE)], "one")
    for _ in range(8):
        assert two.finish("small") == two.finish("large") == "DONE"
    assert 0 < two.cost("small")[0] < two.cost("large")[0] < 20_000_000
