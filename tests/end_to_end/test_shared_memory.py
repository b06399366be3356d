"""Registrations that are wrong, over the real hand-off socket: each has its code, and none of them leaves anything."""

import fcntl
import os
import resource
import select
import tempfile
from contextlib import ExitStack

import pytest

import handoff
from handoff import RawWorkload
from workloads import (MiB, SEALS, Scene, fd_count, metric, new_memory, start_workload, totals_of, wait_for,
                       workers_of)

F_SEAL_FUTURE_WRITE = 16  # linux/fcntl.h, since 5.1
PAGE = os.sysconf("SC_PAGESIZE")


@pytest.fixture
def workload(sidecar):
    raw = RawWorkload(sidecar, "raw")
    yield raw
    raw.close()


@pytest.fixture
def nothing_is_left(sidecar, workload):
    """Whatever is handed over during the test is gone after its workload."""
    before = fd_count(sidecar.process.pid), [fd_count(pid) for pid in workers_of(sidecar)]
    yield
    assert totals_of(sidecar)["allocations"] == 0 and totals_of(sidecar)["mapped_bytes"] == 0
    workload.close()

    def clean():
        workers = [fd_count(pid) for pid in workers_of(sidecar)]
        return fd_count(sidecar.process.pid) <= before[0] and workers == before[1]

    wait_for(lambda: metric(sidecar, "gantry_fds_held") == 0, 1.5, "the end of the workload")
    wait_for(clean, 1.5, "closing the descriptors")


def read_only_copy(memory):
    return os.open(f"/proc/self/fd/{memory.fd}", os.O_RDONLY | os.O_CLOEXEC)


def test_what_is_right_is_registered(workload, new_memory):
    memory = new_memory(MiB)
    (token,) = workload.hand_over(memory.fd)
    status, answer = workload.register(token, MiB, [(PAGE, PAGE), (0, 1)], ["remote_read", "remote_write"])
    assert status == 201, answer
    assert answer["buffers"][0]["length"] == PAGE + 1


@pytest.mark.parametrize("kind", ["pipe", "socket", "directory", "device", "eventfd", "epoll", "path only"])
def test_a_descriptor_that_is_no_shared_memory(workload, nothing_is_left, kind):
    with ExitStack() as opened:
        if kind == "pipe":
            fds = os.pipe()
        elif kind == "socket":
            fds = [handoff.socket.socket().detach()]
        elif kind == "epoll":
            fds = [os.dup(opened.enter_context(select.epoll()).fileno())]
        elif kind == "eventfd":
            fds = [os.eventfd(0)]
        else:
            path, mode = {"directory": ("/tmp", os.O_RDONLY), "device": ("/dev/zero", os.O_RDWR),
                          "path only": ("/etc/passwd", os.O_PATH)}[kind]
            fds = [os.open(path, mode)]
        for fd in fds:
            opened.callback(os.close, fd)
        for token in workload.hand_over(*fds):
            status, problem = workload.register(token, PAGE)
            assert (status, problem["code"]) == (422, "not_exportable"), problem
            assert problem["field"].startswith("/allocations/0")


@pytest.mark.parametrize("folder", ["/tmp", "/dev/shm"])
def test_a_file(workload, nothing_is_left, folder):
    """On a disk it is no shared memory; on tmpfs it is, but it cannot be sealed."""
    with tempfile.TemporaryFile(dir=folder) as file:
        file.truncate(MiB)
        (token,) = workload.hand_over(file.fileno())
        status, problem = workload.register(token, MiB)
        assert status == 422 and problem["code"] in ("not_exportable", "fd_not_sealed"), problem


def test_a_memfd_that_can_shrink(workload, nothing_is_left, new_memory):
    for seals in (0, fcntl.F_SEAL_GROW, fcntl.F_SEAL_SEAL):
        (token,) = workload.hand_over(new_memory(MiB, seals=seals).fd)
        status, problem = workload.register(token, MiB)
        assert (status, problem["code"]) == (422, "fd_not_sealed") and "F_SEAL_SHRINK" in problem["hint"]


