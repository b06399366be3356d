"""A cache of tens of thousands of pieces of virtual GPU memory, each a descriptor: how many there may be, and what is said beyond."""

import random
import time

import pytest

from gpu_memories import succeeded
from gpu_pieces import PieceCommands
from gpu_workloads import REAL, gpus, start_gpu_workload
from workloads import BOTH, MiB, connect, gantry, metric, wait_for

PIECES = 20_000  # 40 GiB of pieces of 2 MiB, which the fake keeps in files with holes
PIECE = 2 * MiB
SEAMS, ACROSS = 200, 4096  # so many seams are looked at, and bytes around each
SPARE = 64  # descriptors that a limit leaves for others
SECONDS = 240

pytestmark = pytest.mark.skipif(REAL, reason="memory of the fake costs nothing while nobody touches it")


@pytest.fixture
def large_gpus(gpus, monkeypatch):
    monkeypatch.setenv("GANTRY_FAKE_GPU_MIB", str(64 << 10))


def limits_of(sidecar):
    return sidecar.ask("GET", "/v1/status")[1]["limits"]


def allocate(workload, pieces):
    workload.do("allocate_pieces", "kv", [PIECE] * pieces, seconds=SECONDS)


def register(workload, name, pieces):
    """A buffer over the first so many."""
    workload.do("register_gpu", "kv", (name, 0, PIECE * pieces, BOTH, 0), seconds=SECONDS)


@pytest.mark.timeout(SECONDS * 2)
def test_as_many_as_the_limits_allow_move(large_gpus, start_sidecar, start_gpu_workload, capsys):
    """Where the process may have so many descriptors all 20 000 do."""
    a, b = (start_sidecar(name, workers=1) for name in "ab")
    connect(a, b)
    # The fake's driver needs some of its own: for each piece one in the owner and in each worker.
    own = min(PIECES, limits_of(b)["fds_max"] - SPARE)
    shared = min(PIECES, limits_of(a)["peer_fds_max"] - SPARE)
    owner = start_gpu_workload(b, "owner", 0, PieceCommands)
    times = {}

    def timed(what, step):
        start = time.monotonic()
        step()
        times[what] = time.monotonic() - start

    timed("allocated", lambda: allocate(owner, own))
    timed("registered", lambda: register(owner, "all", own))
    register(owner, "shared", shared)
    assert b.ask("GET", "/v1/status")[1]["totals"]["allocations"] == own
    assert metric(b, "gantry_fds_held") >= own
    for sidecar, reader, remote, pieces in ((b, "beside", "owner/all", own), (a, "peer", "b/owner/shared", shared)):
        workload = start_gpu_workload(sidecar, reader, 1, PieceCommands)
        workload.do("allocate", "into", SEAMS * ACROSS)
        workload.do("register_gpu", "into", ("into", 0, SEAMS * ACROSS, BOTH, 0))
        seams = sorted(random.Random(pieces).sample(range(1, pieces), SEAMS - 1))
        places = [seam * PIECE - ACROSS // 2 for seam in seams] + [pieces * PIECE - ACROSS]  # and the very end
        data = [random.Random(place).randbytes(ACROSS) for place in places]
        for place, bytes_there in zip(places, data):
            owner.do("fill", "kv", place, bytes_there)
        body = {"workload": reader, "op": "read", "local": ["into"], "remote": [remote],
                "ranges": [[0, i * ACROSS, 0, place, ACROSS] for i, place in enumerate(places)]}
        timed(f"moved, {reader}", lambda: succeeded(sidecar.ask("POST", "/v1/transfers?wait_ms=25000", body)))
        assert workload.do("look", "into", 0, SEAMS * ACROSS) == b"".join(data), reader
    assert metric(a, 'gantry_peer_fds{state="mapped"}') == shared
    owner.kill()
    wait_for(lambda: metric(b, "gantry_fds_held") == 0 and metric(a, 'gantry_peer_fds{state="mapped"}') == 0, 60,
             "every descriptor to be closed")
    with capsys.disabled():
        print(f"\n{own} pieces, {shared} of them mapped by a peer: " + ", ".join(f"{what} in {s:.1f} s" for what, s in times.items()))


def test_more_than_a_workload_may_have_is_refused_with_the_way_out(large_gpus, start_sidecar, start_gpu_workload):
    sidecar = start_sidecar("a", workers=1, flags=["--fds-max", "100"])
    owner = start_gpu_workload(sidecar, "owner", 0, PieceCommands)
    allocate(owner, 101)
    register(owner, "fits", 100)
    with pytest.raises(gantry.Error) as caught:
        register(owner, "more", 101)
    error = caught.value
    assert error.code == "resource_exhausted" and "--fds-max" in f"{error}", error
    assert metric(sidecar, "gantry_fds_held") == 100


def test_more_than_peers_may_have_is_refused_with_the_way_out(large_gpus, start_sidecar, start_gpu_workload):
    a, b = start_sidecar("a", workers=1, flags=["--peer-fds-max", "100"]), start_sidecar("b", workers=1)
    connect(a, b)
    owner, reader = start_gpu_workload(b, "owner", 0, PieceCommands), start_gpu_workload(a, "reader", 1)
    allocate(owner, 101)
    register(owner, "fits", 100)
    register(owner, "more", 101)
    reader.do("allocate", "into", MiB)
    reader.do("register_gpu", "into", ("into", 0, MiB))

    def read(remote):
        body = {"workload": "reader", "op": "read", "local": ["into"], "remote": [remote], "ranges": [[0, 0, 0, 0, MiB]]}
        return a.ask("POST", "/v1/transfers?wait_ms=20000", body)

    status, problem = read("b/owner/more")
    assert (status, problem["code"]) == (429, "resource_exhausted"), problem
    assert "--peer-fds-max" in problem["hint"] and "limit of descriptors" in problem["hint"], problem
    succeeded(read("b/owner/fits"))
