"""Memory that the caller has mapped itself: where buffers are found, who keeps it, and what a new sidecar needs."""

import ctypes
import fcntl
import gc
import mmap
import os
import random

import pytest

from python_client_parts import BLOCK, MIB, buffers_at, client, code_of, gantry, wait_until  # noqa: F401

from gantry.address import address_of


class Mapped:
    """A sealed memfd that this process has mapped once."""

    def __init__(self, size=MIB):
        self.fd = os.memfd_create("callers-own", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, size)
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        self.map = mmap.mmap(self.fd, size)
        self.address = address_of(self.map)[0]


def mappings(memory):
    with open("/proc/self/maps") as maps:
        return sum(line.split()[4] == str(os.fstat(memory.fd).st_ino) for line in maps if "memfd:callers-own" in line)


@pytest.mark.parametrize("by", ["number", "view"])
def test_buffers_are_found_in_the_callers_mapping(client, by):
    memory = Mapped()
    arena = client.adopt(memory.fd, address=memory.address if by == "number" else memory.map)
    assert (len(arena), arena.address, mappings(memory)) == (MIB, memory.address, 1)
    buffer = client.register("b", memoryview(memory.map)[5000:6000])
    assert client.resolve(memoryview(memory.map)[5000:5001]) == [(memory.address, 5000, 1)]
    memory.map[70:73] = b"abc"
    assert bytes(arena.view(70, 3)) == b"abc"
    assert code_of(arena.view, MIB, 1) == "out_of_range"
    assert os.fstat(arena.fileno()).st_ino == os.fstat(memory.fd).st_ino
    arena.close()
    arena.close()
    assert not buffer.registered and arena.closed
    assert code_of(client.register, "b", memory.map) == "not_exportable"
    memory.map[0] = 1  # it is still the caller's


def test_an_arena_that_is_dropped_goes_on_and_ends_with_its_client(sidecar):
    memory = Mapped()
    with gantry.Client(sidecar.run_dir, "w") as client:
        client.adopt(memory.fd, address=memory.map)
        gc.collect()
        buffer = client.register("b", memory.map)
        assert buffer.registered and buffers_at(sidecar) == ["b"]
    assert not buffer.registered


def test_addresses_that_cannot_be_right_are_refused(client):
    memory = Mapped()
    for address, what in ((memory.address + 64, "begins in no page"), (1 << 20, "not all is mapped"), (0, "no address"),
                          (-4096, "no address"), (memoryview(memory.map)[:4096], "the mapping has 4096 bytes")):
        with pytest.raises(gantry.Error) as caught:
            client.adopt(memory.fd, address=address)
        assert (caught.value.code, caught.value.field) == ("invalid_argument", "address"), address
        assert what in caught.value.message
    assert code_of(client.adopt, memory.fd, 2 * MIB, address=memory.map) == "fd_too_short"
    client.adopt(memory.fd, address=memory.map)
    assert code_of(client.adopt, memory.fd, address=memory.map) == "conflict"


def test_memory_that_is_not_the_descriptors_is_found_by_verification(client):
    memory, other = Mapped(), Mapped()
    client.adopt(memory.fd, address=other.map)
    assert code_of(client.register, "b", other.map, verify=True) == "verification_failed"


def test_a_new_sidecar_needs_no_new_mapping(start_sidecar):
    a, b = start_sidecar("a"), start_sidecar("b")
    with gantry.Client(a.run_dir, "prefill") as owner, owner.arena(MIB) as arena:
        arena[:MIB] = random.Random(3).randbytes(MIB)
        _source = owner.register("k", arena, layout=gantry.Layout(BLOCK))
        memory = Mapped()
        shown = (ctypes.c_char * MIB).from_address(memory.address)
        for life in range(2):
            client = gantry.Client(b.run_dir, "decode")
            client.set_peer("a", a.peer_address)
            client.adopt(memory.fd, address=memory.map)
            local = client.register("k", shown, layout=gantry.Layout(BLOCK))
            client.read(local, "a/prefill/k", local_blocks=[life], remote_blocks=[7 + life]).wait(10)
            assert memory.map[life * BLOCK:(life + 1) * BLOCK] == arena[(7 + life) * BLOCK:(8 + life) * BLOCK]
            assert mappings(memory) == 1
            if life == 0:
                b.kill()
                b.start()
        client.close()
