"""Memory of malloc is adopted where it is when an agent registers it, and stays usable whatever happens to the registration."""

import os
import signal
import time
from pathlib import Path

import pytest
from agents import SUPPORTED, Failed, introduce
from test_lost_answers import stop
from test_refusals import refused
from test_transfers import MIB, SIZE, move, pair_of

# Malloc maps each block of that size by itself, whatever was freed before.
MAPS = {"GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=131072"}
NOT_TO_BE_MAPPED = "NIXL_ERR_BACKEND"  # all versions of NIXL say so, though the plugin says NIXL_ERR_NOT_SUPPORTED
PART = 300_000  # no multiple of a page


def lines_of(agent):
    return [line for line in agent.log.splitlines() if "is adopted" in line]


def descriptors_of(agent):
    """How many descriptors of adopted blocks the process has."""
    places = [os.readlink(place) for place in Path(f"/proc/{agent.process.pid}/fd").iterdir()]
    return sum(place.startswith("/memfd:gantry-private") for place in places)


def wait_for(condition, agent, seconds=30):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, agent.log
        time.sleep(0.02)


def succeeds(command, *arguments):
    try:
        command(*arguments)
    except Failed:
        return False
    return True


def allocate_at(agent, address):
    """A new block at this address: other blocks stay allocated until malloc maps one there. None: it never did."""
    for attempt in range(20):
        if agent.allocate("kv", SIZE, "private") == address:
            return address
        agent.rename("kv", f"elsewhere {attempt}")
    return None


def copy(agents, local, remote, size):
    """Reads from the first agent's address into the second's."""
    agents[1].prepare("copy", "READ", [(local, size)], [(remote, size)], "one")
    assert agents[1].finish("copy") == "DONE"
    agents[1].release("copy")


@pytest.fixture
def pair(world):
    """(agents, addresses): memory of malloc "kv" is allocated at both, and not registered."""
    agents = [world.agent(name, world.sidecar(name), **MAPS) for name in ("one", "two")]
    return agents, [agent.allocate("kv", SIZE, "private") for agent in agents]


def learn(agents):
    """The second agent learns what the first has registered by now."""
    agents[1].load(agents[0].metadata())


@pytest.mark.parametrize("path", ["shm", "tcp"])
def test_bytes_move_both_ways(world, path):
    apart = {"flags": ("--peer-listen", "127.0.0.1:0", "--data-listen", "127.0.0.1:0"), "nodes": ("a", "b")} if path == "tcp" else {}
    agents, addresses = pair_of(world, kinds=("private", "private"), variables=MAPS, **apart)
    move(agents, addresses, "READ", message=b"read")
    move(agents, addresses, "WRITE", message=b"written")
    assert agents[0].notifications(2) == [("two", b"read"), ("two", b"written")]
    assert f"take the path {path}" in agents[1].log
    for agent in agents:
        agent.allocate("more", SIZE, "private")
        agent.register("more", 0, SIZE)
        assert len(lines_of(agent)) == 1 and "adopt_private=no refuses such memory" in lines_of(agent)[0]
        assert agent.stop() == 0


@pytest.mark.parametrize("kinds", [("private", "arena"), ("arena", "private")])
def test_beside_memory_that_is_shared_already(world, kinds):
    agents, addresses = pair_of(world, kinds=kinds, variables=MAPS)
    move(agents, addresses, "READ")
    move(agents, addresses, "WRITE")


def test_a_part_of_an_array(pair):
    agents, addresses = pair
    data = os.urandom(SIZE)
    agents[0].write("kv", 0, data)
    for agent in agents:
        agent.register("kv", PART, PART)
    introduce(*agents)
    copy(agents, addresses[1] + PART, addresses[0] + PART, PART)
    assert agents[1].read("kv", 0, SIZE) == bytes(PART) + data[PART:2 * PART] + bytes(SIZE - 2 * PART)
    assert agents[0].read("kv", 0, SIZE) == data


