"""The Python package, and the C library below it, against real sidecars: memory, registration, transfers."""

import asyncio
import ctypes
import fcntl
import gc
import os
import random
import time
from array import array

import pytest

from python_client_parts import (BLOCK, MIB, Pair, arena, buffers_at, client, code_of, gantry,  # noqa: F401
                                 pair, wait_until)

AT_ONCE_SECONDS = 2  # on a busy machine


# Memory


def test_an_arena_is_one_shared_memory(arena):
    view = memoryview(arena)
    assert view.format == "B" and view.nbytes == MIB and not view.readonly
    view[10:13] = b"abc"
    assert arena[10:13] == b"abc"
    assert bytes(arena.view(10, 3)) == b"abc"
    assert os.pread(arena.fileno(), 3, 10) == b"abc"
    assert code_of(arena.view, MIB - 1, 2) == "out_of_range"
    assert code_of(arena.view, -1, 2) == "invalid_argument"


class ArrayLike:
    def __init__(self, address, shape, strides=None):
        self.__array_interface__ = {"data": (address, False), "shape": shape, "typestr": "<f4", "strides": strides,
                                    "version": 3}


class TensorLike:
    """What a CPU tensor offers: no buffer protocol, but an address."""

    def __init__(self, address, count, contiguous=True):
        self.data_ptr = lambda: address
        self.numel = lambda: count
        self.element_size = lambda: 2
        self.is_contiguous = lambda: contiguous


def test_everything_that_shows_an_arena_can_be_registered(client, arena):
    address = ctypes.addressof(ctypes.c_char.from_buffer(arena))
    views = {"whole": arena, "slice": memoryview(arena)[100:200], "cast": memoryview(arena)[4096:8192].cast("I"),
             "ctypes": (ctypes.c_uint16 * 50).from_buffer(arena, 300), "array": ArrayLike(address + 4000, (5, 5)),
             "tensor": TensorLike(address + 6000, 500), "read_only": memoryview(arena)[7:9].toreadonly()}
    sizes = {"whole": MIB, "slice": 100, "cast": 4096, "ctypes": 100, "array": 100, "tensor": 1000, "read_only": 2}
    for name, view in views.items():
        buffer = client.register(name, view)
        assert len(buffer) == sizes[name] and buffer.registered
    # ... and is unregistered when it is dropped: only the last one is left.
    left = client.request("GET", "/v1/buffers?workload=w")["buffers"]
    assert [(one["name"], one["pieces"][0]["offset"]) for one in left] == [("read_only", 7)]


@pytest.mark.parametrize("view", [bytearray(100), bytes(100), array("d", [0.0] * 10), memoryview(bytearray(10)),
                                  (ctypes.c_char * 9)()], ids=lambda view: type(view).__name__)
def test_memory_that_is_in_no_arena_is_refused_with_the_way_out(client, arena, view):
    with pytest.raises(gantry.Error) as caught:
        client.register("b", view)
    assert caught.value.code == "not_exportable"
    assert "arena" in caught.value.hint and caught.value.field == "specs/0/pieces/0"
    assert code_of(client.resolve, view) == "not_exportable"


def test_views_with_holes_are_refused(client, arena):
    address = client.resolve(arena)[0][0]
    for view in (memoryview(arena)[::2], ArrayLike(address, (5,), (8,)), TensorLike(address, 10, False)):
        assert code_of(client.register, "b", view) == "invalid_argument"
    assert code_of(client.register, "b", object()) == "invalid_argument"
    assert code_of(client.register, "b", memoryview(arena)[:0]) == "invalid_argument"


def test_pieces_are_one_buffer(client, arena):
    pieces = [arena.view(4096, 100), arena.view(0, 50)]
    buffer = client.register("two", pieces)
    assert len(buffer) == 150
    question = {"workload": "w", "buffer": "two", "offset": 90, "length": 20}
    answer = client.request("POST", "/v1/buffers:resolve", question)
    assert [(extent["offset"], extent["length"]) for extent in answer["extents"]] == [(4186, 10), (0, 10)]


