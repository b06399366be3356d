"""Verified registration: every worker finds the nonces where its mapping says that the buffer is, or nothing is registered.

The bytes are afterwards what they were, whatever came of it.
"""

import base64
import ctypes
import mmap
import os
import signal

import pytest

from gpu_workloads import GpuCommands, Tensor, gpus
from handoff import RawWorkload
from workloads import MiB, Memory, WorkloadProcess, gantry, new_memory, send, totals_of, wait_for, workers_of

pytestmark = pytest.mark.both_vendors

PAGE = mmap.PAGESIZE
PIECE = 2 * MiB
NONCE = bytes(range(1, 17))


def map_pieces(driver, sizes):
    """Pieces of virtual memory side by side; the address of the first."""
    base, at = driver.reserve(sum(sizes)), 0
    for size in sizes:
        driver.map_piece(base + at, size)
        at += size
    return base


class Commands(GpuCommands):
    def allocate_virtual(self, name, sizes):
        self.allocations[name] = map_pieces(self.driver, sizes)

    def verify(self, *buffers):
        """(name, [(allocation, offset, length), ...]) each. The lengths of those that were registered."""
        specs = [gantry.BufferSpec(name, [Tensor(self.allocations[allocation] + offset, length)
                                          for allocation, offset, length in pieces]) for name, pieces in buffers]
        made = self.client.register_many(specs, verify=True)
        self.buffers |= {buffer.name: buffer for buffer in made}
        return [len(buffer) for buffer in made]


@pytest.fixture
def sidecar(start_sidecar):
    return start_sidecar("a", workers=2)


@pytest.fixture
def client(sidecar):
    with gantry.Client(sidecar.run_dir, "engine") as one:
        yield one


@pytest.fixture
def workload(gpus, start_sidecar):
    """A workload with a GPU; `sidecar` of it finds the same GPUs."""
    sidecar = start_sidecar("a", workers=2)
    process = WorkloadProcess(sidecar, "engine", Commands)
    process.sidecar = sidecar
    process.do("use_gpu", 0)
    yield process
    process.kill()


def states_of(sidecar):
    return {buffer["name"]: buffer["state"] for buffer in sidecar.ask("GET", "/v1/debug/buffers")[1]["buffers"]}


def nothing_is_registered(sidecar):
    totals = totals_of(sidecar)
    mappings = [worker["mappings"] for worker in sidecar.ask("GET", "/v1/status")[1]["workers"]]
    return totals["buffers"] == totals["allocations"] == 0 and mappings == [0, 0]


def filled(client, size):
    arena = client.arena(size)
    data = os.urandom(len(arena))
    arena[:] = data
    return arena, data


def places(*nonces):
    return [{"offset": offset, "nonce": base64.b64encode(nonce).decode()} for offset, nonce in nonces]


# Memory of the host.

@pytest.mark.parametrize("length", [1, 2, 15, 16, 17, 31, 32, 33, PAGE, MiB])
def test_the_bytes_of_an_arena_are_what_they_were(sidecar, client, length):
    arena, data = filled(client, MiB + PAGE)
    buffer = client.register("kv", arena.view(PAGE - 1, length), verify=True)
    assert len(buffer) == length and states_of(sidecar) == {"kv": "active"}
    assert arena[:] == data


def test_buffers_that_overlap_and_pieces_of_one_byte(sidecar, client):
    first, data = filled(client, MiB)
    second, more = filled(client, MiB)
    specs = [gantry.BufferSpec("whole", first), gantry.BufferSpec("inside", first.view(8, 20)),
             gantry.BufferSpec("both", [first.view(0, 5), second.view(7, 1), second.view(8, 1), first.view(MiB - 3, 3)]),
             gantry.BufferSpec("twice", [first.view(100, 40), first.view(110, 10)])]
    made = client.register_many(specs, verify=True)
    assert [len(buffer) for buffer in made] == [MiB, 20, 10, 50]
    assert set(states_of(sidecar).values()) == {"active"}
    assert (first[:], second[:]) == (data, more)