# (offset, bytes): the second's end is the first's beginning, and the third has a part of both.
PLACES = {"second": (PART, PART), "first": (0, PART), "both": (PART // 2, PART)}


@pytest.mark.parametrize("order", [("first", "second", "both"), ("both", "second", "first"), ("second", "both", "first")])
def test_registrations_of_one_block_end_in_any_order(pair, order):
    agents, addresses = pair
    data = os.urandom(SIZE)
    agents[0].write("kv", 0, data)
    for name, place in PLACES.items():
        agents[0].register("kv", *place, name)
    agents[1].register("kv", 0, SIZE)
    introduce(*agents)
    for i, name in enumerate(order):
        for left in order[i:]:
            offset, size = PLACES[left]
            agents[1].write("kv", 0, bytes(SIZE))
            copy(agents, addresses[1] + offset, addresses[0] + offset, size)
            assert agents[1].read("kv", offset, size) == data[offset:offset + size]
        assert descriptors_of(agents[0]) > 0
        agents[0].deregister(name)
    assert descriptors_of(agents[0]) == 0
    assert agents[0].read("kv", 0, SIZE) == data


def test_a_block_is_freed_and_another_one_is_registered(pair):
    agents, addresses = pair
    agents[1].register("kv", 0, SIZE)
    for turn in range(5):
        agents[0].register("kv", 0, SIZE)
        learn(agents)
        data = os.urandom(SIZE)
        agents[0].write("kv", 0, data)
        copy(agents, addresses[1], addresses[0], SIZE)
        assert agents[1].read("kv", 0, SIZE) == data
        agents[0].deregister("kv")
        agents[1].unload("one")
        assert descriptors_of(agents[0]) == 0
        if turn % 2:  # else the same block is registered again
            agents[0].free("kv")
            addresses[0] = agents[0].allocate("kv", SIZE, "private")
            assert agents[0].read("kv", 0, SIZE) == bytes(SIZE)


def test_a_block_stays_what_it_is_when_the_sidecar_comes_back(world):
    """An engine uses its memory meanwhile. So no page may be replaced then."""
    sidecars = [world.sidecar(name) for name in ("one", "two")]
    agents = [world.agent(sidecar.name, sidecar, **MAPS) for sidecar in sidecars]
    addresses = [agent.allocate("kv", SIZE, "private") for agent in agents]
    for agent in agents:
        agent.register("kv", 0, SIZE)
    introduce(*agents)
    move(agents, addresses, "READ")
    before = [agent.inode("kv") for agent in agents]
    for sidecar, agent in zip(sidecars, agents):
        sidecar.kill()
        sidecar.start()
        wait_for(lambda agent=agent: "the sidecar is back" in agent.log, agent)
    assert [agent.inode("kv") for agent in agents] == before
    wait_for(lambda: succeeds(move, agents, addresses, "READ"), agents[1])


@pytest.mark.parametrize("is_mapped_anew", [True, False], ids=["mapped anew", "unmapped"])
def test_a_block_that_was_freed_too_early_is_not_adopted_again(world, is_mapped_anew):
    """A new block may be at its address when the sidecar comes back. Nobody has asked for that one."""
    sidecar = world.sidecar("one")
    agent = world.agent("one", sidecar, **MAPS)
    address = agent.allocate("kv", SIZE, "private")
    agent.register("kv", 0, SIZE)
    agent.free("kv")
    if is_mapped_anew and allocate_at(agent, address) is None:
        pytest.skip("malloc maps no block at this address again")
    sidecar.kill()
    sidecar.start()
    wait_for(lambda: "the sidecar is back" in agent.log, agent)
    time.sleep(1.5)  # the plugin looks twice a second for what is missing
    assert agent.log.count("was freed or mapped anew while it was registered") == 1
    assert "is not registered again yet" not in agent.log
    assert descriptors_of(agent) == 0
    if is_mapped_anew:
        assert agent.inode("kv") == 0


def test_what_is_deregistered_at_a_sidecar_that_stands_still_is_free_later(world):
    """NIXL forgets a registration whose end failed. The plugin does not, so that the address can be registered again."""
    sidecar = world.sidecar("one")
    agent = world.agent("one", sidecar, **MAPS)
    address = agent.allocate("kv", SIZE, "private")
    agent.register("kv", 0, SIZE)
    stop(sidecar)
    try:
        succeeds(agent.deregister, "kv")
    finally:
        sidecar.process.send_signal(signal.SIGCONT)
    assert "memory is not unregistered" in agent.log and descriptors_of(agent) > 0
    agent.free("kv")
    wait_for(lambda: descriptors_of(agent) == 0, agent)
    if allocate_at(agent, address) is None:
        pytest.skip("malloc maps no block at this address again")
    agent.register("kv", 0, SIZE)
    assert agent.inode("kv") != 0


def test_registrations_of_one_block_share_a_descriptor(world):
    agent = world.agent("one", world.sidecar("one"), **MAPS)
    agent.allocate("kv", SIZE, "private")
    agent.register("kv", 0, PART, "first")
    before = descriptors_of(agent)
    for i in range(40):
        agent.register("kv", i * 512, 512, f"more {i}")
    assert descriptors_of(agent) == before


def test_memory_is_refused_while_a_device_has_pages_of_the_process(world):
    """The device would go on with pages that the process no longer has. Blocks that were adopted before stay."""
    agent = world.agent("one", world.sidecar("one"), **MAPS)
    for name in ("before", "ended", "kv"):
        agent.allocate(name, SIZE, "private")
    agent.register("before", 0, PART, "first")
    agent.register("ended", 0, SIZE)
    agent.deregister("ended")
    inode = agent.inode("ended")
    if min(agent.pin("kv")) < 0:
        pytest.skip("this process may not use io_uring")
    refused(agent, "KiB of this process pinned", "register", "kv", 0, SIZE, error=NOT_TO_BE_MAPPED)
    assert "with GANTRY before anything else pins memory" in agent.log and agent.inode("kv") == 0
    with pytest.raises(Failed):
        agent.register("ended", 0, SIZE)
    assert agent.inode("ended") == inode
    agent.register("before", PART, PART, "second")
    agent.unpin()
    wait_for(lambda: succeeds(agent.register, "kv", 0, SIZE), agent)  # io_uring lets go of pages a moment later


@pytest.mark.parametrize("wheel", SUPPORTED)
def test_a_block_in_a_heap_is_refused_and_a_mapped_one_is_adopted(world, wheel):
    agent = world.agent("one", world.sidecar("one"), wheel, **MAPS)
    agent.allocate("kv", 64 << 10, "private")
    refused(agent, "is no block that malloc has mapped by itself", "register", "kv", 0, 64 << 10, error=NOT_TO_BE_MAPPED)
    assert "gantry_nixl.host_memory(bytes)" in agent.log and "glibc.malloc.mmap_threshold" in agent.log
    agent.allocate("mapped", SIZE, "private")
    agent.register("mapped", 0, SIZE)
    assert agent.inode("mapped") != 0


def test_nothing_is_adopted_where_the_user_forbids_it(world):
    agent = world.agent("one", world.sidecar("one"), parameters={"adopt_private": "no"}, **MAPS)
    agent.allocate("kv", MIB, "private")
    refused(agent, "is private to this process (malloc, numpy or a tensor): no sidecar can map it (allocate it by "
                   "gantry_nixl.host_memory(bytes)", "register", "kv", 0, MIB, error=NOT_TO_BE_MAPPED)
    assert agent.inode("kv") == 0


def test_another_value_of_the_parameter_is_refused(world):
    process = world.process("one")
    refused(process, "the parameter adopt_private is 'maybe' (yes or no)", "open", "one",
            {"run_dir": str(world.sidecar("one").run_dir), "adopt_private": "maybe"})
