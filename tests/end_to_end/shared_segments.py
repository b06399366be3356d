"""Shared memory of tmpfs that Gantry did not make, and two sidecars that take it (--unsealed-memory)."""

import ctypes
import os
import random
from contextlib import ExitStack
from multiprocessing import shared_memory

import pytest

from certificates import Authority
from python_client_parts import MIB, gantry
from test_peers_over_tcp import TCP, tcp_address
from workloads import workers_of

UNSEALED = ["--unsealed-memory"]
SIZE = 16 * MIB
BOTH = ("remote_read", "remote_write")
PUNCH = 0x01 | 0x02  # FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE
M_MMAP_THRESHOLD = -3
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
    libc.mallopt(M_MMAP_THRESHOLD, MIB)  # else freed contents leave a heap that later tests' blocks lie in
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
