"""Memory of AMD GPUs by handles: which of them are one allocation, how far they reach, and what attaching beside others does. Over the
fakes, which can be told to make another handle each time and to map wrong memory for whoever attaches beside another process."""

import os

import pytest

from gpu_driver import Tensor
from gpu_workloads import REAL, GpuPair, gpus, start_gpu_workload
from test_gpu_amd import AmdCommands, start_amd, rocm
from test_namespaces import LENGTH, OFFSET, WHY_NOT, Isolated, containers
from test_peers_over_tcp import TCP
from workloads import BOTH, MiB, connect, gantry, metric, submit, totals_of

pytestmark = pytest.mark.skipif(REAL, reason="of the fakes")
SIZE = 8 * MiB
BY_HANDLES, BY_DESCRIPTORS = (pytest.mark.parametrize("rocm", [release], indirect=True) for release in (5, 7))
OVER_SOCKETS_OR_NOT = pytest.mark.parametrize("legacy", ["0", "1"], ids=["over-sockets", "of-the-kernel"])
in_namespaces = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "-")


class TwiceCommands(AmdCommands):
    """A process that is a second workload, too, perhaps of another sidecar."""

    def enlist_again(self, run_dir, name, allocation, buffer, offset, length):
        self.second = gantry.Client(run_dir, name)
        tensor = Tensor(self.allocations[allocation] + offset, length)
        self.second_buffers = self.second.register_many([gantry.BufferSpec(buffer, tensor, BOTH)])  # as long as somebody has them


@pytest.fixture
def handles_differ(rocm, monkeypatch):
    monkeypatch.setenv("GANTRY_FAKE_GPU_FAIL", "handles_vary=1")


def raw(workload, allocation, base, **changes):
    """As a connector without the client library states it, with a handle of its own."""
    said = {"kind": "gpu", "size": SIZE, "device_uuid": workload.do("device_uuid"), "buffer_id": 4711, "pid": workload.pid,
            "ipc_handle": workload.do("ipc_handle", allocation)} | changes
    return said | {"base": base} if base else said


def register(workload, allocation, name, offset, length):
    body = {"workload": workload.name, "allocations": [allocation],
            "buffers": [{"name": name, "access": list(BOTH), "pieces": [{"allocation": 0, "offset": offset, "length": length}]}]}
    return workload.do("request", "POST", "/v1/buffers", body)


def overlaps(sidecar, workload, local, remote):
    """Where the first bytes of the one are the last of the other."""
    status, problem = submit(sidecar, workload, "read", local, remote, MiB, 10_000)
    assert (status, problem.get("code")) == (400, "overlap"), problem
    return True