def memfd(size, seals=fcntl.F_SEAL_SHRINK):
    fd = os.memfd_create("test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    if seals:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


def test_a_callers_memfd_becomes_an_arena(client):
    fd = memfd(8192)
    os.pwrite(fd, b"mine", 100)
    with client.adopt(fd) as arena:
        assert arena[100:104] == b"mine"
        assert client.register("b", arena.view(100, 4)).registered
    os.pwrite(fd, b"x", 0)  # still the caller's
    os.close(fd)


def test_descriptors_that_can_hurt_are_refused(client, tmp_path):
    plain = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    os.ftruncate(plain, 4096)
    assert code_of(client.adopt, memfd(4096, seals=0)) == "fd_not_sealed"
    assert code_of(client.adopt, memfd(4096), 8192) == "fd_too_short"
    # A file of tmpfs, where /tmp may be, has seals, and one that keeps others off.
    assert code_of(client.adopt, plain) in ("not_exportable", "fd_not_sealed")
    assert code_of(client.adopt, memfd(0)) == "invalid_argument"
    assert code_of(client.adopt, 9999) == "invalid_argument"


def test_read_only_memory_can_be_read_and_never_written(client):
    fd = memfd(4096)
    read_only = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY)
    arena = client.adopt(read_only)
    assert memoryview(arena).readonly
    assert client.register("r", arena, access="remote_read").registered
    assert code_of(client.register, "w", arena, access="remote_write") == "fd_read_only"


def test_an_arena_that_does_not_fit_is_refused(client):
    assert code_of(client.arena, 1 << 45) == "resource_exhausted"
    assert code_of(client.arena, 0) == "invalid_argument"
    assert code_of(client.arena, -1) == "invalid_argument"


def test_closing_an_arena_unregisters_and_keeps_its_views_valid(client, arena, sidecar):
    buffer = client.register("b", arena.view(0, 100))
    view = arena.view(50, 10)
    arena.close()
    arena.close()
    assert not buffer.registered and buffers_at(sidecar) == []
    view[0] = 1  # the memory goes with its last view
    assert code_of(client.register, "c", view) == "not_exportable"
    other = client.arena(4096)
    other.close()
    assert code_of(client.register, "c", other) == "invalid_argument"


# Registration


def test_a_thousand_views_in_one_call(client, arena, sidecar):
    layout = gantry.Layout(100)
    specs = [gantry.BufferSpec(f"layer.{i}", arena.view(i * 1000, 1000), layout=layout) for i in range(1000)]
    start = time.monotonic()
    buffers = client.register_many(specs)
    assert time.monotonic() - start < 5
    assert [buffer.name for buffer in buffers] == [spec.name for spec in specs]
    assert len({buffer.id for buffer in buffers}) == 1000
    assert sidecar.ask("GET", "/v1/status")[0] == 200
    arena.close()
    assert buffers_at(sidecar) == []


def test_all_or_nothing(client, arena, sidecar):
    good, bad = arena.view(0, 10), bytearray(10)
    specs = [gantry.BufferSpec("a", good), gantry.BufferSpec("b", bad)]
    assert code_of(client.register_many, specs) == "not_exportable"
    too_long = gantry.Layout(block_bytes=4, blocks=3)
    specs = [gantry.BufferSpec("a", good), gantry.BufferSpec("b", good, layout=too_long)]
    assert code_of(client.register_many, specs) in ("invalid_argument", "out_of_range")
    assert buffers_at(sidecar) == []
    assert client.register_many([]) == []


def test_a_name_is_taken_once(client, arena):
    kept = client.register("b", arena.view(0, 10))
    assert code_of(client.register, "b", arena.view(10, 10)) == "conflict"
    assert code_of(client.register, "b/c", arena.view(0, 10)) == "invalid_argument"
    assert code_of(client.register, "b\0c", arena.view(0, 10)) == "invalid_argument"
    assert code_of(client.register, "d", arena.view(0, 10), access="everything") == "invalid_argument"
    assert kept.registered


def test_a_buffer_that_is_dropped_is_unregistered(client, arena, sidecar):
    buffer = client.register("b", arena.view(0, 10))
    assert buffers_at(sidecar) == ["b"]
    del buffer
    gc.collect()
    assert buffers_at(sidecar) == []


def test_a_buffer_keeps_its_memory(client, sidecar):
    buffer = client.register("b", client.arena(4096))
    gc.collect()
    assert buffer.registered and buffers_at(sidecar) == ["b"]


