"""Shared memory of tmpfs that Gantry did not make, whose owner can truncate it at any time.

A truncated file fails the transfers of its buffers. The sidecar stays, and so do the transfers of others.
"""

import ctypes
import fcntl
import mmap
import os
import random
import tempfile
import threading
import time
from contextlib import ExitStack
from multiprocessing import shared_memory

import pytest

from certificates import Authority
from gpu_workloads import gpus, start_gpu_workload  # noqa: F401
from handoff import RawWorkload
from python_client_parts import MIB, code_of, gantry, wait_until
from test_peers_over_tcp import TCP, tcp_address
from workloads import metric, wait_for, workers_of

UNSEALED = ["--unsealed-memory"]
SIZE = 16 * MIB
BOTH = ("remote_read", "remote_write")
PUNCH = 0x01 | 0x02  # FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE
libc = ctypes.CDLL(None, use_errno=True)


class Segment:
    """A POSIX segment, as another library makes it; this class never touches it behind its end."""

    def __init__(self, size=SIZE, seed=1):
        self.library = shared_memory.SharedMemory(create=True, size=size)
        self.path = f"/dev/shm/{self.library._name.lstrip('/')}"
        self.view = self.library.buf
        self.content = random.Random(seed).randbytes(size)
        self.view[:] = self.content
        self.linked = True

    def truncate(self, length):
        os.truncate(self.library._fd, length)

    def punch(self, offset, length):
        status = libc.fallocate(self.library._fd, PUNCH, ctypes.c_long(offset), ctypes.c_long(length))
        assert status == 0, os.strerror(ctypes.get_errno())

    def unlink(self):
        if self.linked:
            self.library.unlink()
        self.linked = False

    def close(self):
        """The mapping goes with the last view of it, which a failed test may keep."""
        self.unlink()
        try:
            self.view.release()
            self.library.close()
        except BufferError:
            self.library.close = lambda: None


@pytest.fixture
def new_segment():
    with ExitStack() as made:
        def make(**options):
            segment = Segment(**options)
            made.callback(segment.close)
            return segment
        yield make


class World:
    """Workload "owner" at sidecar b and "peer" at a; both also have sealed memory, which moves at the same time."""

    def __init__(self, start_sidecar, clients, path, flags=lambda name: [], own=UNSEALED):
        flags_of = {name: [*flags(name), *(TCP if path == "tcp" else [])] for name in "ab"}
        self.path = path
        self.a = start_sidecar("a", workers=2, flags=flags_of["a"] + own)
        self.b = start_sidecar("b", workers=2, flags=flags_of["b"] + UNSEALED)
        self.pids = [self.a.process.pid, self.b.process.pid, *workers_of(self.a), *workers_of(self.b)]
        self.peer = clients.enter_context(gantry.Client(self.a.run_dir, "peer"))
        self.owner = clients.enter_context(gantry.Client(self.b.run_dir, "owner"))
        self.peer.set_peer("b", tcp_address(self.b) if path == "tcp" else self.b.peer_address)
        self.sealed = {name: client.arena(SIZE) for name, client in (("peer", self.peer), ("owner", self.owner))}
        self.sealed["owner"][:SIZE] = bytes(range(256)) * (SIZE // 256)
        self.local = self.peer.register("sealed", self.sealed["peer"].view(0, SIZE), access=BOTH)
        self.other = self.owner.register("sealed", self.sealed["owner"].view(0, SIZE), access=BOTH)

    def share(self, segment, client=None, **options):
        """Registers all of a segment as "k"."""
        self.shared = (client or self.owner).register("k", segment.view, access=BOTH, adopt=True, **options)
        return self.shared

    def move(self, operation, local, remote, length=SIZE, **fields):
        call = self.peer.read if operation == "read" else self.peer.write
        done = call(local, f"b/owner/{remote}", ranges=[(0, 0, 0, 0, length)], wait=20, require_path=self.path, **fields).wait(20)
        assert done.path == self.path
        return done

    def others_move(self):
        """Transfers between buffers that are sealed."""
        self.sealed["peer"][:SIZE] = bytes(SIZE)
        self.move("read", self.local, "sealed")
        assert self.sealed["peer"][:SIZE] == self.sealed["owner"][:SIZE]

    def nothing_ended(self):
        assert [self.a.process.poll(), self.b.process.poll()] == [None, None]
        assert [self.a.process.pid, self.b.process.pid, *workers_of(self.a), *workers_of(self.b)] == self.pids


@pytest.fixture
def make_world(start_sidecar, folder):
    authority = Authority(folder, "authority")

    def tls(name):
        names = ["--peer-tls-names", "spiffe://test/*"]
        return authority.issue(name, f"URI:spiffe://test/{name}") + names + ["--data-tls"]

    with ExitStack() as clients:
        def make(path, **options):
            if path == "tls":
                return World(start_sidecar, clients, "tcp", flags=tls, **options)
            return World(start_sidecar, clients, path, **options)
        yield make


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


# What is refused without the setting


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


# What works with it


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


# What happens to a file that is truncated


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


def test_truncation_beside_a_gpu_ends_copy_workers_and_not_the_sidecar(gpus, start_sidecar, start_gpu_workload, new_segment):
    """The GPU's driver copies there, and nothing can end it half-way."""
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
        assert write("k")["state"] == "succeeded" and bytes(segment.view) == engine.do("look", "kv", 0, 4 * MIB)
        before = workers_of(sidecar)
        segment.truncate(4096)
        failed = write("k")
        assert failed["state"] == "failed" and failed["error"]["code"] == "worker_lost", failed
        assert sidecar.process.poll() is None
        wait_for(lambda: len(workers_of(sidecar)) == 2 and set(workers_of(sidecar)) != set(before), 20, "new copy workers")
        wait_for(lambda: write("sealed")["state"] == "succeeded", 20, "transfers of others")
        segment.truncate(4 * MIB)
        wait_for(lambda: write("k")["state"] == "succeeded", 20, "the file to be used again")
        for buffer in buffers:
            buffer.unregister()
