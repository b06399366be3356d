"""Workloads, copy workers and sidecars that are killed in the middle of a transfer.

Nobody hangs, what is reported as moved has moved, others go on, and the dead one's memory and descriptors are gone.
"""

import random
import signal
import threading
import time

import pytest

from bench_runs import processes_in
from workloads import (LARGE, MiB, Scene, TERMINAL, connect, ended, fd_count, gantry, metric, new_memory,
                       scene, send, start_workload, submit, totals_of, view_of, wait_for, workers_of)

GONE_SECONDS = 1.5  # "within about a second"


class Held:
    """What a sidecar holds for workloads; to be equal again when what came has gone."""

    def __init__(self, sidecar):
        self.totals = {key: totals_of(sidecar)[key] for key in ("buffers", "allocations", "mapped_bytes")}
        self.fds_held = metric(sidecar, "gantry_fds_held")
        self.mappings = metric(sidecar, "gantry_mappings")
        self.fds = [fd_count(pid) for pid in [sidecar.process.pid, *workers_of(sidecar)]]

    def is_that_of(self, before):
        """Connections of earlier requests may have been open then, and be closed by now."""
        ours, theirs = dict(vars(self)), dict(vars(before))
        fewer = all(now <= then for now, then in zip(ours.pop("fds"), theirs.pop("fds"), strict=True))
        return fewer and ours == theirs

    def __repr__(self):
        return repr(vars(self))


def is_back(sidecar, before):
    """Whether the sidecar holds what it held. Connections of later requests may take a moment to be closed."""
    wait_for(lambda: Held(sidecar).is_that_of(before), GONE_SECONDS, lambda: f"{before} (now {Held(sidecar)})")


@pytest.mark.smoke
def test_the_reading_workload_is_killed(scene):
    scene.everything_works()
    scene.reader.kill()
    wait_for(lambda: totals_of(scene.a)["buffers"] == 1 and metric(scene.a, "gantry_fds_held") == 1, GONE_SECONDS)
    before = Held(scene.a)
    scene.start_reader()
    scene.everything_works()
    transfer, workers = scene.hold()
    scene.reader.kill()
    send(workers, signal.SIGCONT)
    is_back(scene.a, before)
    status, view = scene.a.ask("GET", f"/v1/transfers/{transfer}?workload=reader")
    assert status == 404 or view["state"] in TERMINAL
    assert not scene.target.mapped_by(workers_of(scene.a))
    scene.others_still_work()
    scene.start_reader()
    scene.everything_works()


def test_the_owning_workload_is_killed(start_sidecar, start_workload, new_memory):
    scene = Scene(start_sidecar, start_workload, new_memory, LARGE, owner_flags=["--workload-end-ms", "10000"])
    scene.owner.kill()
    wait_for(lambda: totals_of(scene.b)["buffers"] == 1 and metric(scene.b, "gantry_fds_held") == 1, GONE_SECONDS)
    before = Held(scene.a), Held(scene.b)
    scene.start_owner()
    scene.everything_works()
    transfer, workers = scene.hold()
    scene.owner.kill()
    send(workers, signal.SIGCONT)
    view = view_of(scene.a, "reader", transfer, 5_000)
    # It had gantry's --workload-end-ms to end, and its pages are still there.
    assert view["state"] == "succeeded" and not scene.target.differs_from(scene.source)
    is_back(scene.b, before[1])
    is_back(scene.a, before[0])
    assert not scene.source.mapped_by(workers_of(scene.a) + workers_of(scene.b))
    scene.others_still_work()
    missing = 'gantry_access_errors_total{path="none",reason="unregistered"}'
    counted = metric(scene.a, missing)
    status, problem = scene.read()
    assert (status, problem["code"]) == (404, "unregistered")
    assert metric(scene.a, missing) == counted + 1
    scene.start_owner()
    scene.everything_works()


def test_the_owner_of_a_transfer_that_does_not_end_is_killed(scene):
    transfer, workers = scene.hold()
    scene.owner.kill()
    # The worker stays stopped: after --workload-end-ms the transfer is stopped, and then its worker killed.
    view = view_of(scene.a, "reader", transfer, 8_000)
    assert view["state"] == "failed" and view["error"]["code"] == "draining", view
    wait_for(lambda: ended(workers[0]), GONE_SECONDS)
    wait_for(lambda: totals_of(scene.b)["buffers"] == 1, GONE_SECONDS)
    assert not scene.source.mapped_by(workers_of(scene.a) + workers_of(scene.b))
    skip = {index * MiB for index in view["failed_items"]}
    assert skip and not scene.target.differs_from(scene.source, skip=skip)
    scene.start_owner()
    scene.everything_works()


