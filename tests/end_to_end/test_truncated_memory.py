"""Files that are truncated under those who use them: their transfers fail. The sidecar stays, and so do the transfers of others."""

import os
import signal
import threading
import time

import pytest

from gpu_workloads import gpus, start_gpu_workload  # noqa: F401
from handoff import RawWorkload
from python_client_parts import MIB, gantry
from shared_segments import BOTH, SIZE, UNSEALED, make_world, new_segment  # noqa: F401
from workloads import wait_for, workers_of


def fails_in_the_end(world, operation, local, remote, code="fd_too_short"):
    """Moves again and again until it fails; others move meanwhile, and none of them fails."""
    failed, ends = [], time.monotonic() + 20
    while not failed and time.monotonic() < ends:
        try:
            world.move(operation, local, remote)
        except gantry.Error as error:
            failed.append(error)
    assert failed, "no transfer noticed"
    assert failed[0].code == code and "unsealed" in str(failed[0]) + failed[0].hint, failed[0]


@pytest.mark.parametrize("path", ["shm", "tcp", "tls"])
@pytest.mark.parametrize("left", [0, SIZE // 2], ids=["nothing", "half"])
@pytest.mark.parametrize("operation, side", [("read", "owner"), ("write", "owner"), ("read", "peer"), ("write", "peer")])
def test_truncation_fails_transfers_and_ends_nothing(make_world, new_segment, path, left, operation, side):
    world, segment = make_world(path), new_segment()
    if side == "owner":
        world.share(segment)
        local, remote = world.local, "k"
    else:
        local, remote = world.share(segment, world.peer), "sealed"
    world.move(operation, local, remote)
    stop, wrong = threading.Event(), []

    def others():
        buffer = world.peer.register("others", world.peer.arena(MIB).view(0, MIB), access=BOTH)
        while not stop.is_set():
            try:
                world.move("read", buffer, "sealed", length=MIB)
            except gantry.Error as error:
                wrong.append(error)
                return

    beside = threading.Thread(target=others)
    cut = threading.Timer(0.05, segment.truncate, [left])
    beside.start()
    cut.start()
    try:
        fails_in_the_end(world, operation, local, remote)
    finally:
        cut.join()
        stop.set()
        beside.join()
    assert not wrong, wrong[0]
    world.nothing_ended()
    world.others_move()
    segment.truncate(SIZE)
    world.move(operation, local, remote)  # the file has its length again
    world.nothing_ended()


@pytest.mark.parametrize("path", ["shm", "tcp", "tls"])
def test_a_hole_is_read_as_zeros_and_written_to(make_world, new_segment, path):
    world, segment = make_world(path), new_segment()
    world.share(segment)
    segment.punch(0, SIZE // 2)
    world.move("read", world.local, "k")
    assert world.sealed["peer"][:SIZE] == bytes(SIZE // 2) + segment.content[SIZE // 2:]
    segment.punch(0, SIZE)
    world.sealed["peer"][:SIZE] = segment.content
    world.move("write", world.local, "k")
    assert bytes(segment.view) == segment.content
    world.nothing_ended()


def test_a_counter_of_a_fence_is_not_read_in_a_file_that_can_shrink(make_world, new_segment):
    world, segment = make_world("shm"), new_segment(size=MIB)
    buffer = world.peer.register("counter", segment.view, adopt=True)
    fence = {"type": "timeline", "buffer": buffer.name, "offset": 0, "value": 1}
    body = {"id": "t", "workload": "peer", "op": "read", "local": ["sealed"], "remote": ["b/owner/sealed"],
            "ranges": [[0, 0, 0, 0, 4096]], "fence": fence}
    status, problem = world.a.ask("POST", "/v1/transfers?wait_ms=1000", body)
    assert status >= 400 and "can shrink" in problem["detail"], problem
    segment.truncate(0)
    world.nothing_ended()


def test_a_truncated_file_fails_its_verification(make_world, new_segment):
    world, segment = make_world("shm"), new_segment(size=MIB)
    raw = RawWorkload(world.b, "raw")
    (token,) = raw.hand_over(segment.library._fd)
    stop = threading.Event()

    def flicker():
        while not stop.is_set():
            segment.truncate(0)
            segment.truncate(MIB)

    thread = threading.Thread(target=flicker)
    thread.start()
    try:
        for i in range(30):
            raw.register(token, MIB, name=f"k{i}", verify=[{"offset": MIB - 8, "nonce": "AAAAAAAAAAA="}])
    finally:
        stop.set()
        thread.join()
    raw.close()
    world.nothing_ended()


@pytest.mark.parametrize("path", ["shm", "tcp", "tls"])
@pytest.mark.parametrize("operation, side", [("read", "owner"), ("write", "owner"), ("read", "peer"), ("write", "peer")])
@pytest.mark.parametrize("left", [SIZE - 1, SIZE - MIB - 4095], ids=["one_byte_less", "some_of_a_page"])
def test_a_cut_within_a_page_is_no_success(make_world, new_segment, path, operation, side, left):
    """There the kernel reads zeros and takes writes, without a signal."""
    world, segment = make_world(path), new_segment()
    local, remote = (world.local, "k") if side == "owner" else (world.share(segment, world.peer), "sealed")
    if side == "owner":
        world.share(segment)
    world.move(operation, local, remote, length=4096)
    segment.truncate(left)
    with pytest.raises(gantry.Error) as caught:
        world.move(operation, local, remote)
    assert caught.value.code == "fd_too_short", caught.value
    segment.truncate(SIZE)
    world.move(operation, local, remote)
    world.nothing_ended()


@pytest.mark.parametrize("path", ["shm", "tcp"])
def test_a_worker_that_starts_while_a_file_is_short_has_it_when_it_is_longer(make_world, new_segment, path):
    world, segment = make_world(path), new_segment()
    world.share(segment)
    world.move("read", world.local, "k")
    segment.truncate(4096)
    before = {sidecar: workers_of(sidecar) for sidecar in (world.a, world.b)}
    for sidecar, workers in before.items():
        for worker in workers:
            os.kill(worker, signal.SIGKILL)
        wait_for(lambda: len(workers_of(sidecar)) == 2 and not set(workers_of(sidecar)) & set(workers), 20, "new copy workers")
    wait_for(lambda: moves(world, "sealed"), 20, "transfers of others")
    segment.truncate(SIZE)
    for _ in range(10):  # by every worker
        world.move("read", world.local, "k")


def moves(world, remote):
    try:
        world.move("read", world.local, remote)
    except gantry.Error:
        return False
    return True


def test_a_file_that_is_short_when_a_peer_maps_it_fails_alone(make_world, new_segment):
    world, segment = make_world("shm"), new_segment()
    world.share(segment)
    segment.truncate(4096)
    with pytest.raises(gantry.Error) as caught:
        world.move("read", world.local, "k")
    assert caught.value.code == "fd_too_short", caught.value
    world.others_move()
    segment.truncate(SIZE)
    world.move("read", world.local, "k")
    world.nothing_ended()


def test_a_verified_registration_says_that_the_file_was_truncated(start_sidecar, new_segment):
    sidecar, segment = start_sidecar("a", flags=UNSEALED), new_segment(size=MIB)
    with gantry.Client(sidecar.run_dir, "owner") as client:
        first = client.register("first", segment.view, adopt=True)
        segment.truncate(0)
        with pytest.raises(gantry.Error) as caught:
            client.register("second", segment.view, verify=True)
        assert caught.value.code == "fd_too_short" and "truncate" in caught.value.hint, caught.value
        first.unregister()


def test_a_file_that_can_shrink_is_not_copied_beside_a_gpu(gpus, start_sidecar, start_gpu_workload, new_segment):
    """The GPU's driver would copy there, and nothing can end it half-way."""
    sidecar, segment = start_sidecar("a", workers=2, flags=UNSEALED), new_segment(size=4 * MIB)
    engine = start_gpu_workload(sidecar, "engine", 0)
    engine.do("allocate", "kv", 4 * MIB)
    engine.do("register_gpu", "kv", ("kv", 0, 4 * MIB, BOTH))

    def write(remote):
        body = {"workload": "engine", "op": "write", "local": ["kv"], "remote": [f"store/{remote}"], "ranges": [[0, 0, 0, 0, 4 * MIB]]}
        return sidecar.ask("POST", "/v1/transfers?wait_ms=20000", body)[1]

    with gantry.Client(sidecar.run_dir, "store") as store:
        arena = store.arena(4 * MIB)
        buffers = [store.register("k", segment.view, access=BOTH, adopt=True),
                   store.register("sealed", arena.view(0, 4 * MIB), access=BOTH)]
        workers = workers_of(sidecar)
        refused = write("k")
        assert refused["code"] == "path_unavailable" and "can shrink" in refused["detail"], refused
        assert write("sealed")["state"] == "succeeded" and workers_of(sidecar) == workers
        for buffer in buffers:
            buffer.unregister()
