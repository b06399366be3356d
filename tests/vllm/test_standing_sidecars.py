"""A prefiller's sidecar that stands still: a read of what it promised is never a success, whatever was known before.

The decoder's own copy workers have the prefiller's memory mapped, so that nothing but the hold needs the prefiller's sidecar.
The read ends at its deadline, or at once where the peer was given up before; the decoder computes the prompt in both cases.
The prefiller itself is hardly delayed.
"""

import os
import signal

import pytest
from forks import IMPORT_SECONDS
from vllm_servers import wait_for
from workers import go_on, stand_still

pytestmark = pytest.mark.timeout(120 + IMPORT_SECONDS)

FIRST_SECONDS, LATER_SECONDS, ATTEMPTS = 0.7, 0.02, 4  # a step waits 0.5 s for its holds, and then 10 ms
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


def seconds_of_steps(workers, attempt):
    """Times four steps of the producer with a hold each, and one with nothing, while its own sidecar stands still."""
    sidecar = workers.prefill_sidecar.process.pid
    stand_still([sidecar])
    try:
        steps = [{"hold": {f"standing {attempt} {i}": [i]}, "sending": [f"standing {attempt} {i}"]} for i in range(4)] + [{}]
        return [workers.producer.do("step", **step)["seconds"] for step in steps]
    finally:
        os.kill(sidecar, signal.SIGCONT)


def test_an_engine_waits_once_for_its_own_sidecar_that_stands_still(workers):
    """Other work of the machine may delay a step, but not each time."""
    for attempt in range(ATTEMPTS):
        workers.reads_come_back()
        first, *later = seconds_of_steps(workers, attempt)
        if first < FIRST_SECONDS and max(later) < LATER_SECONDS:
            break
    else:
        raise AssertionError(f"the steps took {[first, *later]} s")
    workers.reads_come_back()
    workers.end_holds()


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