def test_one_memfd_at_two_addresses(sidecar, client):
    memory = Memory(MiB, filled=True)
    data = memory.map[:]
    one, other = client.adopt(memory.fd), client.adopt(memory.fd)
    client.register_many([gantry.BufferSpec("one", one), gantry.BufferSpec("other", other.view(4, MiB - 8))], verify=True)
    assert memory.map[:] == data
    memory.close()


def test_verified_buffers_move(sidecar, client):
    arena, data = filled(client, 2 * MiB)
    _, into = client.register_layers("k", [arena.view(0, MiB), arena.view(MiB, MiB)], verify=True)
    assert client.read(into, "engine/k.0", ranges=[(0, 0, 0, 0, MiB)]).wait(20).state == "succeeded"
    assert arena[:] == data[:MiB] + data[:MiB]


def test_verifying_again_what_is_registered(sidecar, client):
    arena, data = filled(client, MiB)
    first = client.register("kv", arena, verify=True)
    second = client.register("kv", arena, verify=True)
    assert first.id == second.id and states_of(sidecar) == {"kv": "active"} and arena[:] == data


def test_an_arena_that_lies_at_another_address_than_was_said(sidecar, client):
    """The library is told that the memfd is mapped where another one is: nothing else would ever notice."""
    memory, elsewhere = Memory(MiB, filled=True), Memory(MiB, filled=True)
    before = memory.map[:], elsewhere.map[:]
    address = ctypes.addressof(ctypes.c_char.from_buffer(elsewhere.map))
    arena, buffer = ctypes.c_void_p(), ctypes.c_void_p()
    lib = gantry.native.lib
    gantry.native.check(lib.gantry_arena_adopt(client._handle, memory.fd, MiB, address, ctypes.byref(arena)))
    spec = gantry.native.NativeBufferSpec(name=b"kv", pieces=(gantry.native.Piece * 1)((address, MiB)), piece_count=1)
    with pytest.raises(gantry.Error) as caught:
        gantry.native.check(lib.gantry_buffers_register_verified(client._handle, spec, 1, ctypes.byref(buffer)))
    assert caught.value.code == "verification_failed", caught.value
    assert "buffer 'kv'" in caught.value.args[1] and "at offset 0" in caught.value.args[1]
    assert nothing_is_registered(sidecar)
    assert before == (memory.map[:], elsewhere.map[:])
    lib.gantry_arena_destroy(arena)


def test_an_arena_that_cannot_be_written_to_is_refused(sidecar, client):
    memory = Memory(MiB, filled=True)
    before = memory.map[:]
    fd = os.open(f"/proc/self/fd/{memory.fd}", os.O_RDONLY)
    arena = client.adopt(fd)
    os.close(fd)
    writable, data = filled(client, MiB)
    specs = [gantry.BufferSpec("good", writable), gantry.BufferSpec("bad", arena)]
    with pytest.raises(gantry.Error) as caught:
        client.register_many(specs, verify=True)
    assert caught.value.code == "fd_read_only", caught.value
    assert nothing_is_registered(sidecar)
    assert memory.map[:] == before and writable[:] == data, "what was written before the refusal is restored"
    memory.close()


def test_bytes_are_restored_when_the_sidecar_does_not_answer_in_time(sidecar):
    with gantry.Client(sidecar.run_dir, "engine", timeout=0.5) as client:
        arena, data = filled(client, MiB)
        workers = workers_of(sidecar)
        send(workers, signal.SIGSTOP)
        with pytest.raises(gantry.Error):
            client.register("kv", arena, verify=True)
        assert arena[:] == data
        send(workers, signal.SIGCONT)
        wait_for(lambda: nothing_is_registered(sidecar), 20, "the registration to fail: the nonces are gone")


# Callers of raw REST, whose mistakes nothing else catches.

@pytest.fixture
def raw(sidecar, new_memory):
    workload = RawWorkload(sidecar, "raw")
    workload.memory = new_memory(4 * PAGE, filled=True)
    yield workload
    workload.close()


