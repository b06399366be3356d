"""GPU memory that the RDMA devices do not take, as soft-RoCE takes no dma-bufs: by RDMA nevertheless, through staging memory.

Most tests are those of such memory over tcp, with less of it. The GPUs are the fake drivers'.
"""

import signal

import pytest

from rdma_scene import (DEVICE, END_SECONDS, MiB, folder, metric, needs_guest, pytest_generate_tests, reasons,  # noqa: F401
                        start_sidecar, wait_for)
from gpu_memories import succeeded
from gpu_workloads import gpus, start_gpu_workload
from test_gpu_over_tcp import (GpuMemory, HostMemory, Sides, odd_ranges, sides_of, slices_of, staged_bytes,  # noqa: F401
                               test_a_byte_at_every_kind_of_place, test_host_and_gpu_memory_in_one_transfer,
                               test_pieces_of_virtual_memory)
from test_gpu_over_tcp_ends import end_of, nothing_is_left_for, targets
from workloads import send, workers_of

pytestmark = needs_guest
LENDING = ["--staging-bytes", str(16 * MiB)]
LENT = 4  # slices of 512 KiB, of the 16 that the peer has for requests
LENGTH = 6 * MiB + 4099
IDLE_SECONDS = 5  # then what was lent is given back
WHY = f"RDMA device {DEVICE} takes no dma-buf"


class BouncingSides(Sides):
    path = "bounce"

    def __init__(self, *arguments, length=LENGTH, **options):
        super().__init__(*arguments, **{"flags": LENDING, "length": length, "size": length + 4 * MiB, **options})

    def nothing_is_staged(self, seconds=IDLE_SECONDS + 5):
        super().nothing_is_staged(seconds)


@pytest.fixture
def start_sides(gpus, start_sidecar, start_gpu_workload):
    yield from sides_of(BouncingSides, start_sidecar, start_gpu_workload)


@pytest.mark.parametrize("gpus,into,out", [("nvidia", GpuMemory, GpuMemory), ("nvidia", GpuMemory, HostMemory),
                                           ("nvidia", HostMemory, GpuMemory), ("amd", GpuMemory, GpuMemory)],
                         ids=["nvidia-gpu-gpu", "nvidia-gpu-host", "nvidia-host-gpu", "amd-gpu-gpu"], indirect=["gpus"])
def test_more_bytes_than_are_lent(start_sides, into, out):
    """Reads and writes; who stages is told, and so is why the devices do not do it alone."""
    sides = start_sides(into=into, out=out)
    here, there = (LENGTH * (kind is GpuMemory) for kind in (into, out))
    for operation in ("read", "write"):
        before = [staged_bytes(sidecar) for sidecar in (sides.a, sides.b)]
        sides.into.renew()
        view = succeeded(sides.ask(operation, [(0, 0, LENGTH)]), sides.path)
        lent = slices_of(sides.b, "target")  # goes back IDLE_SECONDS later, however long comparing takes
        sides.moved(operation, [(0, 0, LENGTH)])
        assert view.get("staged_bytes", 0) == here, view
        assert WHY in reasons(view["paths"])["rdma"], view
        after = [staged_bytes(sidecar) for sidecar in (sides.a, sides.b)]
        moved = tuple(now - then for side in (0, 1) for now, then in zip(after[side], before[side]))
        assert moved == ((0, here, there, 0) if operation == "read" else (here, 0, 0, there))
        assert slices_of(sides.a, "initiator") == 0 and lent == LENT * (out is GpuMemory)
    why = "peer" if out is GpuMemory else "not_registered"
    assert metric(sides.a, f'gantry_path_fallbacks_total{{from="rdma",reason="{why}",to="bounce"}}') == 2
    assert metric(sides.a, 'gantry_path_selected_total{path="bounce"}') == 2
    sides.move("read", odd_ranges("read", 60, LENGTH // 2))
    status, problem = sides.ask("read", [(0, 0, 1)], require_path=["rdma"])
    assert (status, problem["code"]) == (409, "path_unavailable") and WHY in problem["detail"], problem


def test_a_peer_with_nothing_to_lend(start_sides):
    """Tcp has what it needs first. Every transfer says why it bounces no more."""
    sides = start_sides(flags=["--staging-bytes", str(8 * MiB)], length=MiB)
    sides.path = "tcp"
    view = sides.move("read", [(0, 0, MiB)])
    assert "too small for some of it to be lent to peers" in reasons(view["paths"])["bounce"], view


@pytest.mark.parametrize("gpus,operation", [("nvidia", "read"), ("nvidia", "write"), ("amd", "write")], indirect=["gpus"])
def test_workers_of_the_peer_that_stand_still(start_sides, operation):
    """Cancelled it is over in bounded time, nothing of it moves when they go on, and another one works."""
    sides = start_sides()
    workers = workers_of(sides.b)
    send(workers, signal.SIGSTOP)
    status, view = sides.ask(operation, [(0, 0, LENGTH)], wait_ms=300)
    assert status == 202, view
    sides.a.ask("DELETE", f"/v1/transfers/{view['id']}?workload=reader")
    assert end_of(sides, view["id"], END_SECONDS)["state"] == "cancelled"
    target = targets(sides, operation)
    target.data = bytearray(nothing_is_left_for(workers, target))
    sides.move(operation, [(0, 0, MiB)])


def test_a_peer_that_is_killed(start_sides):
    """While it copies: the transfer fails in bounded time, and nothing of it is left here."""
    sides = start_sides()
    send(workers_of(sides.b), signal.SIGSTOP)
    status, view = sides.ask("write", [(0, 0, LENGTH)], wait_ms=300)
    assert status == 202, view
    sides.b.kill()
    view = end_of(sides, view["id"], END_SECONDS)
    assert view["state"] == "failed" and view["error"]["code"].startswith("peer_"), view
    wait_for(lambda: slices_of(sides.a, "initiator") == 0, 5, "the slices to come back")


def test_an_initiator_that_is_killed(start_sides):
    """What it was lent goes back to its peer."""
    sides = start_sides()
    succeeded(sides.ask("write", [(0, 0, MiB)]), sides.path)
    assert slices_of(sides.b, "target") == LENT
    sides.a.kill()
    wait_for(lambda: slices_of(sides.b, "target") == 0, END_SECONDS, "what was lent to come back")


@pytest.mark.both_vendors
def test_a_target_that_is_unregistered(start_sides):
    """While a copy of it runs: that goes on, the removal waits for it, and the transfer fails."""
    sides = start_sides()
    workers = workers_of(sides.b)
    send(workers, signal.SIGSTOP)
    status, view = sides.ask("write", [(0, 0, LENGTH)], wait_ms=300)
    assert status == 202, view
    sides.owner.post("unregister", "kv", 10.0)
    wait_for(lambda: [buffer["state"] for buffer in sides.b.ask("GET", "/v1/buffers?workload=owner")[1]["buffers"]]
             == ["draining"], 5, "the removal to begin")
    send(workers, signal.SIGCONT)
    sides.owner.result()
    view = end_of(sides, view["id"], END_SECONDS)
    assert view["state"] == "failed", view
    assert view["error"]["code"] in ("draining", "unregistered", "stale_generation", "not_found", "peer_lost"), view
    found = sides.out.found()
    sides.nothing_is_staged()
    assert sides.out.found() == found