@pytest.mark.parametrize("workers", [1, 2])
def test_a_copy_worker_is_killed_and_its_copies_are_repeated(start_sidecar, start_workload, new_memory, workers):
    scene = Scene(start_sidecar, start_workload, new_memory, LARGE, workers=workers)
    restarts = metric(scene.a, "gantry_worker_restarts_total")
    for _ in range(3):
        scene.target.clear()
        transfer, held = scene.hold()
        send(held[:1], signal.SIGKILL)
        send(held[1:], signal.SIGCONT)
        view = view_of(scene.a, "reader", transfer, 10_000)
        assert view["state"] == "succeeded" and view["bytes_moved"] == scene.size, view
        assert not scene.target.differs_from(scene.source)
        wait_for(lambda: len(workers_of(scene.a)) == workers, 10)
    assert metric(scene.a, "gantry_worker_restarts_total") == restarts + 3
    assert metric(scene.a, 'gantry_transfer_chunks_total{op="read",outcome="retried",path="shm"}') >= 3
    scene.everything_works()


def hold_the_next_worker(sidecar, old):
    """Stops the worker that takes the old one's place as soon as it is ready for copies. Its pid."""
    def worker():
        return sidecar.ask("GET", "/v1/status")[1]["workers"][0]

    pid = wait_for(lambda: worker()["pid"] not in (0, old) and worker()["pid"], 5, "another worker")
    for _ in range(20_000):
        send([pid], signal.SIGSTOP)
        if worker()["state"] == "ready":
            return pid
        send([pid], signal.SIGCONT)
        # Shorter than the pool takes from a worker's greeting to its first job, however fast the machine is.
        end = time.monotonic() + random.uniform(0, 0.0001)
        while time.monotonic() < end:
            pass
    raise AssertionError("the new worker does not become ready")


def hold_what_is_repeated(scene):
    """A transfer whose worker was killed, and the worker that has its copies now, stopped before it did one of them."""
    for _ in range(40):
        transfer, (first,) = scene.hold()
        moved = view_of(scene.a, "reader", transfer)["bytes_moved"]
        send([first], signal.SIGKILL)
        second = hold_the_next_worker(scene.a, first)
        time.sleep(0.05)
        view = view_of(scene.a, "reader", transfer)
        if view["state"] == "running" and view["bytes_moved"] == moved:
            return transfer, second
        send([second], signal.SIGCONT)
        assert view_of(scene.a, "reader", transfer, 5_000)["state"] == "succeeded"
    raise AssertionError("the second worker is always faster")


@pytest.mark.alone  # it stops processes in the middle of copies
def test_a_transfer_fails_with_worker_lost_when_its_copies_lose_two_workers(start_sidecar, start_workload, new_memory):
    scene = Scene(start_sidecar, start_workload, new_memory, LARGE, flags=["--worker-restart-ms-max", "50"])
    transfer, second = hold_what_is_repeated(scene)
    send([second], signal.SIGKILL)
    view = view_of(scene.a, "reader", transfer, 5_000)
    assert view["state"] == "failed" and view["error"]["code"] == "worker_lost", view
    failed = {index * MiB for index in view["failed_items"]}
    assert failed and view["bytes_moved"] + len(failed) * MiB >= scene.size
    assert not scene.target.differs_from(scene.source, skip=failed)
    wait_for(lambda: workers_of(scene.a), 10)
    scene.everything_works()


def test_the_initiators_sidecar_is_killed(scene):
    held_by_b = Held(scene.b)
    transfer, workers = scene.hold()
    answers = []
    waiting = threading.Thread(target=lambda: answers.append(outcome_of(
        lambda: view_of(scene.a, "reader", transfer, 20_000))))
    waiting.start()
    time.sleep(0.05)
    scene.a.kill()
    waiting.join(5)
    assert answers == ["connection lost"]
    wait_for(lambda: all(map(ended, workers)), GONE_SECONDS, "the end of its workers")
    assert not processes_in(scene.a.run_dir)
    # The owner may delete at once: nothing of it is mapped there any more.
    start = time.monotonic()
    scene.owner.do("unregister", "kv", drain=5)
    assert time.monotonic() - start < GONE_SECONDS
    assert not scene.source.mapped_by(workers_of(scene.b))
    assert totals_of(scene.b)["buffers"] == 1 and len(Held(scene.b).fds) == len(held_by_b.fds)
    for workload in (scene.reader, scene.other):
        with pytest.raises(gantry.Error):
            workload.do("check", seconds=5)
    # Again, under the same names.
    scene.a.start()
    connect(scene.a, scene.b)
    scene.reader.kill()
    scene.other.kill()
    scene.start_reader()
    scene.owner.register(scene.source, ("kv", 0, scene.size))
    status, view = scene.read()
    assert (status, view["state"]) == (200, "succeeded") and not scene.target.differs_from(scene.source)


