"""The channel's objects, used as LMCache's P2P adapter uses them, in one process for each server."""

import os
import socket
import subprocess
import time

import pytest
from channel_parts import (AT_ONCE, AT_ONCE_SECONDS, BUFFERS, MIB, REQUEST_SECONDS, RESTART_WAIT, SIZE, end_of, heals, opened, peers_of,
                           read_some, running, slow_workers, stopped)
from programs import BIN_DIR, READ_DEADLINE, TCP, Failed, free_port, until


@pytest.fixture(scope="module")
def pair(channels):
    """(reader, its sidecar, owner, its sidecar, the owner's URL) on one node. A case leaves both as they were."""
    channels.warm(2)
    sidecars = [channels.sidecar(name) for name in ("r", "o")]
    reader, _ = opened(channels, sidecars[0])
    owner, url = opened(channels, sidecars[1])
    reader.connect(url)
    owner.shuffle(7)
    return reader, sidecars[0], owner, sidecars[1], url


def test_objects_arrive_whole_and_nothing_else(pair):
    reader, _, owner, _, url = pair
    assert read_some(reader, owner, url) == [True] * 100
    assert owner.connected() == 0  # reading needs nothing of the owner but its answer
    assert reader.kept_tasks(url) == 0


def test_over_tcp(channels):
    channels.warm(2)
    sidecars = [channels.sidecar(name, flags=TCP, node_dir=channels.folder / f"node-{name}") for name in ("tr", "to")]
    (reader, _), (owner, url) = (opened(channels, sidecar, require_path=["tcp"]) for sidecar in sidecars)
    reader.connect(url)
    owner.shuffle(8)
    assert read_some(reader, owner, url) == [True] * 100
    for process in (reader, owner):
        process.close()
        channels.give_back(process)