# Transfers


@pytest.mark.smoke
def test_blocks_arrive_where_they_belong(pair):
    local, remote = [3, 1, 15, 0], [7, 9, 0, 15]
    status = pair.client.read(pair.buffer, "a/prefill/k.0", local_blocks=local, remote_blocks=remote).wait(5)
    assert status.state == "succeeded" and status.path == "shm"
    assert (status.bytes, status.bytes_moved, status.descriptors_in) == (4 * BLOCK, 4 * BLOCK, 4)
    for block in range(Pair.BLOCKS):
        expected = bytes(BLOCK)
        if block in local:
            start = remote[local.index(block)] * BLOCK
            expected = bytes(pair.source[start:start + BLOCK])
        assert pair.target[block * BLOCK:(block + 1) * BLOCK] == expected, block
    assert pair.neighbours_are_untouched()


def test_ranges_and_arrays_of_block_ids(pair):
    ranges = [gantry.Range(0, 10, 0, 20, 7), (0, 100, 0, 200, 50)]
    assert pair.client.read([pair.buffer], ["a/prefill/k.0"], ranges=ranges, wait=5).wait().bytes == 57
    assert pair.target[10:17] == pair.source[20:27] and pair.target[100:150] == pair.source[200:250]
    assert not any(pair.target[:10]) and not any(pair.target[17:100])
    ids = array("q", range(Pair.BLOCKS))
    status = pair.client.read(pair.buffer, "a/prefill/k.0", local_blocks=ids, remote_blocks=memoryview(ids)).wait()
    assert status.descriptors_out == 1 and pair.target == pair.source


def test_writing_needs_the_owners_consent(start_sidecar):
    pair = Pair(start_sidecar, source_access=["remote_write"])
    pair.target[:BLOCK] = b"w" * BLOCK
    pair.client.write(pair.buffer, "a/prefill/k.0", local_blocks=[0], remote_blocks=[5]).wait(5)
    assert pair.source[5 * BLOCK:6 * BLOCK] == b"w" * BLOCK
    assert code_of(pair.client.read, pair.buffer, "a/prefill/k.0", local_blocks=[0],
                   remote_blocks=[5]) == "permission_denied"


def test_errors_say_what_is_wrong(pair):
    def read(remote="a/prefill/k.0", **named):
        return pair.client.read(pair.buffer, remote, **named)

    assert code_of(read, local_blocks=[0], remote_blocks=[16]) == "out_of_range"
    assert code_of(read, local_blocks=[0, 0], remote_blocks=[1, 2]) == "overlap"
    assert code_of(read, "nobody/prefill/k.0", local_blocks=[0], remote_blocks=[0]) in ("peer_unavailable", "not_found")
    assert code_of(read, "a/prefill/none", local_blocks=[0], remote_blocks=[0]) == "unregistered"
    assert code_of(read, "a/prefill/k.0@00000000000000ff", local_blocks=[0], remote_blocks=[0]) == "stale_generation"
    assert code_of(read, local_blocks=[0], remote_blocks=[0], require_path=["ipc"]) == "path_unavailable"
    for named in ({"local_blocks": [0]}, {"local_blocks": [0], "remote_blocks": [0, 1]},
                  {"local_blocks": [-1], "remote_blocks": [0]}, {"local_blocks": ["x"], "remote_blocks": [0]},
                  {"ranges": [(0, -1, 0, 0, 1)]}, {"ranges": []},
                  {"ranges": [(0, 0, 0, 0, 1)], "local_blocks": [0]}, {}):
        assert code_of(read, **named) == "invalid_argument", named
    with pytest.raises(gantry.Error) as caught:
        read(local_blocks=[0], remote_blocks=[0], require_path="rdma")
    assert caught.value.message and str(caught.value).startswith("path_unavailable: ")


def test_the_same_id_is_the_same_transfer(pair):
    named = {"local_blocks": [0], "remote_blocks": [0], "id": "once"}
    first = pair.client.read(pair.buffer, "a/prefill/k.0", **named)
    again = pair.client.read(pair.buffer, "a/prefill/k.0", **named)
    assert first.id == again.id == "once" and again.wait(5).state == "succeeded"
    named["remote_blocks"] = [1]
    assert code_of(pair.client.read, pair.buffer, "a/prefill/k.0", **named) == "conflict"


