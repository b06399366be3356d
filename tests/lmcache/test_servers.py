"""Two servers of LMCache: one gives an engine what the other stored. The cases share them, and each leaves them as they were."""

import itertools
import os
import re
import signal
import time

import pytest
from programs import LOAD_TIMEOUT, RESTART_WAIT, TCP, until

CHUNK = 16
_prompts = itertools.count(1)


def prompt(chunks=10):
    """Tokens that no other case has, and a seed for their content."""
    number = next(_prompts)
    return [number * 100_000 + token for token in range(chunks * CHUNK)], number * 1000


def moved(sidecar, path):
    """Bytes of reads by this path until now."""
    text = sidecar.ask("GET", "/metrics")[1]
    found = re.search(rf'^gantry_transfer_bytes_total\{{op="read",path="{path}"\}} (\S+)$', text, re.MULTILINE)
    return float(found.group(1)) if found else 0.0


def reads_again(servers, reader, owner, seconds=20):
    """Until a new prompt of the owner is read by the reader; other bytes than the stored ones fail at once."""
    def read():
        tokens, seed = prompt(2)
        assert servers.engine.store(owner, tokens, seed)
        return servers.engine.fetch(reader, tokens, seed) == (2, 2)
    until(read, seconds, f"{reader} reads from {owner} again")


@pytest.mark.parametrize("reader,owner", [("two", "one"), ("one", "two")])
def test_a_server_gives_what_the_other_stored(servers, reader, owner):
    sidecar = servers.sidecars[reader == "two"]
    before = moved(sidecar, "shm")
    tokens, seed = prompt(100)
    assert servers.engine.store(owner, tokens, seed)
    assert servers.engine.fetch(reader, tokens, seed) == (100, 100)
    assert moved(sidecar, "shm") - before == 100 * 2 * 2 * CHUNK * 256


@pytest.mark.parametrize("whose", ["reader", "owner"])
def test_a_sidecar_is_killed_and_comes_back(servers, whose):
    tokens, seed = prompt()
    assert servers.engine.store("one", tokens, seed)
    sidecar = servers.sidecars[whose == "reader"]
    sidecar.kill()
    assert servers.engine.fetch("two", tokens, seed)[1] == 0
    assert servers.one.lives() and servers.two.lives()
    sidecar.start()
    reads_again(servers, "two", "one")
    assert servers.engine.fetch("two", tokens, seed) == (10, 10)  # the owner has kept it


def test_a_sidecar_that_stands_still_delays_one_lookup_and_nothing_else(servers):
    tokens, seed = prompt()
    other, its_seed = prompt()
    assert servers.engine.store("one", tokens, seed)
    assert servers.engine.store("two", other, its_seed)
    sidecar = servers.sidecars[1]
    os.kill(sidecar.process.pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        assert servers.engine.fetch("two", other, its_seed) == (10, 10)  # its own
        assert time.monotonic() - began < 2
        began = time.monotonic()
        assert servers.engine.fetch("two", tokens, seed)[1] == 0
        assert time.monotonic() - began < LOAD_TIMEOUT + 4
    finally:
        os.kill(sidecar.process.pid, signal.SIGCONT)
    reads_again(servers, "two", "one")


def test_a_server_is_killed_and_comes_back_under_its_name(servers):
    tokens, seed = prompt()
    assert servers.engine.store("one", tokens, seed)
    assert servers.engine.fetch("two", tokens, seed) == (10, 10)
    servers.one.kill()
    servers.one.start()
    servers.one.wait_until(lambda: servers.one.peers() == ["two"], "knows the other server")
    servers.engine.connect("one", servers.one.url)
    assert servers.engine.store("one", tokens, seed + 500)  # other content of the same tokens, elsewhere
    began = time.monotonic()
    until(lambda: servers.engine.fetch("two", tokens, seed + 500) == (10, 10), 30, "the new life is read")
    assert time.monotonic() - began < RESTART_WAIT + 10
    assert servers.two.lives()
    for sidecar in servers.sidecars:  # nothing is left of the life that was killed
        assert len(sidecar.ask("GET", "/v1/buffers")[1]["buffers"]) == 2  # its memory, and its fences


def test_servers_on_two_nodes_read_over_tcp(servers, folder):
    for sidecar in servers.sidecars:
        sidecar.kill()
        sidecar.flags, sidecar.node_dir = list(TCP), folder / f"node-{sidecar.name}"
        sidecar.start()
    reads_again(servers, "two", "one")
    before = moved(servers.sidecars[1], "tcp")
    tokens, seed = prompt(100)
    assert servers.engine.store("one", tokens, seed)
    assert servers.engine.fetch("two", tokens, seed) == (100, 100)
    assert moved(servers.sidecars[1], "tcp") - before == 100 * 2 * 2 * CHUNK * 256


def test_servers_end_by_themselves(servers):
    """The last case."""
    assert servers.two.stop() in (0, -signal.SIGTERM)  # its HTTP server sends itself the signal that it has caught
    assert "MPCacheServer closed" in servers.two.log
    assert servers.sidecars[1].ask("GET", "/v1/workloads")[1]["workloads"] == []
    assert servers.one.lives()
