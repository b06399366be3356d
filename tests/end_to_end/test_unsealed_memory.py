"""Shared memory of tmpfs that Gantry did not make, and that its owner can truncate: who may register it, and that it works."""

import ctypes
import fcntl
import mmap
import os
import tempfile

import pytest

from handoff import RawWorkload
from python_client_parts import MIB, code_of, gantry, wait_until
from shared_segments import BOTH, SIZE, UNSEALED, libc, make_world, new_segment  # noqa: F401
from workloads import metric, wait_for


# Refusals without the setting


def test_without_the_setting_the_error_names_it(start_sidecar, new_segment):
    sidecar, segment = start_sidecar("a"), new_segment()
    with gantry.Client(sidecar.run_dir, "owner") as client:
        for call in (lambda: client.register("k", segment.view, adopt=True), lambda: client.adopt(segment.library._fd),
                     lambda: client.adopt(segment.library._fd, address=segment.view)):
            with pytest.raises(gantry.Error) as caught:
                call()
            assert caught.value.code == "fd_not_sealed" and "--unsealed-memory" in caught.value.hint
    raw = RawWorkload(sidecar, "raw")
    (token,) = raw.hand_over(segment.library._fd)
    status, problem = raw.register(token, SIZE)
    assert (status, problem["code"]) == (422, "fd_not_sealed") and "--unsealed-memory" in problem["hint"]
    raw.close()


def test_with_the_setting_other_files_are_refused(start_sidecar):
    sidecar = start_sidecar("a", flags=UNSEALED)
    assert sidecar.ask("PUT", "/v1/workloads/x", {})[1]["takes_unsealed_memory"] is True
    raw = RawWorkload(sidecar, "raw")
    with gantry.Client(sidecar.run_dir, "owner") as client, tempfile.TemporaryFile(dir="/var/tmp") as file:
        file.truncate(MIB)
        assert code_of(client.adopt, file.fileno()) == "not_exportable"
        with mmap.mmap(file.fileno(), MIB) as mapped:
            assert code_of(client.register, "k", mapped, adopt=True) == "not_exportable"
        (token,) = raw.hand_over(file.fileno())
        assert raw.register(token, MIB)[1]["code"] == "not_exportable"
        try:
            huge = os.memfd_create("huge", os.MFD_HUGETLB | os.MFD_ALLOW_SEALING)
        except OSError:
            huge = -1
        if huge >= 0:
            os.ftruncate(huge, 2 * MIB)
            (token,) = raw.hand_over(huge)
            status, problem = raw.register(token, 2 * MIB)
            assert (status, problem["code"]) == (422, "fd_not_sealed") and "MFD_HUGETLB" in problem["hint"]
            os.close(huge)
    raw.close()


def test_the_length_is_checked_at_the_hand_over(start_sidecar, new_segment):
    segment = new_segment(size=MIB)
    raw = RawWorkload(start_sidecar("a", flags=UNSEALED), "raw")
    (token,) = raw.hand_over(segment.library._fd)
    status, problem = raw.register(token, MIB + 1, [(0, 1)])
    assert (status, problem["code"]) == (422, "fd_too_short")
    assert raw.register(token, MIB, [(MIB - 1, 2)])[0] == 400
    assert raw.register(token, MIB)[0] == 201
    segment.truncate(4096)
    status, problem = raw.register(token, MIB, name="later")
    assert (status, problem["code"]) == (422, "fd_too_short")
    raw.close()


def test_a_peer_without_the_setting_takes_another_path_and_says_why(make_world, new_segment):
    world, segment = make_world("shm", own=[]), new_segment()
    world.share(segment)
    with pytest.raises(gantry.Error) as caught:
        world.move("read", world.local, "k")
    assert "--unsealed-memory" in str(caught.value), caught.value
    world.nothing_ended()


# Transfers with it