def test_poll_progress_details_and_await(pair):
    transfer = pair.client.read(pair.buffer, "a/prefill/k.0", local_blocks=[0], remote_blocks=[0], user_data="mine",
                                priority=3, deadline=5)
    assert 0 <= transfer.progress <= 1
    assert wait_until(lambda: transfer.done)
    assert transfer.poll().progress == 1
    details = transfer.details()
    assert details["user_data"] == "mine" and details["priority"] == 3
    assert [path["path"] for path in details["paths"]][0] == "ipc" and details["paths"][0]["reason"]
    assert transfer.cancel().state == "succeeded"  # too late, and no error

    async def both():
        reads = [pair.client.read(pair.buffer, "a/prefill/k.0", local_blocks=[i], remote_blocks=[i]) for i in (1, 2)]
        return await asyncio.gather(*reads)

    assert [status.state for status in asyncio.run(both())] == ["succeeded"] * 2


def test_a_cancelled_transfer_is_quiet(start_sidecar):
    a, b = start_sidecar("a"), start_sidecar("b")
    size = 256 * MIB
    with gantry.Client(a.run_dir, "p") as source, gantry.Client(b.run_dir, "d") as client:
        client.set_peer("a", a.peer_address)
        kept = source.register("k", source.arena(size), layout=gantry.Layout(BLOCK))
        buffer = client.register("k", client.arena(size), layout=gantry.Layout(BLOCK))
        ids = list(range(size // BLOCK))
        random.Random(3).shuffle(ids)
        transfer = client.read(buffer, "a/p/k", local_blocks=ids, remote_blocks=ids[::-1])
        status = transfer.cancel(10)
        assert status.state in ("cancelled", "succeeded")
        if status.state == "cancelled":
            assert code_of(transfer.wait, 1) == "cancelled"
            assert transfer.details()["failed_items"]
        assert kept.registered


def test_suspended_buffers_move_nothing(pair):
    pair.client.suspend([pair.buffer])
    assert code_of(pair.client.read, pair.buffer, "a/prefill/k.0", local_blocks=[0], remote_blocks=[0]) == "draining"
    pair.client.resume([pair.buffer])
    pair.client.read(pair.buffer, "a/prefill/k.0", local_blocks=[0], remote_blocks=[0]).wait(5)
    pair.source_client.suspend()
    with pytest.raises(gantry.Error):
        pair.client.read(pair.buffer, "a/prefill/k.0", local_blocks=[0], remote_blocks=[0]).wait(5)
    pair.source_client.resume()


def test_unregistered_buffers_move_nothing(pair):
    pair.buffer.unregister()
    pair.buffer.unregister()
    named = {"local_blocks": [0], "remote_blocks": [0]}
    assert code_of(pair.client.read, pair.buffer, "a/prefill/k.0", **named) == "unregistered"


def test_events_tell_of_transfers_that_ended(pair):
    transfer = pair.client.read(pair.buffer, "a/prefill/k.0", local_blocks=[0], remote_blocks=[0], wait=5)
    found = [event for event in pair.client.events(timeout=1) if event.type == "transfer"]
    assert [event.subject for event in found] == [transfer.id]
    assert found[0].fields["transfer"]["state"] == "succeeded"
    _, cursor, lost = pair.client.poll_events(0)
    assert cursor >= found[0].sequence and lost == 0
    assert pair.client.poll_events(cursor, wait=0.1)[0] == []


def test_a_peer_that_is_not_there_yet_is_named_and_found_later(client, start_sidecar):
    late = start_sidecar("late", wait=False)
    late.kill()
    began = time.monotonic()
    peer = client.set_peer("late", late.peer_address, wait=0)
    assert time.monotonic() - began < AT_ONCE_SECONDS, "without wait=0 it takes five seconds"
    assert peer["state"] == "connecting" and client.peer("late")["state"] == "connecting"
    assert code_of(client.set_peer, "late", late.peer_address, wait=-1) == "invalid_argument"
    late.start()
    assert client.set_peer("late", late.peer_address, wait=30)["state"] == "up"
    assert any(event.type == "peer_up" and event.subject == "late" for event in client.events(timeout=10))
