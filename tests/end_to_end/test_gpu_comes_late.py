"""Sidecars whose copy workers could have no GPU at the start, for want of its memory, and get it later, without a restart: peers are
told of it, and memory of GPUs takes every way as if it had been there from the start."""

import pytest

from gpu_memories import GpuMemory, succeeded
from gpu_workloads import REAL, VISIBLE, gpus, start_gpu_workload, vendor
from test_gpu_over_tcp import HostMemory, staged_bytes, staging_bytes_of
from test_gpu_visibility import Sides
from test_peers_over_tcp import TCP, meet
from workloads import MiB, connect, wait_for, workers_of

pytestmark = [pytest.mark.both_vendors, pytest.mark.skipif(REAL, reason="only the fake's memory is small enough to be taken")]

SIZE = 6 * MiB
MINE, THEIRS, LENGTH = 512, 3 * MiB + 1536, MiB + 64
DEFAULT_STAGING = 64 * MiB
LATE = ["--gpu-retry-ms", "200"]


def homes_of(sidecar):
    return [worker["gpu"] for worker in sidecar.ask("GET", "/v1/status")[1]["workers"]]


def staging_in(pid):
    """How often a process has the staging memory in its address space: twice when it is pinned, as the fake's GPUs find it elsewhere."""
    return staging_bytes_of(pid) // DEFAULT_STAGING


@pytest.fixture
def start_late(gpus, start_sidecar):
    """A sidecar whose workers' contexts take much."""
    def start(name):
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("GANTRY_FAKE_CONTEXT_MIB", "1000")
            return start_sidecar(name, workers=2, flags=TCP + LATE)
    return start


@pytest.fixture
def leave(gpus, start_sidecar, start_gpu_workload):
    """Such contexts have no room on either GPU until this is called."""
    keeper = start_sidecar("keeper", workers=1, flags=("--gpu-workers", "0"))
    engines = [start_gpu_workload(keeper, f"engine{ordinal}", ordinal) for ordinal in (0, 1)]
    for engine in engines:
        engine.do("allocate", "weights", 3500 * MiB)

    def give_back():
        for engine in engines:
            engine.do("free", "weights")

    return give_back


def test_over_tcp(leave, start_late, start_gpu_workload):
    """The staging memory is there from the start, and pinned in each worker when its GPU comes."""
    a, b = (start_late(name) for name in "ab")
    assert meet(a, b)["state"] == "up"
    workers = workers_of(a) + workers_of(b)
    assert [home for sidecar in (a, b) for home in homes_of(sidecar)] == [""] * 4
    assert [staging_in(pid) for pid in workers] == [1] * 4
    reader, owner = start_gpu_workload(a, "reader", 0), start_gpu_workload(b, "owner", 1)
    spare = HostMemory(reader, "spare", SIZE)
    spare.register(("spare", 0, SIZE))
    leave()
    for sidecar in (a, b):
        wait_for(lambda: all(homes_of(sidecar)), 10, lambda: homes_of(sidecar))
    assert workers_of(a) + workers_of(b) == workers
    assert [staging_in(pid) for pid in workers] == [2] * 4
    into, out = GpuMemory(reader, "into", SIZE), GpuMemory(owner, "out", SIZE)
    into.register(("kv", MINE, LENGTH))
    out.register(("kv", THEIRS, LENGTH))
    for operation, there, there_at, here, here_at in (("read", out, THEIRS, into, MINE), ("write", into, MINE, out, THEIRS)):
        there.renew()
        body = {"workload": "reader", "op": operation, "local": ["kv"], "remote": ["b/owner/kv"], "ranges": [[0, 0, 0, 0, LENGTH]]}
        view = succeeded(a.ask("POST", "/v1/transfers?wait_ms=20000", body), "tcp")
        assert view["staged_bytes"] == LENGTH, view
        here.receives(here_at, there, there_at, LENGTH)
        into.check()
        out.check()
    assert staged_bytes(a) == [LENGTH, LENGTH]


def test_a_new_session_is_told(leave, start_late, start_gpu_workload):
    """One that sees the GPUs of both sides since then executes, where the other one, which does not, would take tcp."""
    b = start_late("b")
    assert homes_of(b) == ["", ""]
    leave()
    wait_for(lambda: all(homes_of(b)), 10, lambda: homes_of(b))
    a = Sides.seeing("0", lambda: start_late("a"))
    connect(a, b)
    connect(b, a)
    into = GpuMemory(Sides.seeing("0", lambda: start_gpu_workload(a, "reader", 0)), "into", SIZE)
    out = GpuMemory(start_gpu_workload(b, "owner", 1), "out", SIZE)
    into.register(("kv", MINE, LENGTH))
    out.register(("kv", THEIRS, LENGTH))
    body = {"workload": "reader", "op": "read", "local": ["kv"], "remote": ["b/owner/kv"], "ranges": [[0, 0, 0, 0, LENGTH]]}
    view = succeeded(a.ask("POST", "/v1/transfers?wait_ms=20000", body))
    assert view["executor"] == "peer", view
    into.receives(MINE, out, THEIRS, LENGTH)
    into.check()


def test_the_reason_says_what_to_do_where_nobody_asks_again(gpus, start_sidecar, start_gpu_workload, monkeypatch):
    """There was no GPU to ask for, and so no staging memory is taken. A worker that is started later sees one."""
    with monkeypatch.context() as environment:
        environment.setenv(VISIBLE[vendor()], "")
        a, b = (start_sidecar(name, workers=2, flags=TCP) for name in "ab")
    assert meet(a, b)["state"] == "up"
    assert [staging_in(pid) for pid in workers_of(a)] == [0, 0]
    assert "where it sees one now, restart it" in a.log