@pytest.mark.parametrize("local,remote,said", [
    ([(0, 4096)], [(SIZE - 4095, 4096)], "out_of_range"),
    ([(0, 4096), (8192, 4096)], [(0, 4096), (8192, 8192)], "an object has 8192 bytes there, and 4096 here"),
    ([(0, 4096)], [(0, 4096), (4096, 4096)], "there are 1 local and 2 remote addresses"),
    ([(0, 4096), (0, 4096)], [(0, 4096), (SIZE // 2, 4096)], "overlap"),  # two objects at one place
])
def test_reads_that_cannot_be_are_misses_and_no_exception(pair, local, remote, said):
    reader, _, owner, _, url = pair
    reader.fill(0, SIZE, 3)
    before = len(reader.log)
    assert reader.read(url, local, remote) == [False] * len(local)
    assert said in reader.log[before:]
    assert reader.bytes(0, 16) == b"\x03" * 16
    heals(reader, owner, url)


def test_a_sidecar_that_stands_still_holds_no_call_up(pair):
    reader, sidecar, owner, _, url = pair
    reader.fill(0, SIZE, 5)
    with stopped(sidecar):
        task, took = reader.submit(url, [(0, MIB)], [(MIB, MIB)])
        assert took < AT_ONCE_SECONDS
        began, finished = time.monotonic(), False
        while not finished:
            assert time.monotonic() - began < READ_DEADLINE + REQUEST_SECONDS + 2
            finished, flags, took = reader.query(url, task)
            assert took < AT_ONCE_SECONDS
            time.sleep(0.1)
        assert flags == [False]
        assert reader.connect(url) < AT_ONCE_SECONDS
    time.sleep(READ_DEADLINE + 1)  # the sidecar finds the request now
    assert reader.bytes(0, MIB) == b"\x05" * MIB
    heals(reader, owner, url)


def test_a_read_that_begins_late_moves_nothing(pair):
    reader, sidecar, owner, _, url = pair
    assert read_some(reader, owner, url) == [True] * 100
    reader.fill(0, SIZE, 5)
    with stopped(sidecar):
        tasks = [reader.submit(url, [(0, MIB)], [(MIB, MIB)])[0] for _ in range(AT_ONCE)]
        surplus, _ = reader.submit(url, [(0, MIB)], [(MIB, MIB)])
        assert reader.query(url, surplus)[:2] == (True, [False])  # threads are bounded
        time.sleep(READ_DEADLINE + 1)
    assert all(end_of(reader, url, task) == [False] for task in tasks)
    assert reader.kept_tasks(url) == 0
    time.sleep(0.5)
    assert reader.bytes(0, MIB) == b"\x05" * MIB
    heals(reader, owner, url)


def test_a_server_that_comes_back_is_not_read_by_old_addresses(channels, pair):
    reader = pair[0]
    channels.warm(2)
    sidecar = channels.sidecar("again")
    first, url = opened(channels, sidecar)
    first.fill(0, SIZE, 1)
    reader.connect(url)
    assert reader.read(url, [(0, MIB)], [(0, MIB)]) == [True]
    first.kill()
    second, _ = opened(channels, sidecar, url)
    born = time.monotonic()
    second.fill(0, SIZE, 2)
    reader.fill(0, SIZE, 0)
    while time.monotonic() - born < RESTART_WAIT - 2:  # LMCache may still have addresses of the first life
        assert reader.read(url, [(0, MIB)], [(0, MIB)]) == [False]
        time.sleep(0.2)
    assert reader.bytes(0, 4096) == bytes(4096)
    assert "the server was restarted" in reader.log
    until(lambda: reader.read(url, [(0, MIB)], [(0, MIB)]) == [True], 10, "the new life is read")
    assert reader.bytes(0, 4096) == b"\x02" * 4096
    # Its sidecar goes as well: then nothing of it is left here.
    second.kill()
    sidecar.kill()
    assert "again" in peers_of(pair[1])
    assert reader.remove(url) < AT_ONCE_SECONDS
    until(lambda: "again" not in peers_of(pair[1]), 20, "the peer is forgotten")


@pytest.mark.parametrize("whose", [1, 3])
def test_a_sidecar_is_killed_while_it_is_read(pair, whose):
    """`whose`: the reader's or the owner's."""
    reader, _, owner, _, url = pair
    heals(reader, owner, url)
    reader.fill(0, SIZE, 0)
    objects = [(offset, 4 * MIB) for offset in range(0, SIZE, 4 * MIB)]
    with slow_workers(pair[1]):
        task, _ = reader.submit(url, objects, objects)
        until(lambda: running(pair[1]), 2, "the read runs")
        pair[whose].kill()
    flags = end_of(reader, url, task)
    if whose == 1:
        assert flags == [False] * len(objects)
    then = reader.bytes(0, SIZE)
    right = owner.bytes(0, SIZE)
    for (offset, size), arrived in zip(objects, flags):
        assert not arrived or then[offset:offset + size] == right[offset:offset + size]
    time.sleep(0.5)
    assert reader.bytes(0, SIZE) == then  # failed means quiet
    pair[whose].start()
    heals(reader, owner, url)


def test_a_client_that_is_made_anew_keeps_its_peer(pair):
    reader, _, owner, _, url = pair
    for _ in range(3):
        reader.replace(url)
    time.sleep(1)
    claims, left = reader.needed_peers()
    assert url in claims and "o" not in left
    assert "o" in peers_of(pair[1])
    heals(reader, owner, url)


def test_nothing_is_left_of_clients_that_come_and_go(pair):
    reader, sidecar, owner, _, url = pair
    for _ in range(5):
        reader.remove(url)
        assert reader.connected() == 0
        assert reader.connect(url) < 1
        assert read_some(reader, owner, url, 2) == [True, True]
    assert reader.connected() == 1
    assert peers_of(sidecar) == ["o"]
    assert len(sidecar.ask("GET", "/v1/buffers")[1]["buffers"]) == BUFFERS


def test_a_server_that_does_not_answer_costs_three_seconds(pair):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        began = time.monotonic()
        with pytest.raises(Failed, match="peer_unavailable: the LMCache server at .* does not answer within 3 s"):
            pair[0].connect(f"127.0.0.1:{silent.getsockname()[1]}")
        assert time.monotonic() - began < 5
    assert pair[0].connected() == 1


def test_questions_of_strangers_are_refused(pair):
    reader, _, owner, _, url = pair
    for question in (b"\xff\x00", b"[" * 4000, b'{"gantry_lmcache": 2}'):
        assert b"version_mismatch" in owner.ask(url, question)
    assert owner.ask(url, b" " * 5000) is None  # too long
    assert b"version_mismatch" in owner.ask_in_parts(url, [b"x"] * 100)
    began = time.monotonic()
    assert b"version_mismatch" in owner.ask(url, b"[")
    assert time.monotonic() - began < 1
    reader.remove(url)
    reader.connect(url)
    heals(reader, owner, url)


def test_the_start(channels, pair):
    channels.warm(1)
    _, sidecar, *_ = pair
    process, url = channels.process(), f"127.0.0.1:{free_port()}"
    with pytest.raises(Failed, match="ValueError: adapter_params of GantryChannel has run_dri; it knows"):
        process.open(url, {"run_dri": "/"}, MIB)
    with pytest.raises(Failed, match="peer_unavailable"):
        process.open(url, {"run_dir": str(sidecar.run_dir.parent / "none"), "start_timeout": 1}, MIB)
    with pytest.raises(Failed, match="conflict: the transfer channel cannot listen at"):
        process.open(pair[4], {"run_dir": str(sidecar.run_dir)}, SIZE)
    process.open(url, {"run_dir": str(sidecar.run_dir)}, SIZE)
    assert len(sidecar.ask("GET", "/v1/buffers")[1]["buffers"]) == 2 * BUFFERS
    assert process.close() < 3
    assert len(sidecar.ask("GET", "/v1/buffers")[1]["buffers"]) == BUFFERS
    process.open(url, {"run_dir": str(sidecar.run_dir)}, SIZE)  # the port is free
    with stopped(sidecar):
        assert process.close() < 7
        began = time.monotonic()
        process.end()
        assert time.monotonic() - began < 15


def takes_unsealed():
    """Whether the sidecar that is tested can take files that their owner can truncate."""
    return "--unsealed-memory" in subprocess.run([BIN_DIR / "gantry-sidecar", "--help"], capture_output=True, text=True).stdout


def named(channels, sidecar):
    """(a process whose L1 memory is a segment of POSIX shared memory, its URL)"""
    process, url = channels.process(), f"127.0.0.1:{free_port()}"
    process.open(url, {"run_dir": str(sidecar.run_dir), "read_deadline": READ_DEADLINE}, SIZE, f"lmcache_l1_pool_{url.rpartition(':')[2]}")
    return process, url


def test_memory_with_a_name_is_refused_by_default(channels, pair):
    with pytest.raises(Failed, match="not_exportable|fd_not_sealed"):
        named(channels, pair[1])


@pytest.mark.skipif(not takes_unsealed(), reason="this sidecar has no --unsealed-memory")
def test_memory_with_a_name(channels):
    channels.warm(2)
    sidecars = [channels.sidecar(name, flags=("--unsealed-memory",)) for name in ("nr", "no")]
    (reader, _), (owner, url) = (named(channels, sidecar) for sidecar in sidecars)
    reader.connect(url)
    owner.shuffle(9)
    assert read_some(reader, owner, url) == [True] * 100
    for process in (reader, owner):
        process.close()
        process.free()
        assert "BufferError" not in process.log
