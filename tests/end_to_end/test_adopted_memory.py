"""Private memory that is registered where it is: who sees which bytes, what is refused, and what is left afterwards."""

import ctypes
import gc
import hashlib
import mmap
import os
import random
import signal
import subprocess

import pytest

from python_client_parts import BLOCK, LIBRARY, MIB, buffers_at, client, code_of, gantry, run_script, wait_until  # noqa: F401

from gantry.address import address_of

LARGE = 33 * MIB
MADV_DONTNEED, MADV_DONTFORK = 4, 10
MAP_FIXED, M_MMAP_THRESHOLD = 0x10, -3
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p


def pages(length):
    """Private memory of whole pages."""
    return mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def adopted_mappings(process="self"):
    """(begin, end, inode) of memfds that stand for private memory, in the mappings of a process."""
    with open(f"/proc/{process}/maps") as maps:
        lines = [line.split() for line in maps if "memfd:gantry-private" in line]
    return [(*(int(part, 16) for part in fields[0].split("-")), int(fields[4])) for fields in lines]


def files_of(*views):
    """The inodes of the memfds that the views lie in."""
    addresses = [address_of(view)[0] for view in views]
    return {inode for begin, end, inode in adopted_mappings() if any(begin <= address < end for address in addresses)}


def descriptors(process="self"):
    return len(os.listdir(f"/proc/{process}/fd"))


def call(function, view, *arguments):
    address, length = address_of(view)
    if getattr(libc, function)(ctypes.c_void_p(address), ctypes.c_size_t(length), *arguments) != 0:
        raise OSError(ctypes.get_errno(), function)


@pytest.fixture(autouse=True)
def malloc_maps_large_blocks():
    assert libc.mallopt(M_MMAP_THRESHOLD, MIB) == 1
    libc.malloc_trim(ctypes.c_size_t(0))


@pytest.fixture
def peers(start_sidecar):
    """A client at sidecar a, and one at b that reads and writes the first one's buffer "k"."""
    a, b = start_sidecar("a"), start_sidecar("b")
    with gantry.Client(a.run_dir, "owner") as owner, gantry.Client(b.run_dir, "peer") as peer:
        peer.set_peer("a", a.peer_address)
        yield Peers(a, owner, peer)


class Peers:
    def __init__(self, sidecar, owner, peer):
        self.sidecar, self.owner, self.peer = sidecar, owner, peer

    def share(self, view, name="k", **options):
        return self.owner.register(name, view, access=("remote_read", "remote_write"), adopt=True, **options)

    def seen(self, length, name="k"):
        """Returns the bytes that the peer reads of the owner's buffer."""
        with self.peer.arena(length) as arena, self.peer.register("seen", arena.view(0, length)) as local:
            self.peer.read(local, f"a/owner/{name}", ranges=[(0, 0, 0, 0, length)], wait=20).wait(20)
            return bytes(arena[:length])

    def put(self, data, offset):
        with self.peer.arena(len(data)) as arena, self.peer.register("put", arena.view(0, len(data))) as local:
            arena[:len(data)] = data
            self.peer.write(local, "a/owner/k", ranges=[(0, 0, 0, offset, len(data))], wait=20).wait(20)


@pytest.mark.parametrize("make", [bytearray, pages], ids=["malloc", "pages"])
def test_owner_and_peer_see_each_others_bytes(peers, make):
    memory = make(LARGE)
    view = memoryview(memory)
    view[:] = content = random.Random(5).randbytes(LARGE)
    address = address_of(view)[0]
    assert code_of(peers.owner.register, "k", view) == "not_exportable"
    buffer = peers.share(view, verify=True)
    assert bytes(view) == content and address_of(view)[0] == address
    assert peers.seen(LARGE) == content
    view[LARGE - 3:] = b"end"
    assert peers.seen(LARGE)[-3:] == b"end"
    peers.put(b"from the peer", 4095)
    assert bytes(view[4095:4108]) == b"from the peer"
    buffer.unregister()
    assert bytes(view[4095:4108]) == b"from the peer" and bytes(view[:4095]) == content[:4095]