def test_a_verified_buffer_is_suspended_until_it_is_resumed(sidecar, raw):
    memory = raw.memory
    memory.map[100:116] = NONCE
    memory.map[3 * PAGE - 1:3 * PAGE] = b"\x42"
    status, answer = raw.register(raw.hand_over(memory.fd)[0], memory.size, [(100, PAGE), (3 * PAGE - 1, 1)],
                                  verify=places((0, NONCE), (PAGE, b"\x42"), (5, NONCE[5:])))
    assert (status, answer["buffers"][0]["state"]) == (201, "suspended"), answer
    assert [worker["mappings"] for worker in sidecar.ask("GET", "/v1/status")[1]["workers"]] == [1, 1], "what was verified stays"
    authorized = {"Authorization": f"Bearer {raw.token}"}
    status, problem = sidecar.ask("POST", "/v1/transfers", {
        "workload": "raw", "op": "read", "local": ["kv"], "remote": ["raw/kv"], "ranges": [[0, 0, 0, 100, 10]]}, authorized)
    assert (status, problem["code"]) == (409, "draining"), problem
    assert sidecar.ask("POST", "/v1/buffers:resume", {"workload": "raw", "buffers": ["kv"]}, authorized)[0] == 200
    assert states_of(sidecar) == {"kv": "active"}


@pytest.mark.parametrize("shift", [-PAGE, -1, 1, PAGE])
def test_an_offset_that_is_wrong_by_a_page_or_a_byte(sidecar, raw, shift):
    memory = raw.memory
    memory.map[PAGE:PAGE + 16] = NONCE
    status, problem = raw.register(raw.hand_over(memory.fd)[0], memory.size, [(PAGE + shift, PAGE)], verify=places((0, NONCE)))
    assert (status, problem["code"]) == (422, "verification_failed"), problem
    assert problem["field"] == "/buffers/0/verify/0" and "offset" in problem["hint"]
    found = memory.map[PAGE + shift:PAGE + shift + 16]
    assert f"copy worker 0 has mapped for it: at offset 0 it found {found.hex()}" in problem["detail"], problem
    assert nothing_is_registered(sidecar)


def test_other_memory_of_the_same_size_and_all_of_the_request_is_refused(sidecar, raw, new_memory):
    right, wrong = raw.memory, new_memory(raw.memory.size, filled=True)
    right.map[:16] = NONCE
    tokens = raw.hand_over(right.fd, wrong.fd)
    body = {"workload": "raw", "allocations": [{"kind": "host", "fd_token": token, "size": right.size} for token in tokens],
            "buffers": [{"name": name, "pieces": [{"allocation": index, "offset": 0, "length": right.size}], "verify": said}
                        for index, (name, said) in enumerate([("right", places((0, NONCE))), ("wrong", places((0, NONCE)))])]}
    status, problem = sidecar.ask("POST", "/v1/buffers", body, {"Authorization": f"Bearer {raw.token}"})
    assert (status, problem["code"], problem["field"]) == (422, "verification_failed", "/buffers/1/verify/0"), problem
    assert nothing_is_registered(sidecar)


def test_a_seam_is_looked_at_on_both_sides(sidecar, raw):
    memory = raw.memory
    memory.map[PAGE - 8:PAGE], memory.map[2 * PAGE:2 * PAGE + 8] = NONCE[:8], NONCE[8:]
    token = raw.hand_over(memory.fd)[0]
    status, problem = raw.register(token, memory.size, [(0, PAGE), (3 * PAGE, 8)], verify=places((PAGE - 8, NONCE)))
    assert (status, problem["code"]) == (422, "verification_failed") and f"at offset {PAGE} " in problem["detail"], problem
    assert raw.register(token, memory.size, [(0, PAGE), (2 * PAGE, 8)], verify=places((PAGE - 8, NONCE)))[0] == 201


