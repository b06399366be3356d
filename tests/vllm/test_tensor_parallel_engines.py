"""An engine of two ranks and one of one rank: prompts go from each to the other, and the tokens are those of one engine."""

import pytest
from conftest import end_to_end
from prompts import PROMPTS
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
