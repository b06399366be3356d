"""An engine that the command `vllm serve` starts, as users have it; the others of the tests are forked, which takes seconds.

It reads a prompt, it is read from, and it dies by kill -9 while it is read from.
"""

import os
import signal

import pytest
from leftovers import nothing_is_left, totals_of, workloads_of
from prompts import PROMPTS
from test_kills_of_engines import PROMPT, in_the_middle, reads_come_back
from vllm_servers import Engine, Pair, wait_for

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def started(pair, environment, folder):
    """At the sidecar of the prefiller, which it finds by GANTRY_RUN_DIR as in pods of the chart."""
    engine = Engine("engine-by-command", environment, folder, pair.prefill_sidecar, settings={"run_dir": None},
                    more={"GANTRY_RUN_DIR": str(pair.prefill_sidecar.run_dir)})
    try:
        engine.wait_until_ready()
        yield engine
    finally:
        engine.stop()


def test_it_reads_a_prompt(pair, expected, started):
    both = Pair(pair.decode, started, [pair.decode_sidecar, pair.prefill_sidecar])
    assert both.complete(PROMPTS[PROMPT], salt="by command") == expected[PROMPT]
    wait_for(started.reads, "the read is logged")
    assert started.reads() == [("succeeded", "shm")]
    wait_for(lambda: not both.holds(), "the hold has ended")


def test_it_dies_in_the_middle_of_a_read(pair, expected, started):
    """Its bytes are right, so that the count of reads tells that they were not used."""
    reads_come_back(pair, expected)
    both = Pair(started, pair.decode, [pair.prefill_sidecar, pair.decode_sidecar])
    before = len(pair.decode.reads())
    assert both.complete(PROMPTS[PROMPT], salt="it lives") == expected[PROMPT]
    wait_for(lambda: len(pair.decode.reads()) > before, "a read from it succeeds")
    with nothing_is_left(pair):
        params = both.offer(PROMPTS[PROMPT], salt="it dies")
        before = len(pair.decode.reads())

        def die():
            """All of its processes. A read may end well where its bytes are still there; these copy workers never end."""
            os.killpg(started.pid, signal.SIGKILL)
            wait_for(lambda: totals_of(pair.decode_sidecar)["transfers_running"] == 0, "the read has ended")
        assert in_the_middle(pair, params, "it dies", die) == expected[PROMPT]
        assert len(pair.decode.reads()) == before, "no read succeeded"
        wait_for(lambda: not started.lives(), "it has ended")
        wait_for(lambda: len(workloads_of(pair.prefill_sidecar)) == 1, "the other prefiller's workload is left alone")
        reads_come_back(pair, expected)
