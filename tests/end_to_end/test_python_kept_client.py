"""gantry.KeptClient: what comes back after the sidecar was restarted, and what a dead sidecar leaves of a transfer."""

import gc
import mmap
import os
import random
import time

import pytest

from python_client_parts import BLOCK, MIB, buffers_at, client, code_of, gantry, wait_until  # noqa: F401

from test_python_mapped_arenas import Mapped, mappings

QUICK = {"check_every": 0.02}


def test_the_cache_is_registered_again_and_read_by_the_next_life(sidecar):
    memory, told = Mapped(), []

    def prepare(client):
        client.adopt(memory.fd, address=memory.map)
        return client.register("kv", memory.map, layout=gantry.Layout(BLOCK))

    with gantry.KeptClient(sidecar.run_dir, "w", prepare, changed=told.append, **QUICK) as kept:
        first, life = kept.current
        assert life == 1 and kept.prepared.registered and not told
        for lives in (2, 3):
            sidecar.kill()
            wait_until(lambda: kept.client is None)
            assert kept.prepared is None
            sidecar.start()
            wait_until(lambda: kept.client is not None)
            assert kept.current == (kept.client, lives) and kept.client is not first
            assert buffers_at(sidecar) == ["kv"] and mappings(memory) == 1
            wait_until(lambda: told[-1] is kept.client)
        assert [client is None for client in told] == [True, False, True, False]
        data = random.Random(3).randbytes(BLOCK)
        memory.map[:BLOCK] = data
        target = kept.client.arena(BLOCK)
        mine = kept.client.register("target", target, layout=gantry.Layout(BLOCK))
        kept.client.read([mine], ["w/kv"], local_blocks=[0], remote_blocks=[0]).wait(10)
        assert bytes(target[:BLOCK]) == data
        last = kept.client
    assert kept.client is None and code_of(last.check) == "cancelled" and buffers_at(sidecar) == []
    kept.close()


def test_the_first_failure_is_the_callers_and_leaves_nothing(sidecar, tmp_path):
    assert code_of(gantry.KeptClient, tmp_path, "w") == "peer_unavailable"

    def refuse(client):
        client.register("b", client.arena(BLOCK))
        raise KeyError("mine")
    with pytest.raises(KeyError, match="mine"):
        gantry.KeptClient(sidecar.run_dir, "w", refuse)
    assert buffers_at(sidecar) == []
    gantry.Client(sidecar.run_dir, "w").close()  # the name is free


def test_where_no_thread_can_be_made_it_says_so_and_leaves_nothing(sidecar, monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")
    monkeypatch.setattr("threading.Thread.start", refuse)
    assert code_of(gantry.KeptClient, sidecar.run_dir, "w", lambda client: client.arena(BLOCK)) == "resource_exhausted"
    gantry.Client(sidecar.run_dir, "w").close()  # the name is free


def test_a_life_that_cannot_be_prepared_is_tried_again(sidecar):
    calls = []

    def prepare(client):
        calls.append(client)
        if 1 < len(calls) < 4:
            raise OSError("not yet")
    with gantry.KeptClient(sidecar.run_dir, "w", prepare, **QUICK) as kept:
        sidecar.kill()
        sidecar.start()
        wait_until(lambda: kept.lives == 2)
        assert len(calls) == 4 and kept.client is calls[-1]
        assert all(code_of(client.check) == "cancelled" for client in calls[:-1])


def test_a_function_that_raises_stops_nothing(sidecar):
    def changed(client):
        raise ValueError("the caller's")
    with gantry.KeptClient(sidecar.run_dir, "w", changed=changed, **QUICK) as kept:
        sidecar.kill()
        wait_until(lambda: kept.client is None)
        sidecar.start()
        wait_until(lambda: kept.lives == 2)


def test_close_while_there_is_no_sidecar_ends_the_thread(sidecar):
    kept = gantry.KeptClient(sidecar.run_dir, "w", **QUICK)
    sidecar.kill()
    wait_until(lambda: kept.client is None)
    kept.close()
    wait_until(lambda: not kept._keeper.is_alive())
    sidecar.start()
    assert sidecar.ask("GET", "/v1/workloads")[1]["workloads"] == []


def killed_in_mid_write(sidecar):
    """Whether it was in the middle; then every byte of the target was the same a second after the loss and later."""
    size, block = 512 * MIB, 4096
    blocks = list(range(size // block))
    random.Random(5).shuffle(blocks)
    with gantry.Client(sidecar.run_dir, "w") as client:
        source, target = client.arena(size), client.arena(size)
        memoryview(source)[:] = b"\xff" * size
        layout = gantry.Layout(block)
        kept = client.register("source", source, layout=layout)
        mine = client.register("target", target, layout=layout)
        transfer = client.read([mine], [f"w/{kept.name}"], local_blocks=blocks, remote_blocks=blocks)
        wait_until(lambda: transfer.poll().bytes > 0)
        sidecar.kill()
        try:
            transfer.wait(10)
        except gantry.SidecarLost:
            pass
        time.sleep(1)
        at_first = bytes(target[::block])
        time.sleep(0.5)
        assert bytes(target[::block]) == at_first
        return 0 < at_first.count(0xFF) < len(blocks)


def test_bytes_are_still_once_the_sidecar_was_killed_in_mid_write(sidecar):
    """As a caller has it: it is told of the loss, waits a second, and uses the memory for something else."""
    for _ in range(5):  # a busy machine may kill it after the last byte
        if killed_in_mid_write(sidecar):
            return
        sidecar.start()
    raise AssertionError("it was never killed in mid-write")


def test_its_workers_die_with_a_killed_sidecar(sidecar):
    workers = [worker["pid"] for worker in sidecar.ask("GET", "/v1/status")[1]["workers"]]
    assert workers
    sidecar.kill()
    wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in workers))


def test_adopted_memory_is_not_copied_again(sidecar):
    """A copy would lose what the process writes meanwhile."""
    memory = mmap.mmap(-1, 4 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    begin = gantry.layout_of(memory).address

    def file_there():
        with open("/proc/self/maps") as lines:
            return next(line.split()[4] for line in lines if int(line.split("-")[0], 16) <= begin < int(line.split("-")[1].split()[0], 16))

    with gantry.KeptClient(sidecar.run_dir, "w", lambda client: client.register("kv", memory, adopt=True), **QUICK) as kept:
        first = file_there()
        assert first != "0"
        for _ in range(2):
            sidecar.kill()
            wait_until(lambda: kept.client is None)
            gc.collect()
            sidecar.start()
            wait_until(lambda: kept.client is not None)
            assert file_there() == first
