"""The calls of an engine's step: none waits for a sidecar that stands still more than once, and none ends the process."""

import base64
import os
import signal

import pytest
from agents import Failed, introduce
from test_agent_lives import outcome, prepare
from test_transfers import SIZE, move


@pytest.fixture
def pair(world):
    """(agents, addresses, sidecars); a request may take half a second."""
    agents, addresses, sidecars = [], [], []
    for name in ("one", "two"):
        sidecars.append(world.sidecar(name))
        agents.append(world.agent(name, sidecars[-1], parameters={"timeout_ms": "500"}))
        addresses.append(agents[-1].allocate("kv", SIZE))
        agents[-1].register("kv", 0, SIZE)
    introduce(*agents)
    return agents, addresses, sidecars


def test_looking_for_notifications_makes_no_request(pair):
    agents, _, sidecars = pair
    sidecars[0].process.send_signal(signal.SIGSTOP)
    try:
        agents[0].time_empty_notifications(100_000)  # each request would wait for half a second
    finally:
        sidecars[0].process.send_signal(signal.SIGCONT)
    agents[1].send("one", b"after it")
    assert agents[0].notifications() == [("two", b"after it")]


def test_a_sidecar_that_stands_still_is_asked_once(pair):
    """A transfer that was posted while it stood is not lost."""
    agents, addresses, sidecars = pair
    one, two = agents
    data = os.urandom(SIZE)
    one.write("kv", 0, data)
    prepare(agents, addresses)
    sidecars[1].process.send_signal(signal.SIGSTOP)
    try:
        assert two.post("read") == "PROC"  # it was asked, and did not answer
        for _ in range(1000):
            assert two.check("read") == "PROC"
        prepare(agents, addresses, "another")
        for _ in range(1000):
            with pytest.raises(Failed):
                two.post("another")
        with pytest.raises(Failed):
            two.send("one", b"not sent")
    finally:
        sidecars[1].process.send_signal(signal.SIGCONT)
    assert outcome(two, "read") == "DONE"
    assert two.read("kv", 0, SIZE) == data
    two.release("read")
    move(agents, addresses, "WRITE")


def test_a_child_of_fork_disturbs_nobody(pair):
    agents, addresses, _ = pair
    assert agents[1].fork() == 0
    move(agents, addresses, "READ", message=b"after a child")
    assert agents[0].notifications() == [("two", b"after a child")]


def test_messages_of_others_are_dropped(pair):
    agents, addresses, sidecars = pair
    assert sidecars[0].ask("PUT", "/v1/workloads/evil", {})[0] in (200, 201)
    part = b"GNX1" + bytes([3, 0, 0, 0]) + bytes(12) + bytes([1, 0, 0, 0]) + b"twoI am agent two"
    for message in (b"", b"GNX1", os.urandom(100), part, b"GNL1", b'GNL1{"block_bytes":1,"names":"none"}', b"\xff" * 60_000):
        status, answer = sidecars[0].ask("POST", "/v1/notifications", {
            "workload": "evil", "to": "nixl-one", "message": base64.b64encode(message).decode()})
        assert status in (200, 202), answer
    agents[1].send("one", b"of an agent")
    assert agents[0].notifications() == [("two", b"of an agent")]
    assert "a notification is dropped" in agents[0].log
    move(agents, addresses, "READ")
