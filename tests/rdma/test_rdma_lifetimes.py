"""Buffers that go, processes that are killed and limits that are reached while bytes move over RDMA."""

import shutil
import signal

from rdma_scene import (BIN_DIR, DEVICE, END_SECONDS, MiB, SLOW, TERMINAL, fd_count, folder, gantry, metric, new_memory, rdma_scene,
                        resources, send, settled, start_sidecar, start_workload, wait_for)

LARGE = 8 * MiB


def assert_moved_as_told(scene, view):
    """Every megabyte that is not told as failed has arrived."""
    assert view["state"] == "failed" and view["error"]["code"] and view["failed_items"], view
    assert not scene.target.differs_from(scene.source, skip={index * MiB for index in view["failed_items"]})


def test_a_buffer_goes_and_comes_back_while_others_read_it(rdma_scene):
    scene = rdma_scene(size=LARGE, a_flags=SLOW)
    transfer = scene.hold()
    scene.owner.do("suspend", drain=10.0)  # waits for what moves
    assert settled(scene, transfer)["state"] == "succeeded"
    assert metric(scene.b, f'gantry_chunks{{device="{DEVICE}"}}') == 0
    status, problem = scene.move()
    assert (status, problem["code"]) == (409, "draining"), problem
    scene.owner.do("resume")
    assert metric(scene.b, f'gantry_chunks{{device="{DEVICE}"}}') > 0
    scene.everything_works()
    # Taken back in the middle: who reads it is told, ends, and nothing of the memory moves any more.
    transfer = scene.hold()
    scene.owner.do("unregister", "kv", drain=10.0)
    assert resources()["mr"] == 1  # the reader's
    view = settled(scene, transfer)
    if view["state"] != "succeeded":
        assert_moved_as_told(scene, view)
    # Registered anew: what the reader knows of it is stale, which it finds out by itself.
    retried = 'gantry_transfer_retries_total{reason="stale_generation"}'
    scene.owner.register(scene.source, ("kv", 0, LARGE))
    scene.everything_works()
    scene.owner.do("unregister", "kv")
    scene.owner.register(scene.source, ("kv", 0, LARGE))
    scene.everything_works("write")
    assert metric(scene.a, retried) <= 3


def test_sidecars_are_killed_in_the_middle(rdma_scene):
    scene = rdma_scene(size=LARGE, a_flags=SLOW)
    scene.everything_works()
    assert resources() == {"qp": 2, "mr": 2}
    scene.lose_the_owner()
    failures = ['gantry_transport_errors_total{path="rdma",reason="%s"}' % reason for reason in ("disconnect", "peer_unavailable")]
    assert sum(metric(scene.a, name) for name in failures) >= 1
    scene.everything_works()
    # The initiator's.
    scene.hold("write")
    scene.a.kill()
    wait_for(lambda: resources()["qp"] == 0, END_SECONDS, "no queue pair of the killed initiator's")
    scene.reader.kill()
    scene.a = scene.start_sidecar("a", flags=SLOW)
    scene.start_reader()
    scene.meet()
    scene.everything_works("write")


def test_the_owning_workload_is_killed_in_the_middle(rdma_scene):
    scene = rdma_scene(size=LARGE, a_flags=SLOW)
    transfer = scene.hold()
    scene.owner.kill()
    view = settled(scene, transfer)  # it has --workload-end-ms to end, and its pages are still there
    if view["state"] != "succeeded":
        assert_moved_as_told(scene, view)
    wait_for(lambda: resources()["mr"] == 1, END_SECONDS, "no memory region of the dead one's")
    scene.start_owner()
    scene.everything_works()


def test_a_peer_that_stands_still_is_told_as_lost(rdma_scene):
    scene = rdma_scene(size=LARGE, a_flags=SLOW)
    transfer = scene.hold("write")
    send([scene.b.process.pid], signal.SIGSTOP)  # its device goes on, and so do the bytes
    try:
        assert settled(scene, transfer)["state"] in TERMINAL
    finally:
        send([scene.b.process.pid], signal.SIGCONT)
    wait_for(lambda: scene.meet()["state"] == "up", 15)
    scene.everything_works()


def test_registrations_that_come_and_go_leave_nothing(start_sidecar, start_workload, new_memory):
    sidecar = start_sidecar("a", flags=["--rdma-chunk-bytes", "65536"])
    memory = new_memory(MiB)
    workload = start_workload(sidecar, "owner")
    specs = [(f"part{number}", number * 4096, 256 * 1024 - number) for number in range(10)]

    def one_round():
        workload.register(memory, *specs)
        held = resources()["mr"]
        for name, *_ in specs:
            workload.do("unregister", name)
        return held

    assert one_round() > len(specs)  # each is several chunks
    fds = fd_count(sidecar.process.pid)
    for _ in range(20):
        one_round()
    assert resources()["mr"] == 0
    assert metric(sidecar, f'gantry_chunks{{device="{DEVICE}"}}') == 0
    assert fd_count(sidecar.process.pid) <= fds + 2


def test_a_small_limit_of_locked_memory_is_named(start_sidecar, start_workload, new_memory, folder):
    folder.chmod(0o777)
    limited = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--bounding-set=-all",
               "--inh-caps=-all", "prlimit", f"--memlock={64 * 1024}"]
    # Another user may not look into the folder that the build is in, as where that is root's own.
    program = shutil.copy(BIN_DIR / "gantry-sidecar", folder)
    sidecar = start_sidecar("a", prefix=limited, program=program, wait=False)
    sidecar.run_dir.chmod(0o777)
    sidecar.node_dir.chmod(0o777)
    sidecar.kill()
    sidecar.start()
    assert "RLIMIT_MEMLOCK" in sidecar.log
    workload = start_workload(sidecar, "owner")
    memory = new_memory(MiB)
    try:
        workload.register(memory, ("kv", 0, MiB))
    except gantry.Error as error:
        assert error.code == "resource_exhausted" and "may lock 65536 bytes" in str(error), error
        assert "memlock" in error.hint, error.hint
    else:
        raise AssertionError("a megabyte was locked by a process that may lock 64 KiB")
    assert resources()["mr"] == 0
    workload.register(memory, ("small", 0, 8192))  # there is room for it
    assert resources()["mr"] == 1
