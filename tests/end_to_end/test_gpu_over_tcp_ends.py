"""Transfers of GPU memory over TCP that do not come to their end: cancelled, too late, cut off, with workers that stand still or
die. What is said to be over moves no byte any more, and the staging memory is free again."""

import os
import signal
import time

import pytest

from gpu_workloads import dying_workers, gpus, start_gpu_workload
from test_gpu_over_tcp import start_sides, staged_slices
from workloads import MiB, TERMINAL, resume, send, view_of, wait_for, workers_of

pytestmark = pytest.mark.both_vendors

LENGTH = 16 * MiB
LEASE_SECONDS = 3.25  # of a write, with its margin
QUIESCE_SECONDS = 2  # --quiesce-ms-max
SLACK_SECONDS = 2

EITHER_WAY = pytest.mark.parametrize("operation", ["read", "write"])
EITHER_SIDE = pytest.mark.parametrize("side", ["initiator", "target"])


def side_of(sides, side):
    return sides.a if side == "initiator" else sides.b


def end_of(sides, transfer, seconds):
    return wait_for(lambda: (view := view_of(sides.a, "reader", transfer))["state"] in TERMINAL and view, seconds,
                    lambda: f"the end of {view_of(sides.a, 'reader', transfer)}")


def is_quiet(sides, target):
    """Of what a transfer that is over did to its target, nothing is left to come."""
    found = target.found()
    for sidecar in (sides.a, sides.b):
        wait_for(lambda: len(workers_of(sidecar)) == 2, 20, "both workers")
    time.sleep(0.5)
    assert target.found() == found
    # Every byte is as it was or as it should become, and none beside the buffer has changed.
    source, begin_target, begin_source = (sides.out, 3 * MiB + 517, MiB + 1031) if target is sides.into else \
        (sides.into, MiB + 1031, 3 * MiB + 517)
    wanted = source.data[begin_source:begin_source + LENGTH]
    assert found[:begin_target] == target.data[:begin_target]
    assert found[begin_target + LENGTH:] == target.data[begin_target + LENGTH:]
    before, after = target.data[begin_target:begin_target + LENGTH], found[begin_target:begin_target + LENGTH]
    for start in range(0, LENGTH, 4096):
        part = slice(start, start + 4096)
        if after[part] not in (before[part], wanted[part]):
            assert all(now in (then, new) for now, then, new in zip(after[part], before[part], wanted[part]))
    target.data = bytearray(found)


def targets(sides, operation):
    return sides.into if operation == "read" else sides.out


def nothing_is_left_for(workers, target):
    """Who stood still goes on, after the transfer's end, and moves nothing of it any more. What the target has."""
    found = target.found()
    resume(workers)
    time.sleep(0.5)
    assert target.found() == found
    return found


def goes_on(sides):
    """Both ways, as before."""
    for operation in ("read", "write"):
        sides.move(operation, [(0, 0, MiB)])


@pytest.mark.amd_runs(side="target", how="expired")
@EITHER_WAY
@EITHER_SIDE
@pytest.mark.parametrize("how", ["cancelled", "expired"])
def test_workers_that_stand_still(start_sides, operation, side, how):
    """The transfer is over in time, and when they would go on later nothing of it is left: what they held was ended by force."""
    sides = start_sides(length=LENGTH)
    workers = workers_of(side_of(sides, side))
    send(workers, signal.SIGSTOP)
    fields = {"deadline_ms": 700} if how == "expired" else {}
    begun = time.monotonic()
    status, view = sides.ask(operation, [(0, 0, LENGTH)], wait_ms=300, **fields)
    assert status == 202, view
    if how == "cancelled":
        sides.a.ask("DELETE", f"/v1/transfers/{view['id']}?workload=reader")
    view = end_of(sides, view["id"], 1 + LEASE_SECONDS + QUIESCE_SECONDS + SLACK_SECONDS - (time.monotonic() - begun))
    assert view["state"] == how, view
    target = targets(sides, operation)
    nothing_is_left_for(workers, target)
    sides.nothing_is_staged()
    is_quiet(sides, target)
    goes_on(sides)


@pytest.mark.amd_runs(side="target")
@EITHER_WAY
@EITHER_SIDE
def test_workers_that_die(start_sides, operation, side):
    """Again and again, while much is moved: what they copied is copied by others."""
    sides = start_sides(length=LENGTH)
    succeeded = 0
    with dying_workers(side_of(sides, side), 7):
        until = time.monotonic() + 3
        while time.monotonic() < until:
            status, view = sides.ask(operation, [(0, 0, LENGTH)])
            if status == 500:  # no worker lived long enough to map the memory: refused
                assert view["code"] == "worker_lost", view
                continue
            assert status == 200 and (view["state"] == "succeeded" or "worker" in view["error"]["detail"]
                                      or view["error"]["code"] in ("worker_lost", "path_unavailable")), view
            succeeded += view["state"] == "succeeded"
    assert succeeded > 0
    sides.nothing_is_staged()
    sides.move(operation, [(0, 0, LENGTH)])


@pytest.mark.amd_runs(side="target")
@EITHER_WAY
@EITHER_SIDE
def test_a_sidecar_that_is_killed(start_sides, operation, side):
    """The other one's transfer fails, or is forgotten, and its staging is free."""
    sides = start_sides(length=LENGTH)
    workers = workers_of(sides.b)  # so that there is a middle
    send(workers, signal.SIGSTOP)
    status, view = sides.ask(operation, [(0, 0, LENGTH)], wait_ms=300)
    assert status == 202, view
    side_of(sides, side).kill()
    if side == "target":
        view = end_of(sides, view["id"], LEASE_SECONDS + QUIESCE_SECONDS + SLACK_SECONDS)
        assert view["state"] == "failed" and view["error"]["code"].startswith("peer_"), view
        left = sides.a
    else:
        resume(workers)
        left = sides.b
    wait_for(lambda: staged_slices(left) == 0, LEASE_SECONDS + 5, lambda: f"{staged_slices(left)} slices to come back")


@EITHER_WAY
def test_a_target_that_is_unregistered(start_sides, operation):
    """While a copy of it runs: the removal waits for that, and the transfer ends."""
    sides = start_sides(length=LENGTH)
    workers = workers_of(sides.b)
    send(workers, signal.SIGSTOP)
    status, view = sides.ask(operation, [(0, 0, LENGTH)], wait_ms=300)
    assert status == 202, view
    sides.owner.post("unregister", "kv", 10.0)

    def states():
        return [buffer["state"] for buffer in sides.b.ask("GET", "/v1/buffers?workload=owner")[1]["buffers"]]
    wait_for(lambda: states() == ["draining"], 10, lambda: f"the removal to begin: {states()}")
    time.sleep(0.2)
    assert states() == ["draining"]  # it is in use
    send(workers, signal.SIGCONT)
    sides.owner.result()
    view = end_of(sides, view["id"], LEASE_SECONDS + QUIESCE_SECONDS + SLACK_SECONDS)
    assert view["state"] == "failed", view
    assert view["error"]["code"] in ("draining", "unregistered", "stale_generation", "not_found", "peer_lost"), view
    found = sides.out.found()
    sides.nothing_is_staged()
    time.sleep(0.3)
    assert sides.out.found() == found