def test_a_peer_takes_the_fast_path(peers):
    _buffer = peers.share(view := memoryview(bytearray(LARGE)))
    with peers.peer.register("own", memory := bytearray(LARGE), adopt=True) as local:
        view[7:12] = b"bytes"
        status = peers.peer.read(local, "a/owner/k", ranges=[(0, 0, 0, 0, LARGE)], wait=20, require_path="shm").wait(20)
        assert status.path == "shm" and memory[7:12] == b"bytes"


def test_views_of_one_block_are_in_one_arena(peers):
    memory = memoryview(bytearray(LARGE))
    buffers = [peers.share(memory[i * 5000 + 3:(i + 1) * 5000], f"layer.{i}") for i in range(8)]
    assert len(files_of(*(memory[i * 5000:] for i in range(8)))) == 1
    assert len({peers.owner.resolve(memory[i * 5000:i * 5000 + 1])[0][0] for i in range(8)}) == 1
    for buffer in buffers[:7]:
        buffer.unregister()
    memory[7 * 5000 + 3:7 * 5000 + 8] = b"still"
    assert peers.seen(5, "layer.7") == b"still"
    buffers[7].unregister()
    assert code_of(peers.owner.register, "k", memory) == "not_exportable"
    assert code_of(peers.owner.resolve, memory) == "not_exportable"


def test_the_same_block_can_be_adopted_again(peers):
    memory = bytearray(LARGE)
    for life in range(3):
        memory[:4] = b"%4d" % life
        with peers.share(memory):
            assert peers.seen(4) == b"%4d" % life
    with gantry.Client(peers.sidecar.run_dir, "second") as second:
        with peers.share(memory), second.register("k", memory, adopt=True):
            assert len(files_of(memory)) == 1
            memory[:4] = b"both"
            assert peers.seen(4) == b"both"


def test_memory_that_needs_no_adoption_is_registered_as_ever(client):
    arena = client.arena(MIB)
    buffer = client.register("k", arena.view(100, 1000), adopt=True)
    assert not files_of(arena)
    buffer.unregister()
    assert client.resolve(arena)[0][1:] == (0, MIB)  # the arena goes on


def test_all_or_nothing(peers):
    memory = bytearray(LARGE)
    specs = [gantry.BufferSpec("a", memory), gantry.BufferSpec("b", bytearray(100))]
    gc.collect()
    before = descriptors()
    assert code_of(peers.owner.register_many, specs, adopt=True) == "not_exportable"
    gc.collect()
    assert buffers_at(peers.sidecar, "owner") == [] and descriptors() == before
    layers = peers.owner.register_layers("kv", [memory, pages(MIB)], layout=gantry.Layout(BLOCK), adopt=True)
    assert [buffer.name for buffer in layers] == ["kv.0", "kv.1"]


@pytest.mark.parametrize("kind, what", [
    ("part of the heap", "is no block that malloc has mapped"), ("shared", "no descriptor can be had of"), ("locked", "is locked"),
    ("of a device", "is kept from children"), ("of a file", "is of a file")])
def test_what_is_not_adopted_says_why_and_the_way_out(client, folder, kind, what):
    memory = pages(MIB)
    if kind == "part of the heap":
        memory = bytearray(5000)
    elif kind == "shared":
        memory = mmap.mmap(-1, MIB)
    elif kind == "locked":
        call("mlock", memory)
    elif kind == "of a device":
        call("madvise", memory, MADV_DONTFORK)
    else:
        (folder / "file").write_bytes(bytes(MIB))
        with open(folder / "file", "r+b") as file:
            memory = mmap.mmap(file.fileno(), MIB, access=mmap.ACCESS_COPY)
    with pytest.raises(gantry.Error) as caught:
        client.register("k", memory, adopt=True)
    assert (caught.value.code, caught.value.field) == ("not_exportable", "address")
    assert what in caught.value.message and caught.value.hint
    assert not files_of(memory)


def test_locked_memory_is_adopted_once_it_is_unlocked_and_locked_again(peers):
    memory = pages(MIB)
    call("mlock", memory)
    assert code_of(peers.share, memory) == "not_exportable"
    call("munlock", memory)
    _buffer = peers.share(memory)
    call("mlock", memory)
    memory[:6] = b"locked"
    assert peers.seen(6) == b"locked"