@BY_HANDLES
def test_an_allocation_whose_handles_differ_is_mapped_once(rocm, handles_differ, start_sidecar, start_amd):
    """The client asks for one, once; whoever registers without it states where the allocation begins."""
    sidecar = start_sidecar("a", workers=2)
    workload = start_amd(sidecar, "owner", 0)
    base = workload.do("allocate", "kv", SIZE)
    for index in range(3):
        workload.do("register_gpu", "kv", (f"view{index}", 512 + index * MiB, MiB))
    assert totals_of(sidecar)["allocations"] == 1 and metric(sidecar, "gantry_ipc_mapped_bytes") == SIZE
    for index in range(3):
        workload.do("unregister", f"view{index}")
    first, second = raw(workload, "kv", base), raw(workload, "kv", base)
    assert first["ipc_handle"] != second["ipc_handle"]
    register(workload, first, "kv", 0, MiB)
    register(workload, second, "across", MiB // 2, MiB)
    register(workload, second, "beside", 2 * MiB, MiB)
    assert totals_of(sidecar)["allocations"] == 1 and metric(sidecar, "gantry_ipc_mapped_bytes") == SIZE
    assert overlaps(sidecar, "owner", "kv", "owner/across") and overlaps(sidecar, "owner", "across", "owner/kv")
    assert submit(sidecar, "owner", "read", "kv", "owner/beside", MiB, 10_000)[1]["path"] == "ipc"


@BY_HANDLES
def test_what_contradicts_an_earlier_registration_is_refused(rocm, handles_differ, start_sidecar, start_amd):
    """One id of two addresses, and one of two handles when no address says that both are of one allocation."""
    workload = start_amd(start_sidecar("a", workers=2), "owner", 0)
    base = workload.do("allocate", "kv", SIZE)
    register(workload, raw(workload, "kv", base), "kv", 0, MiB)
    for allocation, field in ((raw(workload, "kv", base + SIZE), "buffer_id"), (raw(workload, "kv", None), "ipc_handle")):
        with pytest.raises(gantry.Error) as caught:
            register(workload, allocation, "again", 0, MiB)
        assert caught.value.code == "conflict", caught.value
    assert "state `base`" in str(caught.value)


@BY_HANDLES
def test_nobody_claims_the_memory_of_another_process(rocm, handles_differ, start_sidecar, start_amd):
    """Who says of its own memory all that another said: it is mapped for itself, and is what moves."""
    sidecar = start_sidecar("a", workers=2)
    owner, other = (start_amd(sidecar, name, 0) for name in ("owner", "other"))
    base = owner.do("allocate", "kv", SIZE)
    other.do("allocate", "mine", SIZE)
    theirs, mine = os.urandom(SIZE), os.urandom(SIZE)
    owner.do("fill", "kv", 0, theirs)
    other.do("fill", "mine", 0, mine)
    register(owner, raw(owner, "kv", base), "kv", 0, MiB)
    claim = {key: value for key, value in raw(owner, "kv", base).items() if key != "ipc_handle"}
    register(other, claim | {"ipc_handle": other.do("ipc_handle", "mine")}, "kv", 0, MiB)
    assert metric(sidecar, "gantry_ipc_mapped_bytes") == 2 * SIZE
    status, view = submit(sidecar, "owner", "read", "kv", "other/kv", MiB, 10_000)
    assert (status, view.get("state")) == (200, "succeeded"), view
    assert owner.do("look", "kv", 0, SIZE) == mine[:MiB] + theirs[MiB:]


@pytest.mark.parametrize("rocm, sidecars", [(5, 1), (7, 1), (7, 2)], indirect=["rocm"],
                         ids=["by-handles", "by-descriptors", "of-two-sidecars"])
def test_a_process_that_is_two_workloads_overlaps_itself(rocm, handles_differ, start_sidecar, start_gpu_workload, sidecars):
    names = "ab"[:sidecars]
    one, other = ([start_sidecar(name, workers=2) for name in names] * 2)[:2]
    if sidecars == 2:
        connect(one, other)
    workload = start_gpu_workload(one, "owner", 0, TwiceCommands)
    workload.do("allocate", "kv", SIZE)
    workload.do("register_gpu", "kv", ("kv", 0, MiB))
    workload.do("enlist_again", str(other.run_dir), "again", "kv", "across", MiB // 2, MiB)
    remote = "again/across" if sidecars == 1 else "b/again/across"
    assert overlaps(one, "owner", "kv", remote)
    assert metric(one, "gantry_ipc_mapped_bytes") == SIZE, "of one allocation, mapped for two"


@pytest.mark.parametrize("rocm", [5, 7], indirect=True)
def test_workers_attach_one_after_another(rocm, start_sidecar, start_amd, monkeypatch):
    """Whoever attaches while another process does has memory that is nobody's: at the owner's sidecar and at its peer."""
    monkeypatch.setenv("GANTRY_FAKE_GPU_FAIL", "attaches_beside_others_are_wrong=1")
    sidecar = start_sidecar("lone", workers=4)
    workload = start_amd(sidecar, "owner", 0)
    for name in ("first", "second"):
        workload.do("allocate", name, MiB)
        workload.do("fill", name, 0, os.urandom(MiB))
        assert workload.do("verify", name, MiB) is None
    pair = GpuPair(start_sidecar, start_amd, flags=TCP)
    for _ in range(4):  # by whichever worker
        for operation in ("read", "write"):
            status, view = pair.move(operation)
            assert (status, view["state"]) == (200, "succeeded"), view
            pair.check(operation)


@BY_HANDLES
def test_a_handle_is_not_tried_in_another_pod(rocm, start_sidecar, start_amd):
    """The next path is taken, and the reason told; whoever insists is refused by either side."""
    pair = GpuPair(start_sidecar, start_amd, flags=TCP)
    connect(pair.b, pair.a)
    for operation in ("read", "write"):
        status, view = pair.move(operation)
        assert (status, view["state"], view["path"]) == (200, "succeeded", "tcp"), view
        pair.check(operation)
        reason = {path["path"]: path.get("reason") for path in view["paths"]}["ipc"]
        assert "within its owner's pod alone" in reason, view
    for executor in ("self", "peer"):
        _, view = pair.move("read", require_path=["ipc"], executor=executor)
        error = view.get("error", view)
        assert error["code"] == "path_unavailable" and "within its owner's pod alone" in error["detail"], view
    assert [metric(sidecar, "gantry_ipc_mapped_bytes") for sidecar in (pair.a, pair.b)] == [SIZE, SIZE]


@in_namespaces
@BY_HANDLES
@OVER_SOCKETS_OR_NOT
def test_handles_within_a_pod(rocm, containers, monkeypatch, legacy):
    """Whose containers share the network alone: each sidecar opens those of its own workload, whatever is behind them."""
    monkeypatch.setenv("HSA_ENABLE_IPC_MODE_LEGACY", legacy)
    pods = containers(Isolated, 0, 1, pods=True)
    pods.register()
    more = os.urandom(len(pods.data["into"]))
    pods.reader.do("prepare", 0, "more", more)
    status, view = submit(pods.a, "reader", "read", "into", "reader/more", LENGTH, 10_000)
    assert (status, view.get("state"), view.get("path")) == (200, "succeeded", "ipc"), view
    place = slice(OFFSET, OFFSET + LENGTH)
    wanted = pods.data["into"][:OFFSET] + more[place] + pods.data["into"][place.stop:]
    assert pods.reader.do("contents", "into") == wanted and pods.reader.do("contents", "more") == more


@in_namespaces
@BY_HANDLES
@OVER_SOCKETS_OR_NOT
def test_handles_between_pods(rocm, containers, monkeypatch, legacy):
    """Refused before the driver is asked, which might find another process of the number: also where it would have opened them."""
    monkeypatch.setenv("HSA_ENABLE_IPC_MODE_LEGACY", legacy)
    pods = containers(Isolated, 0, 1, pods=True)
    pods.register()
    for operation in ("read", "write"):
        status, problem = submit(pods.a, "reader", operation, "into", "b/owner/out", LENGTH, 10_000)
        assert (status, problem["code"]) == (409, "path_unavailable"), problem
        assert "within its owner's pod alone" in problem["detail"], problem
    for name, (workload, _) in pods.holders.items():
        assert workload.do("contents", name) == pods.data[name]