@pytest.mark.parametrize("size", [MiB + 1, 2 * MiB, 1 << 45])
def test_a_memfd_that_is_shorter_than_was_said(workload, nothing_is_left, new_memory, size):
    (token,) = workload.hand_over(new_memory(MiB).fd)
    status, problem = workload.register(token, size, [(0, PAGE)])
    assert (status, problem["code"]) == (422, "fd_too_short"), problem


def test_a_read_only_descriptor(workload, new_memory):
    memory = new_memory(MiB)
    fd = read_only_copy(memory)
    sealed = new_memory(MiB, seals=SEALS | F_SEAL_FUTURE_WRITE)
    for token in workload.hand_over(fd, sealed.fd):
        status, problem = workload.register(token, MiB, access=["remote_write"])
        assert (status, problem["code"]) == (422, "fd_read_only"), problem
        assert problem["field"] == "/buffers/0/access/remote_write"
        status, answer = workload.register(token, MiB, name=f"read-{token[:4]}")
        assert status == 201, answer
    os.close(fd)


def test_a_token_of_nobody_or_of_another_workload(sidecar, workload, nothing_is_left, new_memory):
    other = RawWorkload(sidecar, "another")
    (token,) = other.hand_over(new_memory(MiB).fd)
    for wrong in (token, "0" * 32):
        status, problem = workload.register(wrong, MiB)
        assert (status, problem["code"]) == (404, "not_found"), problem
        assert problem["field"].startswith("/allocations/0")
    assert other.register(token, MiB)[0] == 201
    reply = workload.say({"type": "release", "tokens": [token]})
    assert (reply["type"], reply["code"]) == ("error", "not_found")
    assert other.register(token, MiB)[0] == 200, "it is still there"
    other.close()
    wait_for(lambda: totals_of(sidecar)["buffers"] == 0, 1.5)


@pytest.mark.parametrize("pieces, code", [
    ([(MiB, 1)], "out_of_range"),
    ([(0, MiB + 1)], "out_of_range"),
    ([(MiB - 1, 2)], "out_of_range"),
    ([((1 << 63) - 1, 2)], "out_of_range"),
    ([(PAGE, (1 << 63) - 1)], "out_of_range"),
    ([(0, PAGE), (MiB - PAGE, 2 * PAGE)], "out_of_range"),
    ([((1 << 64) - PAGE, PAGE)], "malformed_body"),
    ([(1 << 64, PAGE)], "malformed_body"),
    ([(-1, PAGE)], "malformed_body"),
    ([(0, 0)], "invalid_argument"),
    ([], "invalid_argument"),
])
def test_pieces_that_lie_outside_or_wrap(workload, nothing_is_left, new_memory, pieces, code):
    (token,) = workload.hand_over(new_memory(MiB).fd)
    status, problem = workload.register(token, MiB, pieces)
    wanted = {code, "invalid_argument"} if code == "malformed_body" else {code}
    assert status == 400 and problem["code"] in wanted, problem
    assert problem["field"].startswith("/buffers/0/pieces"), problem


def test_more_descriptors_than_the_budget(start_sidecar, new_memory):
    """10 000 come, 256 are held, all others are closed at once and refused; nothing else of the sidecar suffers."""
    sidecar = start_sidecar("a", flags=["--fds-max", "256"])
    workload, memory = RawWorkload(sidecar, "raw"), new_memory(MiB)
    before = fd_count(sidecar.process.pid)
    held, refused = 0, 0
    for _ in range(100):
        reply = workload.say({"type": "fds", "count": 100}, [memory.fd] * 100)
        if reply["type"] == "ok":
            held += len(reply["tokens"])
        else:
            assert reply["code"] == "resource_exhausted"
            refused += 100
    assert (held, refused) == (200, 9_800)
    assert metric(sidecar, "gantry_fds_held") == 200
    assert fd_count(sidecar.process.pid) <= before + 200 + 4
    other = RawWorkload(sidecar, "another")
    assert other.say({"type": "fds", "count": 57}, [memory.fd] * 57)["code"] == "resource_exhausted"
    (token,) = other.hand_over(memory.fd)
    assert other.register(token, MiB)[0] == 201
    workload.close()
    wait_for(lambda: metric(sidecar, "gantry_fds_held") == 1, 1.5)
    assert len(other.hand_over(*[memory.fd] * 200)) == 200, "what the dead one held is free again"
    other.close()


