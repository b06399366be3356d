"""Deaths of agents and sidecars in the middle of a transfer, and their return."""

import os
import signal
from pathlib import Path

import pytest
from agents import Failed, introduce
from conftest import end_to_end
from test_transfers import MIB, SIZE, move, pair_of


def workers_of(sidecar):
    status, answer = sidecar.ask("GET", "/v1/status")
    assert status == 200
    return [worker["pid"] for worker in answer["workers"]]


def state_of(task):
    return (task / "stat").read_text().rpartition(")")[2].split()[0]


class Stopped:
    """The copy workers of a sidecar stand still: what is posted meanwhile goes on until they run."""

    def __init__(self, sidecar):
        self._pids = workers_of(sidecar)

    def __enter__(self):
        for pid in self._pids:
            os.kill(pid, signal.SIGSTOP)
        while any(state_of(task) not in "Tt" for pid in self._pids for task in Path(f"/proc/{pid}/task").iterdir()):
            pass

    def __exit__(self, *_):
        for pid in self._pids:
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                pass


@pytest.fixture
def pair(world):
    """(agents, addresses, sidecars)"""
    agents, addresses, sidecars = [], [], []
    for name in ("one", "two"):
        sidecars.append(world.sidecar(name))
        agents.append(world.agent(name, sidecars[-1]))
        addresses.append(agents[-1].allocate("kv", SIZE))
        agents[-1].register("kv", 0, SIZE)
    introduce(*agents)
    move(agents, addresses, "READ")  # from now on all is mapped, and a transfer is admitted without the workers
    return agents, addresses, sidecars


def outcome(agent, handle, seconds=30):
    """The state of a handle that was posted, once it is over."""
    end = end_to_end.time.monotonic() + seconds
    while end_to_end.time.monotonic() < end:
        try:
            state = agent.check(handle)
        except Failed as error:
            return str(error)
        if state != "PROC":
            return state
    raise AssertionError(f"still PROC after {seconds} s:\n{agent.log}")


def prepare(agents, addresses, handle="read", size=SIZE):
    agents[1].prepare(handle, "READ", [(addresses[1], size)], [(addresses[0], size)], "one")


def test_a_handle_is_released_only_when_it_is_quiet(pair):
    """The first release is refused. NIXL up to 1.5.1 takes a second one for granted: that one comes back when no byte can move."""
    agents, addresses, sidecars = pair
    prepare(agents, addresses)
    with Stopped(sidecars[1]):
        assert agents[1].post("read") == "PROC"
        with pytest.raises(Failed):
            agents[1].post("read")
        with pytest.raises(Failed):
            agents[1].release("read")
        assert "stopping" in states_at(sidecars[1])
        agents[1].release("read")
        assert sorted(states_at(sidecars[1])) == ["cancelled", "succeeded"]
    move(agents, addresses, "READ")


def states_at(sidecar):
    return [transfer["state"] for transfer in sidecar.ask("GET", "/v1/transfers?workload=nixl-two")[1]["transfers"]]


def test_an_agent_dies_in_a_transfer_and_comes_back(world, pair):
    agents, addresses, sidecars = pair
    data = os.urandom(SIZE)
    agents[0].write("kv", 0, data)
    prepare(agents, addresses)
    with Stopped(sidecars[1]):
        assert agents[1].post("read") == "PROC"
        agents[0].kill()
    still = outcome_and_bytes(agents[1], data, "NIXL_ERR_REMOTE_DISCONNECT")
    agents[1].release("read")
    prepare(agents, addresses)
    wait_for_refusal(agents[1], "NIXL_ERR_REMOTE_DISCONNECT")
    assert agents[1].read("kv", 0, SIZE) == still
    agents[1].unload("one")

    again = world.agent("one", sidecars[0])
    address = again.allocate("kv", SIZE)
    again.register("kv", 0, SIZE)
    introduce(again, agents[1])
    move((again, agents[1]), (address, addresses[1]), "READ", message=b"again")
    assert again.notifications() == [("two", b"again")]


def outcome_and_bytes(agent, data, error):
    """The memory at the end of a read of `data`: all of it, or what it was when the read failed by `error`."""
    state = outcome(agent, "read")
    memory = agent.read("kv", 0, SIZE)
    if state == "DONE":
        assert memory == data
    else:
        assert error in state
    return memory


def wait_for_refusal(agent, error, seconds=10):
    """Posts until it is refused: that the other has gone is known within a second."""
    end = end_to_end.time.monotonic() + seconds
    while end_to_end.time.monotonic() < end:
        try:
            agent.finish("read")
        except Failed as said:
            assert error in str(said)
            return
    raise AssertionError(f"no refusal within {seconds} s:\n{agent.log}")


@pytest.mark.parametrize("side", [0, 1])
def test_a_sidecar_dies_in_a_transfer_and_comes_back(pair, side):
    """The agents stay, and know each other still: nothing is loaded again."""
    agents, addresses, sidecars = pair
    data = os.urandom(SIZE)
    agents[0].write("kv", 0, data)
    before = agents[1].read("kv", 0, SIZE)
    prepare(agents, addresses)
    with Stopped(sidecars[1]):
        assert agents[1].post("read") == "PROC"
        sidecars[side].kill()
    still = outcome_and_bytes(agents[1], data, ("NIXL_ERR_REMOTE_DISCONNECT", "NIXL_ERR_BACKEND")[side])
    if side == 1:
        assert still == before  # its copy workers stood still, and ended with their sidecar
    agents[1].release("read")
    sidecars[side].start()
    end = end_to_end.time.monotonic() + 30
    while "the sidecar is back" not in agents[side].log:
        assert end_to_end.time.monotonic() < end, agents[side].log
    assert agents[1].read("kv", 0, SIZE) == still
    prepare(agents, addresses)
    while True:
        try:
            assert agents[1].finish("read") == "DONE"
            break
        except Failed:
            assert end_to_end.time.monotonic() < end, agents[1].log
    agents[1].release("read")
    move(agents, addresses, "READ", message=b"it is back")
    assert agents[0].notifications(seconds=20) == [("two", b"it is back")]


def test_memory_is_registered_anew_at_the_same_address(pair):
    agents, addresses, _ = pair
    for _ in range(3):
        agents[0].deregister("kv")
        agents[0].register("kv", 0, SIZE)
        agents[1].unload("one")
        agents[1].load(agents[0].metadata())
        move(agents, addresses, "READ")
    agents[0].deregister("kv")
    prepare(agents, addresses)
    wait_for_refusal(agents[1], "NIXL_ERR_REMOTE_DISCONNECT")


def test_a_process_ends_while_its_agent_is_used(pair):
    agents, addresses, sidecars = pair
    move(agents, addresses, "READ")
    agents[0].start("notifications", 1, 0.5)
    assert agents[0].answer() == []
    assert agents[0].stop() == 0
    assert agents[1].stop() == 0
    for sidecar in sidecars:
        status, answer = sidecar.ask("GET", "/v1/workloads")
        assert status == 200
        assert [workload["name"] for workload in answer["workloads"]] == []


def test_metadata_is_loaded_once_more_with_more_memory(pair):
    agents, addresses, _ = pair
    more = agents[0].allocate("more", MIB)
    agents[0].register("more", 0, MIB)
    agents[1].load(agents[0].metadata())
    data = os.urandom(MIB)
    agents[0].write("more", 0, data)
    agents[1].prepare("more", "READ", [(addresses[1], MIB)], [(more, MIB)], "one")
    assert agents[1].finish("more") == "DONE"
    assert agents[1].read("kv", 0, MIB) == data
    move(agents, addresses, "WRITE")
