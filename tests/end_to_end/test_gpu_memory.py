"""GPU memory between workloads of two sidecars: the bytes of a buffer and no others, by the ipc path."""

import os
import signal
from pathlib import Path

import pytest

from gpu_memories import allocate_again
from gpu_workloads import GPU_BYTES as SIZE, GpuPair, driver_library, gpus, start_gpu_workload
from workloads import MiB, ended, gantry, metric, submit, wait_for, workers_of

pytestmark = pytest.mark.both_vendors

KiB = 1 << 10


@pytest.fixture
def pair(gpus, start_sidecar, start_gpu_workload):
    return GpuPair(start_sidecar, start_gpu_workload)


@pytest.mark.parametrize("ordinals", [(0, 1), (0, 0)], ids=["two-gpus", "one-gpu"])
@pytest.mark.parametrize("operation", ["read", "write"])
def test_exactly_the_bytes_of_the_buffers_move(gpus, start_sidecar, start_gpu_workload, ordinals, operation):
    pair = GpuPair(start_sidecar, start_gpu_workload, ordinals)
    status, view = pair.move(operation)
    assert (status, view["state"], view["path"]) == (200, "succeeded", "ipc"), view
    pair.check(operation)
    reasons = {path["path"]: path["reason"] for path in view["paths"] if not path["available"]}
    assert "GPU memory" in reasons["shm"] or "not host memory" in reasons["shm"], reasons
    assert "tcp" in reasons


@pytest.mark.parametrize("size, offset", [(64, 512), (16 * KiB, 1536), (128 * KiB, 5 * MiB), (512 * KiB, 512), (4 * MiB, 2 * MiB),
                                          (1, 3), (4097, 12345)])
def test_buffers_of_a_caching_allocator(gpus, start_sidecar, start_gpu_workload, size, offset):
    pair = GpuPair(start_sidecar, start_gpu_workload, offset=offset, length=size, block_bytes=0)
    for operation in ("read", "write"):
        status, view = pair.move(operation)
        assert (status, view["state"]) == (200, "succeeded"), view
        pair.check(operation)


@pytest.mark.smoke
def test_blocks_by_id(pair):
    ids = [255, 0, 17, 3]
    body = {"workload": "reader", "op": "read", "local": ["into"], "remote": ["b/owner/out"],
            "local_blocks": ids, "remote_blocks": ids[::-1]}
    status, view = pair.a.ask("POST", "/v1/transfers?wait_ms=20000", body)
    assert (status, view["state"], view["path"]) == (200, "succeeded", "ipc"), view
    expected = bytearray(pair.data["into"])
    for mine, theirs in zip(ids, ids[::-1]):
        to, start = pair.offset + mine * 4096, pair.offset + theirs * 4096
        expected[to:to + 4096] = pair.data["out"][start:start + 4096]
    assert pair.reader.do("look", "into", 0, SIZE) == bytes(expected)


def test_two_views_of_one_allocation_are_mapped_once_and_one_outlives_the_other(pair):
    before = pair.b.ask("GET", "/v1/status")[1]["totals"]["allocations"]
    pair.owner.do("register_gpu", "out", ("second", 5 * MiB, MiB))
    assert pair.b.ask("GET", "/v1/status")[1]["totals"]["allocations"] == before
    pair.owner.do("unregister", "out")
    status, view = submit(pair.a, "reader", "read", "into", "b/owner/second", MiB, 20_000)
    assert (status, view["state"]) == (200, "succeeded"), view
    got = pair.reader.do("look", "into", pair.offset, MiB)
    assert got == pair.data["out"][5 * MiB:6 * MiB]


def test_memory_that_was_freed_and_allocated_again_is_refused_until_it_is_registered_anew(pair):
    old = pair.reader.do("allocate", "again", SIZE)
    pair.reader.do("register_gpu", "again", ("again", 0, MiB, ("remote_read",), 4096))
    pair.reader.do("free", "again")
    allocate_again(pair.reader, "again", SIZE, old)
    with pytest.raises(gantry.Error) as caught:
        pair.reader.do("move", "read", "again", "b/owner/out", local_blocks=[0], remote_blocks=[0])
    assert caught.value.code == "stale_generation", caught.value
    pair.reader.do("unregister", "again")
    pair.reader.do("register_gpu", "again", ("again", 0, MiB, ("remote_read",), 4096))
    moved = pair.reader.do("move", "read", "again", "b/owner/out", wait=20, local_blocks=[0], remote_blocks=[0])
    assert moved == ("succeeded", None)


