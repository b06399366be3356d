"""A prefiller's sidecar that stands still: a read of what it promised is never a success, whatever was known before.

The decoder's own copy workers have the prefiller's memory mapped, so that nothing but the hold needs the prefiller's sidecar.
The read ends at its deadline, or at once where the peer was given up before; the decoder computes the prompt in both cases.
"""

import os
import signal

import pytest
from forks import IMPORT_SECONDS
from vllm_servers import wait_for
from workers import go_on, stand_still

pytestmark = pytest.mark.timeout(120 + IMPORT_SECONDS)

LOCAL, REMOTE = [0, 1, 2, 3], [5, 2, 9, 40]


def peer_state(workers):
    return workers.decode_sidecar.ask("GET", "/v1/peers/prefill")[1].get("state")


@pytest.mark.parametrize("known", ["nothing", "its memory", "that it is down"])
def test_nothing_is_read_without_the_word_of_its_sidecar(workers, known):
    if known != "nothing":
        workers.reads_come_back()
    offer = workers.offer(REMOTE)
    sidecar = workers.prefill_sidecar.process.pid
    stand_still([sidecar])
    try:
        if known == "that it is down":
            wait_for(lambda: peer_state(workers) == "down", "the peer is given up")
        workers.begin(offer, LOCAL)
        assert not workers.end(offer, LOCAL), "the read succeeded"
        assert workers.untouched(offer, LOCAL)
    finally:
        os.kill(sidecar, signal.SIGCONT)
    workers.reads_come_back()
    wait_for(lambda: not workers.holds(), lambda: f"the blocks are given back: {workers.holds()}")


def test_a_read_that_goes_on_while_its_prefillers_sidecar_stands_still_is_right(workers):
    """Its hold was checked before: the bytes stay until it ends."""
    workers.reads_come_back()
    offer = workers.offer(REMOTE)
    sidecar, copying = workers.prefill_sidecar.process.pid, workers.copy_workers()
    stand_still(copying)
    try:
        workers.begin(offer, LOCAL)
        wait_for(workers.running, "the read is under way")
        stand_still([sidecar])
        go_on(copying)
        assert workers.end(offer, LOCAL)
    finally:
        go_on([sidecar, *copying])
    wait_for(lambda: not workers.holds(), "the hold has ended")