@pytest.mark.parametrize("path", ["shm", "tcp", "tls"])
@pytest.mark.parametrize("linked", [True, False], ids=["linked", "unlinked"])
def test_peers_read_and_write_a_segment_of_another_library(make_world, new_segment, path, linked):
    world, segment, mine = make_world(path), new_segment(), new_segment(seed=2)
    if not linked:
        segment.unlink()
    with world.share(segment, verify=True):
        assert bytes(segment.view) == segment.content
        world.move("read", world.local, "k")
        assert world.sealed["peer"][:SIZE] == segment.content
        local = world.share(mine, world.peer)
        world.move("write", local, "k")
        assert bytes(segment.view) == mine.content
        segment.view[:5] = b"later"
        world.move("read", local, "k", length=5)
        assert bytes(mine.view[:5]) == b"later"
    world.nothing_ended()
    for sidecar in (world.a, world.b):
        wait_for(lambda: metric(sidecar, 'gantry_staging_slices_in_use{side="initiator"}') == 0, 5, "slices to come back")


def test_a_memfd_that_is_not_sealed_and_the_way_by_its_descriptor(make_world):
    world = make_world("shm")
    fd = os.memfd_create("mine", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, MIB)
    with mmap.mmap(fd, MIB) as mapped:
        mapped[:4] = b"mine"
        with world.owner.adopt(fd, address=mapped):
            with world.owner.register("k", memoryview(mapped)[:4096]):
                world.move("read", world.local, "k", length=4096)
                assert world.sealed["peer"][:4] == b"mine"
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)  # the memory is the owner's, as ever
    os.close(fd)


def test_a_segment_without_a_descriptor_is_found_by_its_path_alone(start_sidecar, new_segment):
    sidecar, segment = start_sidecar("a", flags=UNSEALED), new_segment(size=MIB)
    libc.mmap.restype = ctypes.c_void_p
    fd = os.open(segment.path, os.O_RDWR)
    address = libc.mmap(None, ctypes.c_size_t(MIB), 3, mmap.MAP_SHARED, fd, ctypes.c_long(0))
    os.close(fd)
    os.close(os.dup2(os.open("/dev/null", os.O_RDWR), segment.library._fd))
    segment.library._fd = -1
    for number in os.listdir("/proc/self/fd"):  # mmap of Python keeps a duplicate
        try:
            is_segment = os.path.samefile(f"/proc/self/fd/{number}", segment.path)
        except OSError:
            continue
        if is_segment:
            os.dup2(os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC), int(number))
    view = memoryview((ctypes.c_char * MIB).from_address(address)).cast("B")
    with gantry.Client(sidecar.run_dir, "owner") as client:
        client.register("k", view, adopt=True).unregister()
        segment.unlink()
        for name in (segment.path, segment.path + " (deleted)"):  # the second is what /proc/self/maps says
            with open(name, "wb") as another:
                another.truncate(MIB)
        try:
            assert code_of(client.register, "k", view, adopt=True) == "not_exportable"
        finally:
            os.unlink(segment.path)
            os.unlink(segment.path + " (deleted)")


def test_a_view_past_the_end_of_the_file_is_refused(start_sidecar, new_segment):
    sidecar, segment = start_sidecar("a", flags=UNSEALED), new_segment(size=MIB)
    segment.truncate(MIB // 2)
    with gantry.Client(sidecar.run_dir, "owner") as client:
        assert code_of(client.register, "k", segment.view, adopt=True) == "fd_too_short"
        half = client.register("k", segment.view[:MIB // 2], adopt=True)
        assert code_of(client.register, "past", segment.view[MIB // 2 - 1:], adopt=True) in ("not_exportable", "fd_too_short")
        half.unregister()


def test_one_arena_for_all_buffers_of_a_segment(start_sidecar, new_segment):
    sidecar, segment = start_sidecar("a", flags=UNSEALED), new_segment(size=MIB)
    with gantry.Client(sidecar.run_dir, "owner") as client:
        buffers = [client.register(f"k.{i}", segment.view[i * 5000:(i + 1) * 5000], adopt=True) for i in range(4)]
        assert metric(sidecar, "gantry_fds_held") == 1
        for buffer in buffers:
            buffer.unregister()
        assert wait_until(lambda: metric(sidecar, "gantry_fds_held") == 0)
        client.register("again", segment.view, adopt=True)


def test_a_child_of_fork_writes_what_peers_read(make_world, new_segment):
    world, segment = make_world("shm"), new_segment()
    world.share(segment)
    child = os.fork()
    if child == 0:
        segment.view[:5] = b"child"
        os._exit(0)
    os.waitpid(child, 0)
    world.move("read", world.local, "k", length=5)
    assert world.sealed["peer"][:5] == b"child"
