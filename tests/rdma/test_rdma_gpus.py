"""Memory of GPUs where the RDMA devices take no dma-bufs, as soft-RoCE does not: other paths move it, and everybody is told why.

The GPUs are the fake drivers'. The way of the bytes with devices that do is tests/sidecar/transport/rdma/dma_buf_region_test.cc.
"""

import pytest

from rdma_scene import (DEVICE, MiB, assert_moved, fd_count, folder, meet, metric, needs_guest, new_memory,  # noqa: F401
                        pytest_generate_tests, reasons, resources, start_sidecar, start_workload, transfer)
from gpu_memories import GpuMemory
from gpu_workloads import gpus, start_gpu_workload, vendor
from test_peers_over_tcp import TCP

pytestmark = needs_guest
SIZE, OFFSET, LENGTH = 4 * MiB, MiB + 517, 2 * MiB + 4099
WHY = f"RDMA device {DEVICE} takes no dma-buf"
HANDED_OVER = {"nvidia": 0, "amd": 1}  # descriptors of an allocation, by which the workers map it


@pytest.fixture
def sides(gpus, start_sidecar, start_gpu_workload, start_workload, new_memory):
    """Sidecars a and b; "reader" of a has memory of a GPU, "owner" of b some too, and some of the host."""
    a, b = (start_sidecar(name, workers=1, flags=[*TCP, "--staging-bytes", str(16 * MiB)]) for name in "ab")
    meet(a, b)
    reader, owner = start_gpu_workload(a, "reader", 0), start_gpu_workload(b, "owner", 0)
    into, out = GpuMemory(reader, "into", SIZE), GpuMemory(owner, "out", SIZE)
    into.register(("kv", OFFSET, LENGTH))
    out.register(("kv", OFFSET, LENGTH))
    return a, b, into, out


def the_reason_is_told(sidecar, workload):
    device = sidecar.ask("GET", "/v1/status")[1]["rdma_devices"][0]
    assert not device["takes_dma_bufs"] and WHY in device["no_dma_buf_because"], device
    lease = sidecar.ask("GET", f"/v1/workloads/{workload}")[1]
    assert not lease["wants_dma_bufs"] and lease["fds_held"] == HANDED_OVER[vendor()], lease
    buffer = sidecar.ask("GET", f"/v1/buffers?workload={workload}")[1]["buffers"][0]
    assert WHY in reasons(buffer["paths"])["rdma"], buffer
    assert metric(sidecar, f'gantry_chunks{{device="{DEVICE}"}}') == 0


def nothing_is_left_of_registrations(sidecar, memory):
    def held():
        return fd_count(sidecar.process.pid), resources()

    def round_trip():
        memory.workload.do("unregister", "kv")
        memory.register(("kv", OFFSET, LENGTH))

    round_trip()
    before = held()
    for _ in range(5):
        round_trip()
    assert held() == before


@pytest.mark.both_vendors
def test_other_paths_move_the_bytes_and_everybody_is_told_why(sides):
    a, b, into, out = sides
    the_reason_is_told(a, "reader")
    the_reason_is_told(b, "owner")
    nothing_is_left_of_registrations(a, into)  # before anything is lent: that goes back 5 s later, and resources() counts it
    for require, path in ((), "bounce"), (("tcp",), "tcp"):
        view = assert_moved(transfer(a, "read", "kv", "b/owner/kv", [[0, 0, 0, 0, LENGTH]], require=require), path)
        assert WHY in reasons(view["paths"])["rdma"], view
        into.receives(OFFSET, out, OFFSET, LENGTH)
        into.check()
        out.renew()
    status, problem = transfer(a, "read", "kv", "b/owner/kv", [[0, 0, 0, 0, LENGTH]])
    assert (status, problem["code"]) == (409, "path_unavailable") and WHY in problem["detail"], problem
    # With memory of the host on one side the other one says why.
    for sidecar, memory in ((a, into), (b, out)):
        memory.workload.do("allocate_host", "arena", MiB)
        memory.workload.do("register_host", "arena", "host", 0, MiB)
        assert metric(sidecar, f'gantry_chunks{{device="{DEVICE}"}}') == 1
    for local, remote, begins in (("host", "kv", "the peer says: "), ("kv", "host", "RDMA devices do not have the local")):
        view = assert_moved(transfer(a, "read", local, f"b/owner/{remote}", [[0, 0, 0, 0, MiB]], require=()), "bounce")
        told = reasons(view["paths"])["rdma"]
        assert told.startswith(begins) and WHY in told, told
    assert_moved(transfer(a, "read", "host", "b/owner/host", [[0, 0, 0, 0, MiB]]))
