"""Requests about a transfer whose answer is lost, or cannot be asked for: the transfer goes on until it is known to be over."""

import os
import resource
import signal
import socket
import struct
import time
from pathlib import Path

import pytest
from agents import Failed
from test_agent_lives import Stopped, outcome, prepare, state_of, states_at
from test_transfers import MIB, SIZE, move

SOCK_DIAG, DIAG_BY_FAMILY, DUMP, DONE = 4, 20, 0x301, 3
SHOW_NAME, SHOW_QUEUES, TYPE_NAME, TYPE_QUEUES = 0x1, 0x10, 0, 4


def stop(sidecar):
    """Returns when all of its threads stand still."""
    sidecar.process.send_signal(signal.SIGSTOP)
    while any(state_of(task) not in "Tt" for task in Path(f"/proc/{sidecar.process.pid}/task").iterdir()):
        pass


def unread_at(path):
    """Whether the server of the socket has not read, or not accepted, all that came, as the kernel says."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, SOCK_DIAG) as kernel:
        kernel.send(struct.pack("=IHHIIBBHIIIII", 40, DIAG_BY_FAMILY, DUMP, 1, 0, socket.AF_UNIX, 0, 0, 1 << 1 | 1 << 10, 0,
                                SHOW_NAME | SHOW_QUEUES, 0, 0))
        while True:
            data = kernel.recv(1 << 16)
            while data:
                length, kind = struct.unpack_from("=IH", data)
                if kind == DONE:
                    return False
                name, unread, at = b"", 0, 16 + 16
                while at + 4 <= length:
                    size, attribute = struct.unpack_from("=HH", data, at)
                    if attribute == TYPE_NAME:
                        name = data[at + 4:at + size].rstrip(b"\0")
                    elif attribute == TYPE_QUEUES:
                        unread = struct.unpack_from("=I", data, at + 4)[0]
                    at += (size + 3) & ~3
                if name == os.fsencode(path) and unread > 0:
                    return True
                data = data[(length + 3) & ~3:]


def pair_with(world, timeout_ms):
    """(agents, addresses, sidecars); a request may take so long."""
    agents, addresses, sidecars = [], [], []
    for name in ("one", "two"):
        sidecars.append(world.sidecar(name))
        agents.append(world.agent(name, sidecars[-1], parameters={"timeout_ms": str(timeout_ms)}))
        addresses.append(agents[-1].allocate("kv", SIZE))
        agents[-1].register("kv", 0, SIZE)
    for agent, other in (agents, agents[::-1]):
        agent.load(other.metadata())
    move(agents, addresses, "READ")
    return agents, addresses, sidecars


def test_a_post_whose_answer_is_lost_is_no_error_at_once(world):
    """A small transfer could be moved within its request. Its sidecar has the request, and dies."""
    agents, addresses, sidecars = pair_with(world, timeout_ms=10_000)
    prepare(agents, addresses, size=MIB)
    stop(sidecars[1])
    agents[1].start("post", "read")
    end = time.monotonic() + 10
    while not unread_at(sidecars[1].run_dir / "api.sock"):
        assert time.monotonic() < end
    sidecars[1].kill()
    assert agents[1].answer() == "PROC"
    assert agents[1].check("read") == "PROC"
    assert "NIXL_ERR_BACKEND" in outcome(agents[1], "read")
    agents[1].release("read")


def test_a_process_without_descriptors_does_not_take_its_sidecar_for_lost(world):
    agents, addresses, sidecars = pair_with(world, timeout_ms=500)
    two, pid = agents[1], agents[1].process.pid
    data = os.urandom(SIZE)
    agents[0].write("kv", 0, data)
    prepare(agents, addresses)
    with Stopped(sidecars[1]):
        assert two.post("read") == "PROC"
        stop(sidecars[1])
        assert two.check("read") == "PROC"  # has no answer, and its connection ends
        limits = resource.prlimit(pid, resource.RLIMIT_NOFILE, (0, resource.prlimit(pid, resource.RLIMIT_NOFILE)[1]))
        sidecars[1].process.send_signal(signal.SIGCONT)
        # The silence is over within five seconds; a lost sidecar would be an error after three more.
        end = time.monotonic() + 9
        while time.monotonic() < end:
            assert two.check("read") == "PROC"
        resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
    assert outcome(two, "read") == "DONE"
    assert two.read("kv", 0, SIZE) == data
    two.release("read")


def test_a_transfer_is_stopped_whose_release_found_no_sidecar(world):
    """NIXL asks no third time, so the plugin goes on by itself."""
    agents, addresses, sidecars = pair_with(world, timeout_ms=500)
    two = agents[1]
    prepare(agents, addresses)
    with Stopped(sidecars[1]):
        assert two.post("read") == "PROC"
        stop(sidecars[1])
        assert two.check("read") == "PROC"
        with pytest.raises(Failed):
            two.release("read")
        two.release("read")
        sidecars[1].process.send_signal(signal.SIGCONT)
        end = time.monotonic() + 20
        while "cancelled" not in states_at(sidecars[1]):
            assert time.monotonic() < end
            time.sleep(0.02)
    move(agents, addresses, "READ")


def test_a_long_notification_that_finds_no_room_is_an_error(world):
    """The receiver takes nothing, so that its sidecar's room for messages is full after a few."""
    agents, addresses, sidecars = pair_with(world, timeout_ms=2000)
    one, two = agents
    one.process.send_signal(signal.SIGSTOP)
    sent = []
    with pytest.raises(Failed):
        while len(sent) < 20:
            text = os.urandom(MIB)
            two.send("one", text)
            sent.append(("two", text))
    assert sent
    assert "was not delivered: resource_exhausted" in two.log
    prepare(agents, addresses)
    with pytest.raises(Failed):
        two.post("read", os.urandom(MIB))  # nothing begins without its notification
    one.process.send_signal(signal.SIGCONT)
    assert one.notifications(len(sent)) == sent