def outcome_of(ask):
    try:
        return ask()
    except (OSError, ConnectionError, AssertionError):
        return "connection lost"
    except Exception as error:  # http.client's own
        return "connection lost" if "Disconnected" in type(error).__name__ else repr(error)


def local_pair_works(scene):
    """A transfer within sidecar a."""
    status, view = submit(scene.a, "other", "read", "small", "reader/kv", MiB, 5_000)
    assert (status, view["state"]) == (200, "succeeded")
    assert not scene.others.differs_from(scene.target, length=MiB)


@pytest.mark.alone  # it stops processes in the middle of copies
def test_the_owners_sidecar_is_killed(scene):
    scene.everything_works()
    transfer, workers = scene.hold(deadline_ms=10_000)
    scene.b.kill()
    send(workers, signal.SIGCONT)
    view = view_of(scene.a, "reader", transfer, 10_000)
    assert view["state"] == "succeeded" or (view["state"], view["error"]["code"]) == ("failed", "peer_lost")
    skip = {index * MiB for index in view.get("failed_items", [])}
    assert not scene.target.differs_from(scene.source, skip=skip)
    wait_for(lambda: not scene.source.mapped_by(workers_of(scene.a)), GONE_SECONDS, "unmapping")
    wait_for(lambda: metric(scene.a, "gantry_mappings") == 2, GONE_SECONDS, "unmapping all but its own")
    local_pair_works(scene)
    start = time.monotonic()
    status, problem = scene.read(deadline_ms=1_000)
    assert status in (502, 503) and problem["code"] in ("peer_unavailable", "peer_lost"), problem
    assert time.monotonic() - start < 3
    with pytest.raises(gantry.Error):
        scene.owner.do("check", seconds=5)
    # It comes back with another generation and is found without being told.
    scene.b.start()
    scene.owner.kill()
    scene.neighbour.kill()
    scene.start_owner()
    wait_for(lambda: scene.a.ask("GET", "/v1/peers/b")[1]["state"] == "up", 8, "the reconnection")
    status, view = scene.read()
    assert (status, view["state"]) == (200, "succeeded") and not scene.target.differs_from(scene.source)


def test_the_owners_sidecar_is_killed_and_the_transfer_does_not_end(scene):
    transfer, workers = scene.hold(deadline_ms=60_000)
    scene.b.kill()
    # The worker stays stopped: the loss of the peer stops the transfer, and the worker is killed.
    view = view_of(scene.a, "reader", transfer, 8_000)
    assert (view["state"], view["error"]["code"]) == ("failed", "peer_lost"), view
    wait_for(lambda: workers_of(scene.a) not in ([], workers), 5, "another worker")
    assert not scene.source.mapped_by([pid for pid in workers + workers_of(scene.a) if not ended(pid)])
    local_pair_works(scene)


def test_both_sidecars_are_killed(scene):
    transfer, workers = scene.hold()
    everybody = workers + workers_of(scene.b)
    scene.a.kill()
    scene.b.kill()
    wait_for(lambda: all(map(ended, everybody)), GONE_SECONDS, "the end of their workers")
    for workload in (scene.reader, scene.owner, scene.other, scene.neighbour):
        with pytest.raises(gantry.Error):
            workload.do("move", "read", "kv" if workload in (scene.reader, scene.owner) else "small", "b/owner/kv",
                        ranges=[(0, 0, 0, 0, 1)], seconds=5)
        workload.kill()
    scene.a.start()
    scene.b.start()
    connect(scene.a, scene.b)
    scene.start_reader()
    scene.start_owner()
    assert scene.a.ask("GET", f"/v1/transfers/{transfer}?workload=reader")[0] == 404
    status, view = scene.read()
    assert (status, view["state"]) == (200, "succeeded") and not scene.target.differs_from(scene.source)
