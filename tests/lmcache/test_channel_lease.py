"""The channel's lease, its memory, and peers that others have: in one process for each server."""

import json
import threading
import time

import pytest
from channel_parts import (MIB, QUIESCE_SECONDS, end_of, heals, opened, peers_of, read_some, running, slow_workers, stopped)
from conftest import sidecar_in
from programs import TCP, Failed, free_port, until


def test_the_memory_is_not_copied_when_its_sidecar_comes_back(channels):
    """A copy would lose what LMCache writes meanwhile."""
    sidecar = channels.sidecar("kept")
    process, url = opened(channels, sidecar)
    before = process.inode()
    assert before and process.status()["is_healthy"]
    writer = threading.Thread(target=lambda: said.append(process.write_all_the_time(6)))
    said = []
    writer.start()
    sidecar.kill()
    time.sleep(0.5)
    sidecar.start()
    writer.join()
    assert said[0][0] > 1000 and said[0][1] == 0
    until(lambda: process.status()["is_healthy"], 10, "the lease is back")
    assert process.inode() == before
    sidecar.kill()
    until(lambda: not process.status()["is_healthy"], 10, "the lease is lost")
    process.close()
    channels.give_back(process)


def test_another_adapter_before_the_channel_is_refused(channels):
    process = channels.process()
    process.use_other_adapter_first()
    with pytest.raises(Failed, match="conflict: the L2 adapter OtherAdapter was made before GantryChannel"):
        process.open(f"127.0.0.1:{free_port()}", {"run_dir": "/none"}, MIB)
    process.forget_other_adapter()
    channels.give_back(process)


def test_a_read_is_over_at_its_deadline_though_the_sidecar_took_it_late(channels):
    """The sidecar counts the deadline from when it takes the request. The owner's stands still, so no byte comes."""
    channels.warm(2)
    sidecars = [channels.sidecar(name, flags=TCP, node_dir=channels.folder / f"node-{name}") for name in ("lr", "lo")]
    (reader, _), (owner, url) = (opened(channels, sidecar, require_path=["tcp"], read_deadline=5) for sidecar in sidecars)
    reader.connect(url)
    owner.shuffle(8)
    assert read_some(reader, owner, url) == [True] * 100
    with stopped(sidecars[1]), slow_workers(sidecars[1]):
        with stopped(sidecars[0]):
            began, before = time.monotonic(), len(reader.log)
            task, _ = reader.submit(url, [(0, MIB)], [(MIB, MIB)])
            time.sleep(4)
        flags = end_of(reader, url, task)
        took = time.monotonic() - began
    assert flags == [False] and 4.9 < took < 5 + QUIESCE_SECONDS + 0.9, (flags, took, reader.log[before:])
    assert "cancelled: the transfer was cancelled by its caller" in reader.log[before:]
    for process in (reader, owner):
        process.close()
        channels.give_back(process)


def test_a_lost_lease_is_no_dead_sidecar(channels):
    channels.warm(2)
    sidecars = [channels.sidecar(name, flags=TCP, node_dir=channels.folder / f"node-{name}") for name in ("ar", "ao")]
    (reader, _), (owner, url) = (opened(channels, sidecar, require_path=["tcp"], read_deadline=9) for sidecar in sidecars)
    reader.connect(url)
    assert read_some(reader, owner, url) == [True] * 100
    with stopped(sidecars[1]), slow_workers(sidecars[1]):
        task, _ = reader.submit(url, [(0, MIB)], [(MIB, MIB)])
        until(lambda: running(sidecars[0]), 3, "the read runs")
        began = time.monotonic()
        reader.drop_lease()
        assert end_of(reader, url, task) == [False]
        assert time.monotonic() - began > QUIESCE_SECONDS + 0.9
    heals(reader, owner, url)
    for process in (reader, owner):
        process.close()
        channels.give_back(process)


def test_a_peer_of_another_program_is_not_deleted(channels):
    own, there = channels.sidecar("pr"), channels.sidecar("po")
    (reader, _), (dead, its_url) = (opened(channels, sidecar) for sidecar in (own, there))
    assert reader.set_peer("po", there.peer_address) == "up"  # as an engine's connector does
    reader.connect(its_url)
    assert read_some(reader, dead, its_url, 2) == [True, True]
    there.kill()
    reader.remove(its_url)
    time.sleep(8)
    assert peers_of(own) == ["po"]
    reader.close()
    channels.give_back(reader)
    dead.kill()


def test_two_sidecars_of_one_name_are_refused(channels):
    channels.warm(2)
    folders = [channels.folder / f"twin{number}" for number in range(2)]
    for folder in folders:
        folder.mkdir()
    sidecars = [sidecar_in(folder, channels.stack, "twin", flags=TCP, node_dir=folder / "node") for folder in folders]
    (reader, _), (owner, url) = (opened(channels, sidecar) for sidecar in sidecars)
    with pytest.raises(Failed, match="conflict: two sidecars have the name twin, and one of them is at 127"):
        reader.connect(url)
    for process in (reader, owner):
        process.close()
        channels.give_back(process)


ANSWER = {"gantry_lmcache": 1, "life": "l", "age": 1.5, "peer": "p", "sidecar": "1f", "address": "127.0.0.1:7000", "node_id": "n",
          "workload": "w@1", "buffer": "l1@1", "size": 1}


@pytest.mark.parametrize("wrong", [
    {"age": float("nan")}, {"age": -1}, {"age": 1e9}, {"peer": "../p"}, {"peer": "p" * 129}, {"address": "7000"}, {"workload": "w"}, {"size": -1},
    {"sidecar": ""}])
def test_answers_that_cannot_be_are_refused(channels, wrong):
    process = channels.process()
    assert process.call("channel_handshake", "handshake_of", json.dumps(ANSWER).encode())["age"] == 1.5
    with pytest.raises(Failed, match="version_mismatch: "):
        process.call("channel_handshake", "handshake_of", json.dumps(ANSWER | wrong).encode())
    channels.give_back(process)


def test_a_sidecar_at_another_host_is_refused(channels):
    process = channels.process()
    for url, address in (("127.0.0.1:7605", "127.0.0.1:7000"), ("localhost:7605", "127.0.0.1:7000"), ("localhost:7605", "localhost:7000"),
                         ("127.0.0.1:7605", "unix:/run/gantry/node/p.peer.sock")):
        process.call("channel_handshake", "_check_host", url, address)
    for address in ("127.0.0.2:7000", "localhost:7000"):  # a name is not resolved: it may be another address later
        with pytest.raises(Failed, match=f"invalid_argument: the server at 127.0.0.1:7605 says that its sidecar is at {address}"):
            process.call("channel_handshake", "_check_host", "127.0.0.1:7605", address)
    channels.give_back(process)


def test_lmcaches_timeout_is_read_from_its_command_line(channels):
    process = channels.process()
    for words, seconds in ((["--p2p-load-timeout", "10"], 10), (["--p2p-load-timeout=11"], 11), (["--p2p-load-t", "12"], 12), ([], 30),
                           (["--p2p-lookup-timeout", "3"], 30)):
        assert process.call("channel_settings", "load_timeout_of", ["lmcache", "server", *words]) == seconds
    with pytest.raises(Failed, match="ValueError: --p2p-load-timeout is 30 s"):
        process.open("127.0.0.1:1", {"run_dir": "/none", "read_deadline": 25}, MIB)
    channels.give_back(process)