def test_child_and_parent_share_what_was_adopted(peers):
    memory = bytearray(LARGE)
    _buffer = peers.share(memory)
    memory[:6] = b"parent"
    child = os.fork()
    if child == 0:
        found = memory[:6] == b"parent"
        memory[10:15] = b"child"
        os._exit(0 if found else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert memory[10:15] == b"child" and peers.seen(15)[10:] == b"child"
    memory[:6] = b"after!"
    assert peers.seen(6) == b"after!"


def test_a_child_adopts_its_parents_memory_for_a_client_of_its_own(peers):
    memory = bytearray(LARGE)
    _buffer = peers.share(memory)
    memory[:4] = b"both"
    child = os.fork()
    if child == 0:
        status = 1
        try:
            with gantry.Client(peers.sidecar.run_dir, "child") as own:
                with own.register("k", memory, adopt=True):
                    status = 0 if memory[:4] == b"both" else 2
                    memory[8:13] = b"child"
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    memory[:4] = b"here"
    assert memory[8:13] == b"child" and peers.seen(13)[8:] == b"child" and peers.seen(4) == b"here"


def test_madv_dontneed_of_the_owner_keeps_the_bytes(peers):
    memory = pages(MIB)
    memory[:] = content = random.Random(2).randbytes(MIB)
    _buffer = peers.share(memory)
    memory.madvise(MADV_DONTNEED)
    assert memory[:] == content and peers.seen(MIB) == content
    memory[:3] = b"new"
    assert peers.seen(3) == b"new"


def test_a_bytearray_grows_and_shrinks_afterwards(peers):
    memory = bytearray(LARGE)
    memory[:] = content = random.Random(3).randbytes(LARGE)
    buffer = peers.share(memory)
    with pytest.raises(BufferError):
        memory.extend(b"while it is registered")
    buffer.unregister()
    memory.extend(bytes(3 * LARGE))
    assert memory[:LARGE] == content and not any(memory[LARGE:])
    memory[-5:] = b"bytes"
    del memory[MIB:]
    assert memory == content[:MIB]


def test_a_gibibyte_in_one_piece(peers):
    length = 1 << 30
    memory = pages(length)
    block = random.Random(4).randbytes(MIB)
    for offset in range(0, length, MIB):
        memory[offset:offset + MIB] = block
        memory[offset:offset + 8] = offset.to_bytes(8, "little")
    digest = hashlib.sha1(memory).digest()
    with peers.share(memory):
        assert hashlib.sha1(memory).digest() == digest
        target = pages(length)
        with peers.peer.register("target", target, adopt=True) as local:
            peers.peer.read(local, "a/owner/k", ranges=[(0, 0, 0, 0, length)], wait=30).wait(30)
            assert hashlib.sha1(target).digest() == digest


def test_a_thousand_adoptions_leave_nothing_behind(peers):
    sidecar = peers.sidecar.process.pid
    with peers.share(pages(MIB)):
        pass
    gc.collect()
    mappings = len(adopted_mappings())
    before = descriptors(), descriptors(sidecar)
    for i in range(1000):
        memory = pages(4 * 4096)
        memory[:2] = b"%2d" % (i % 100)
        buffer = peers.share(memory)
        if i % 100 == 7:
            assert peers.seen(2) == b" 7"
        if i % 2:
            buffer.unregister()
        del buffer, memory
    assert len(adopted_mappings()) == mappings
    assert wait_until(lambda: (descriptors(), descriptors(sidecar)) == before)
    workers = subprocess.run(["pgrep", "-P", str(sidecar)], capture_output=True, text=True).stdout.split()
    assert workers and wait_until(lambda: not any(map(adopted_mappings, workers)))


def test_a_new_sidecar_gets_the_same_memory(peers):
    memory = bytearray(LARGE)
    _old = peers.share(memory)
    peers.sidecar.kill()
    peers.sidecar.start()
    memory[:3] = b"new"
    with gantry.Client(peers.sidecar.run_dir, "owner") as client:
        with client.register("k", memory, adopt=True), client.register("l", other := bytearray(LARGE), adopt=True) as local:
            client.read(local, "owner/k", ranges=[(0, 0, 0, 0, 3)], wait=10).wait(10)
            assert other[:3] == b"new" and len(files_of(memory, other)) == 2


def test_memory_that_was_freed_under_its_buffer_is_refused(client):
    memory = pages(MIB)
    address, length = address_of(memory)
    buffer = client.register("k", memory, adopt=True)
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_FIXED
    again = libc.mmap(ctypes.c_void_p(address), ctypes.c_size_t(length), 3, private, -1, ctypes.c_long(0))
    assert again == address
    assert code_of(client.register, "again", memory, adopt=True) == "stale_generation"
    assert code_of(client.register, "again", memory) == "stale_generation"
    buffer.unregister()
    client.register("again", memory, adopt=True)


def test_pages_that_nobody_says_are_a_mapping_are_refused(client):
    memory = pages(MIB)
    unknown = (ctypes.c_char * MIB).from_address(address_of(memory)[0])
    assert code_of(client.register, "k", unknown, adopt=True) == "not_exportable"
    assert not files_of(memory)
    client.register("k", memoryview(memory)[5:], adopt=True)


@pytest.mark.skipif("LD_PRELOAD" in os.environ, reason="a library of a sanitizer is loaded before all others")
def test_blocks_of_another_malloc_are_refused(sidecar):
    script = """
        import ctypes, gantry, mmap, os, sys
        ctypes.CDLL(None).mallopt(-3, 1 << 20)
        client = gantry.Client(sys.argv[1], "w")
        pages = mmap.mmap(-1, 1 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        client.register("pages", pages, adopt=True)
        try:
            client.register("k", memory := bytearray(40 << 20), adopt=True)
            print("adopted")
        except gantry.Error as error:
            print(error)
        """
    assert run_script(script, sidecar.run_dir)[1] == "adopted\n"
    other = LIBRARY.parent.parent / "other_malloc" / "libother_malloc.so"
    code, out, err = run_script(f"""
        import os, sys
        if not os.environ.get("LD_PRELOAD"):
            os.execve(sys.executable, sys.orig_argv, os.environ | {{"LD_PRELOAD": "{other}"}})
        {script}""", sidecar.run_dir)
    assert (code, "malloc of this process is not glibc's" in out) == (0, True), out + err


def test_a_gpu_driver_that_fails_is_an_error_as_it_may_have_pinned_pages(sidecar):
    library = LIBRARY.parent.parent / "fake_gpu" / "libcuda.so.1"
    code, out, err = run_script("""
        import ctypes, gantry, mmap, os, sys
        client = gantry.Client(sys.argv[1], "w")
        os.environ["GANTRY_FAKE_GPU_FAIL"] = "cuDeviceGetCount=999"
        assert ctypes.CDLL(sys.argv[2], mode=ctypes.RTLD_GLOBAL).cuInit(0) == 0
        try:
            client.register("k", mmap.mmap(-1, 1 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), adopt=True)
        except gantry.Error as error:
            print(error.code)
        """, sidecar.run_dir, library)
    assert (code, out) == (0, "device_error\n"), out + err


def test_an_owner_that_is_killed_leaves_its_sidecar_alone(sidecar):
    code, _, _ = run_script("""
        import gantry, os, signal, sys
        client = gantry.Client(sys.argv[1], "w")
        memory = bytearray(40 << 20)
        buffer = client.register("k", memory, adopt=True)
        os.kill(os.getpid(), signal.SIGKILL)
        """, sidecar.run_dir)
    assert code == -signal.SIGKILL
    assert wait_until(lambda: buffers_at(sidecar) == [])
    with gantry.Client(sidecar.run_dir, "w") as client:
        client.check()


def test_a_limit_of_address_space_is_an_error_and_no_death(sidecar):
    code, out, err = run_script("""
        import gantry, mmap, resource, sys
        client = gantry.Client(sys.argv[1], "w")
        memory = mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        memory[:5] = b"bytes"
        size = int(open("/proc/self/statm").read().split()[0]) * mmap.PAGESIZE
        resource.setrlimit(resource.RLIMIT_AS, (size + (32 << 20), resource.RLIM_INFINITY))
        try:
            client.register("k", memory, adopt=True)
        except gantry.Error as error:
            print(error.code, memory[:5])
        """, sidecar.run_dir)
    assert (code, out.strip()) == (0, "resource_exhausted b'bytes'"), err
