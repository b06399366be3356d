"""Memory beside a connection: small requests go through it while the other end looks, and all else over the socket."""

import os
import random
import signal
import socket
import threading
import time
from pathlib import Path

import pytest

from conftest import UnixConnection
from python_client_parts import BLOCK, Pair, gantry, wait_until
from workloads import metric

LOOKING = ["--spin-us", "200000"]
MOST = 64
MAILBOX = "gantry_http_mailbox_requests_total"


@pytest.fixture
def looking(start_sidecar):
    return Pair(start_sidecar, flags=LOOKING)


def move(pair, rounds):
    for _ in range(rounds):
        there, here = random.randrange(pair.BLOCKS), random.randrange(pair.BLOCKS)
        status = pair.client.read(pair.buffer, "a/prefill/k.0", local_blocks=[here], remote_blocks=[there], wait=10).wait()
        assert status.state == "succeeded"
        assert pair.target[here * BLOCK:(here + 1) * BLOCK] == pair.source[there * BLOCK:(there + 1) * BLOCK]
    assert pair.neighbours_are_untouched()


def mailboxes_of(sidecar):
    return Path(f"/proc/{sidecar.process.pid}/maps").read_text().count("gantry-mailbox")


def test_a_client_that_asks_often_is_answered_through_memory(looking):
    move(looking, 200)
    assert metric(looking.b, MAILBOX) > 100
    assert wait_until(lambda: mailboxes_of(looking.b) == 3), "the client's, and both ends of the rehearsals'"


def test_every_mailbox_goes_with_its_connection(looking):
    descriptors = Path(f"/proc/{looking.b.process.pid}/fd")
    move(looking, 20)
    assert wait_until(lambda: mailboxes_of(looking.b) == 3)
    before, fds = mailboxes_of(looking.b), len(list(descriptors.iterdir()))
    connections, kept = [], []
    for _ in range(70):
        connection = UnixConnection(looking.b.api_socket)
        connection.connect()
        connection.sock.sendall(b"POST /v1/mailbox HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
        answer, passed, _, _ = socket.recv_fds(connection.sock, 4096, 4)
        assert (b" 201 " if len(kept) < MOST - 1 else b" 429 ") in answer.split(b"\r\n")[0], answer
        kept += passed
        connections.append(connection)
    assert len(kept) == MOST - 1, "the client of the pair has one"
    assert mailboxes_of(looking.b) == before + len(kept)
    for connection in connections:
        connection.close()
    deadline = time.monotonic() + 10
    while (mailboxes_of(looking.b), len(list(descriptors.iterdir()))) != (before, fds):
        assert time.monotonic() < deadline, (mailboxes_of(looking.b), before, len(list(descriptors.iterdir())), fds)
        time.sleep(0.05)
    # The system has its memory back, whoever keeps the descriptor.
    assert sum(os.fstat(fd).st_blocks for fd in kept) == 0
    for fd in kept:
        os.close(fd)
    move(looking, 20)


@pytest.mark.parametrize("stopped_first", [False, True])
def test_a_sidecar_that_is_killed_while_it_looks_ends_what_waits_for_it(looking, stopped_first):
    move(looking, 20)
    failures = []

    def ask_until_it_fails():
        try:
            while True:
                move(looking, 1)
        except gantry.Error as failure:
            failures.append(failure)

    caller = threading.Thread(target=ask_until_it_fails)
    caller.start()
    time.sleep(0.2)
    if stopped_first:  # a request lies in memory, or an answer does not come
        os.kill(looking.b.process.pid, signal.SIGSTOP)
        time.sleep(0.3)
    os.kill(looking.b.process.pid, signal.SIGKILL)
    caller.join(10)
    assert not caller.is_alive()
    assert failures and failures[0].code == "sidecar_lost", failures


def test_who_sleeps_is_sent_its_answer(looking):
    move(looking, 20)
    before = metric(looking.b, MAILBOX)
    for gap in (0.0, 0.001, 0.02, 0.25, 0.5):  # in the last two the sidecar has fallen asleep
        time.sleep(gap)
        move(looking, 5)
    assert metric(looking.b, MAILBOX) > before