def test_more_descriptors_of_peers_than_their_budget(start_sidecar, start_workload, new_memory):
    scene = Scene(start_sidecar, start_workload, new_memory, MiB, flags=["--peer-fds-max", "1"])
    mapped = 'gantry_peer_fds{state="mapped"}'
    assert scene.a.ask("GET", "/v1/status")[1]["limits"]["peer_fds_max"] == 1
    assert metric(scene.a, mapped) == 1, "the neighbour's memory"
    status, problem = scene.read()
    assert (status, problem["code"]) == (429, "resource_exhausted"), problem
    assert "--peer-fds-max" in problem["hint"]
    scene.neighbour.kill()
    wait_for(lambda: metric(scene.a, mapped) == 0, 3)
    status, view = scene.read()
    assert (status, view["state"]) == (200, "succeeded"), view
    assert metric(scene.b, 'gantry_peer_fds{state="waiting"}') == 0


def test_descriptors_that_do_not_match_their_message(workload, nothing_is_left, new_memory):
    fd = new_memory(MiB).fd
    for count, fds in ((2, [fd]), (1, [fd, fd]), (0, [fd]), (254, [fd] * 200)):
        reply = workload.say({"type": "fds", "count": count}, fds)
        assert reply["type"] == "error", (count, reply)
    assert workload.say({"type": "ping"}, [fd])["type"] == "error", "a ping brings none"
    assert workload.say({"type": "ping"})["type"] == "ok"


@pytest.mark.parametrize("message", [b"", b"{", b"[]", b"null", b'{"type":"ping"}\0', b'{"type":"ping","type":"ping"}',
                                     b'{"type":"fly"}', b'{"type":"ping","more":1}', b"{" * 30_000, b"\xff\xfe"])
def test_messages_that_nobody_understands(sidecar, new_memory, message):
    before = fd_count(sidecar.process.pid)
    fd = new_memory(PAGE).fd
    connection = handoff.connect(sidecar)
    reply = handoff.say(connection, message, [fd] * 8) if message else handoff.say(connection, message)
    assert reply is None or reply["type"] == "error", reply
    connection.close()
    wait_for(lambda: fd_count(sidecar.process.pid) <= before, 1.5, "closing what came with it")


def test_descriptors_without_a_lease(sidecar, new_memory):
    connection = handoff.connect(sidecar)
    reply = handoff.say(connection, {"type": "fds", "count": 1}, [new_memory(PAGE).fd])
    assert reply["code"] == "unauthenticated"
    reply = handoff.say(connection, {"type": "attach", "version": 1, "lease_token": "0" * 32})
    assert reply["code"] in ("unauthenticated", "not_found")
    connection.close()


def test_a_limit_of_descriptors_that_is_the_systems_own(folder, start_sidecar, new_memory):
    """With a hard limit of 128, half of it is for workloads; beyond, descriptors are refused and REST goes on."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    sidecar = start_sidecar("a")
    resource.prlimit(sidecar.process.pid, resource.RLIMIT_NOFILE, (128, 128))
    workload, memory = RawWorkload(sidecar, "raw"), new_memory(MiB)
    replies = [workload.say({"type": "fds", "count": 20}, [memory.fd] * 20) for _ in range(10)]
    assert {"ok"} != {reply["type"] for reply in replies if reply}, "the limit was not reached"
    workload.close()
    wait_for(lambda: metric(sidecar, "gantry_fds_held") == 0, 3)
    assert sidecar.ask("GET", "/readyz")[0] == 200
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (soft, hard)