def test_a_worker_with_the_owners_pid_makes_room_for_another(gpus, start_sidecar, start_gpu_workload):
    """Each in a PID namespace of its own, both may be number 1: the driver refuses what has the owner's number."""
    sidecar = start_sidecar("a", workers=2)
    workload = start_gpu_workload(sidecar, "owner", 0)
    workload.do("allocate", "kv", SIZE)
    before = workers_of(sidecar)
    token = {"kind": "gpu", "size": SIZE, "device_uuid": workload.do("device_uuid"), "buffer_id": 4711, "pid": before[0],
             "ipc_handle": workload.do("ipc_handle", "kv")}
    body = {"workload": "owner", "allocations": [token],
            "buffers": [{"name": "kv", "pieces": [{"allocation": 0, "offset": 512, "length": MiB}]}]}
    workload.do("request", "POST", "/v1/buffers", body)
    after = wait_for(lambda: (now := workers_of(sidecar)) and len(now) == 2 and now, 20, "both workers")
    assert before[0] not in after and before[1] in after
    assert "has the PID of an owner of GPU memory" in sidecar.log
    assert metric(sidecar, "gantry_worker_pid_conflicts_total") == 1


def test_the_sidecar_itself_never_loads_the_gpus_driver(pair):
    assert pair.move("read")[1]["state"] == "succeeded"
    for sidecar in (pair.a, pair.b):
        pids = [sidecar.process.pid, *workers_of(sidecar)]
        name = Path(driver_library()).name.split(".so")[0] + ".so"  # a real one is mapped by its whole version
        loaded = [name in open(f"/proc/{pid}/maps").read() for pid in pids]
        assert loaded == [False, True, True]


def test_memory_of_a_dead_owner_is_unmapped(pair):
    assert pair.move("read")[1]["state"] == "succeeded"
    assert [metric(sidecar, "gantry_ipc_mapped_bytes") for sidecar in (pair.a, pair.b)] == [2 * SIZE, SIZE]
    pair.owner.kill()
    wait_for(lambda: ended(pair.owner.pid), 5, "the owner's end")
    for sidecar, left in ((pair.a, 1), (pair.b, 0)):
        def mappings():
            return [worker["mappings"] for worker in sidecar.ask("GET", "/v1/status")[1]["workers"]]

        wait_for(lambda: mappings() == [left, left], 5, lambda: f"{sidecar.name} to unmap what is gone: {mappings()}")
        wait_for(lambda: metric(sidecar, "gantry_ipc_mapped_bytes") == left * SIZE, 5, "the metric to say so")


def test_memory_of_a_deleted_peer_is_unmapped(pair):
    pair.owner.do("register_gpu", "out", ("second", 5 * MiB, MiB, ("remote_read",)))  # the same memory, mapped for reading
    for buffer in ("out", "second"):
        status, view = submit(pair.a, "reader", "read", "into", f"b/owner/{buffer}", MiB, 20_000)
        assert (status, view["state"]) == (200, "succeeded"), view
    assert metric(pair.a, "gantry_ipc_mapped_bytes") == 2 * SIZE
    for pid in workers_of(pair.a)[:1]:
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: metric(pair.a, "gantry_worker_restarts_total") == 1 and metric(pair.a, 'gantry_workers{state="ready"}') == 2,
             20, "another worker")
    assert metric(pair.a, "gantry_ipc_mapped_bytes") == 2 * SIZE, "whoever maps it"
    assert pair.a.ask("DELETE", "/v1/peers/b")[0] == 204
    wait_for(lambda: metric(pair.a, "gantry_ipc_mapped_bytes") == SIZE, 5, "the peer's memory to be unmapped")


def test_wrong_sizes_and_unknown_gpus_are_refused(pair):
    known = {"kind": "gpu", "size": SIZE, "device_uuid": pair.owner.do("device_uuid"), "buffer_id": 4711,
             "pid": pair.owner.pid, "ipc_handle": pair.owner.do("ipc_handle", "out")}
    cases = [({"size": SIZE // 2}, "fd_too_short"), ({"size": SIZE * 2}, "fd_too_short"),
             ({"device_uuid": "GPU-00000000-0000-0000-0000-000000000000"}, "path_unavailable"),
             ({"ipc_handle": "A" * 86 + "=="}, "device_error"), ({"ipc_handle": "AA=="}, "invalid_argument"),
             ({"buffer_id": 0}, "invalid_argument"), ({"pid": 0}, "invalid_argument"),
             ({"kind": "host"}, "not_exportable"), ({"ipc_handle": None}, "not_exportable")]
    for change, code in cases:
        allocation = {key: value for key, value in (known | change).items() if value is not None}
        body = {"workload": "owner", "allocations": [allocation],
                "buffers": [{"name": "other", "pieces": [{"allocation": 0, "offset": 0, "length": 4096}]}]}
        with pytest.raises(gantry.Error) as caught:
            pair.owner.do("request", "POST", "/v1/buffers", body)
        assert caught.value.code == code, (change, caught.value)
