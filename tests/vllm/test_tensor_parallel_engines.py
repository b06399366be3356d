"""An engine of two ranks and one of one rank: prompts go from each to the other, and the tokens are those of one engine."""

import os
import signal

import pytest
from conftest import end_to_end
from leftovers import nothing_is_left, totals_of
from prompts import PROMPTS
from slow_link import SlowReads
from test_kills_of_engines import PROMPT, in_the_middle, reads_come_back
from vllm_servers import Engine, Pair, wait_for

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def two_ranks(environment, folder, forks, pair):
    sidecar = end_to_end.SidecarProcess("ranks", folder, flags=("--peer-listen", "127.0.0.1:0"))
    sidecar.start()
    engine = None
    try:
        engine = Engine("engine-two-ranks", environment, folder, sidecar, flags=["--tensor-parallel-size", "2"], forks=forks)
        engine.wait_until_ready()
        yield engine, sidecar
    finally:
        for part in (engine, sidecar):
            if part is not None:
                part.stop()


@pytest.mark.parametrize("sizes", ["1 to 2", "2 to 1"])
@pytest.mark.parametrize("length", [1, 200, 500])
def test_prompts_between_engines_of_other_sizes(pair, two_ranks, expected, sizes, length):
    engine, sidecar = two_ranks
    if sizes == "1 to 2":
        both = Pair(pair.prefill, engine, [pair.prefill_sidecar, sidecar])
    else:
        both = Pair(engine, pair.decode, [sidecar, pair.decode_sidecar])
    tokens = expected[f"shm {length}"]
    assert both.complete_by_reads(PROMPTS[f"shm {length}"], tokens, reads=2, salt=f"tp {sizes}") == tokens
    wait_for(lambda: not both.holds(), "the holds have ended")
    for each in (both.prefill, both.decode):
        wait_for(lambda each=each: each.metric("vllm:kv_cache_usage_perc") == 0, f"{each.name} has free blocks only")


def test_halves_in_the_wrong_order_give_other_tokens(pair, two_ranks, expected):
    """The control of the others: both halves are used."""
    engine, sidecar = two_ranks

    def swap(params):
        params["gantry"]["workers"] = params["gantry"]["workers"][::-1]
        return params
    both = Pair(engine, pair.decode, [sidecar, pair.decode_sidecar])
    tokens = expected["shm 200"]
    assert both.complete_by_reads(PROMPTS["shm 200"], tokens, reads=2, change=swap, salt="swapped") != tokens


def test_it_dies_in_the_middle_of_a_read_over_a_slow_link(pair, two_ranks, expected):
    """All of its processes; no case of it follows. The decoder computes the prompt, and keeps nothing."""
    engine, sidecar = two_ranks
    both = Pair(engine, pair.decode, [sidecar, pair.decode_sidecar])
    reads_come_back(both, expected)
    with nothing_is_left(pair):
        params = both.offer(PROMPTS[PROMPT], salt="dies")
        before = len(pair.decode.reads())

        def die():
            """A read may end well where its bytes are still there; over this link it never ends."""
            os.killpg(engine.pid, signal.SIGKILL)
            wait_for(lambda: totals_of(pair.decode_sidecar)["transfers_running"] == 0, "the reads have ended")
        assert in_the_middle(both, params, "dies", die, SlowReads) == expected[PROMPT]
        wait_for(lambda: not engine.lives(), "it has ended")
        assert len(pair.decode.reads()) == before, "no read succeeded"