@pytest.mark.parametrize("said, code, field", [
    (places((PAGE - 15, NONCE)), "out_of_range", "/buffers/0/verify/0/offset"),
    (places((2**63 - 1, NONCE)), "out_of_range", "/buffers/0/verify/0/offset"),
    (places((0, NONCE), (PAGE, b"x")), "out_of_range", "/buffers/0/verify/1/offset"),
    (places((0, b"")), "invalid_argument", "/buffers/0/verify/0/nonce"),
    (places((0, NONCE + b"x")), "invalid_argument", "/buffers/0/verify/0/nonce"),
    ([{"offset": 0, "nonce": "?"}], "invalid_argument", "/buffers/0/verify/0/nonce"),
    ([], "invalid_argument", "/buffers/0/verify"),
])
def test_places_outside_of_the_buffer_and_nonces_that_are_none(sidecar, raw, said, code, field):
    status, problem = raw.register(raw.hand_over(raw.memory.fd)[0], raw.memory.size, [(0, PAGE)], verify=said)
    assert (status, problem["code"], problem["field"]) == (400, code, field), problem
    assert nothing_is_registered(sidecar)


# Memory of a GPU.

def filled_on_gpu(workload, name, size):
    data = os.urandom(size)
    workload.do("fill", name, 0, data)
    return data


@pytest.mark.parametrize("offset, length", [(0, MiB), (512, 4097), (3, 1), (MiB - 20, 20), (PAGE, 31)])
def test_memory_of_one_handle(workload, offset, length):
    workload.do("allocate", "kv", MiB)
    data = filled_on_gpu(workload, "kv", MiB)
    assert workload.do("verify", ("k", [("kv", offset, length)])) == [length]
    assert states_of(workload.sidecar) == {"k": "active"}
    assert workload.do("look", "kv", 0, MiB) == data


def test_pieces_of_virtual_memory_and_other_memory_in_one_request(workload):
    workload.do("allocate_virtual", "kv", [PIECE, 2 * PIECE, PIECE])
    workload.do("allocate", "plain", MiB)
    data, plain = filled_on_gpu(workload, "kv", 4 * PIECE), filled_on_gpu(workload, "plain", MiB)
    wanted = [("over", [("kv", PIECE - 3, 2 * PIECE + 10)]), ("all", [("kv", 0, 4 * PIECE)]),
              ("mixed", [("plain", 1, 3), ("kv", PIECE - 1, 2), ("plain", 2, 1)])]
    assert workload.do("verify", *wanted) == [2 * PIECE + 10, 4 * PIECE, 6]
    assert set(states_of(workload.sidecar).values()) == {"active"}
    assert workload.do("look", "kv", 0, 4 * PIECE) == data and workload.do("look", "plain", 0, MiB) == plain


@pytest.mark.parametrize("handle_of, offset", [("wrong", 512), ("right", 512 + PAGE), ("right", 256), ("right", 512)])
def test_the_handle_of_another_allocation_or_a_wrong_offset(workload, handle_of, offset):
    for name in ("right", "wrong"):
        workload.do("allocate", name, MiB)
        filled_on_gpu(workload, name, MiB)
    workload.do("fill", "right", 512, NONCE)
    allocation = {"kind": "gpu", "size": MiB, "device_uuid": workload.do("device_uuid"), "buffer_id": 4711, "pid": workload.pid,
                  "ipc_handle": workload.do("ipc_handle", handle_of)}
    body = {"workload": "engine", "allocations": [allocation],
            "buffers": [{"name": "kv", "pieces": [{"allocation": 0, "offset": offset, "length": 4096}],
                         "verify": places((0, NONCE))}]}
    if (handle_of, offset) == ("right", 512):
        assert workload.do("request", "POST", "/v1/buffers", body)["buffers"][0]["state"] == "suspended"
        return
    with pytest.raises(gantry.Error) as caught:
        workload.do("request", "POST", "/v1/buffers", body)
    assert caught.value.code == "verification_failed", caught.value
    assert nothing_is_registered(workload.sidecar)


def test_gpu_bytes_are_restored_when_another_buffer_is_refused(workload):
    workload.do("allocate", "kv", MiB)
    data = filled_on_gpu(workload, "kv", MiB)
    workload.do("verify", ("k", [("kv", 0, MiB)]))
    with pytest.raises(gantry.Error) as caught:
        workload.do("verify", ("new", [("kv", 0, 100)]), ("k", [("kv", 1, 100)]))  # the name is taken
    assert caught.value.code == "conflict", caught.value
    assert workload.do("look", "kv", 0, MiB) == data
    assert states_of(workload.sidecar) == {"k": "active"}
