"""A model with states (Mamba2) beside attention: three groups of layers, whose blocks lie in the same memory.

vLLM's CPU backend fails where a prompt is computed in pieces longer than a block and the prefix cache is on: its Mamba2 kernel
returns no state from inside a piece. Therefore a step has no more tokens than a block. That backend has no Mamba1.
"""

from pathlib import Path

import pytest
from conftest import answers_of, running_pair
from prompts import LENGTHS, PROMPTS, STATE_BLOCK, STATE_LENGTHS, TOGETHER
from vllm_servers import wait_for

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def model(folder, forks):
    path = folder / "states"
    forks.run([Path(__file__).with_name("make_state_model.py"), path], folder / "states-model.log", 120, leaves=False)
    return path


@pytest.fixture(scope="module")
def expected(environment, folder, model, forks):
    return answers_of(environment, model, folder, forks, max_num_batched_tokens=STATE_BLOCK)


@pytest.fixture(scope="module")
def pair(environment, folder, model, expected, forks):
    with running_pair(environment, folder, ("states-prefill", "states-decode"), model=model, forks=forks,
                      flags=("--max-num-batched-tokens", str(STATE_BLOCK))) as both:
        yield both


def blocks_are_free(pair):
    for engine in (pair.prefill, pair.decode):
        wait_for(lambda engine=engine: engine.metric("vllm:kv_cache_usage_perc") == 0, f"{engine.name} has free blocks only")


@pytest.mark.parametrize("name", [f"shm {length}" for length in LENGTHS if length > 1] + [f"states {length}" for length in STATE_LENGTHS])
def test_prompts_that_end_before_at_and_behind_a_block(pair, expected, name):
    assert pair.complete_by_reads(PROMPTS[name], expected[name]) == expected[name]
    blocks_are_free(pair)


def test_a_prompt_of_one_token_is_computed_here(pair, expected):
    before = len(pair.decode.reads())
    assert pair.complete(PROMPTS["shm 1"]) == expected["shm 1"]
    assert len(pair.decode.reads()) == before
    blocks_are_free(pair)


def test_prompts_at_once(pair, expected):
    names = [f"shm together {i}" for i in range(TOGETHER)]
    assert pair.complete_together([PROMPTS[name] for name in names]) == [expected[name] for name in names]


def test_prompts_that_both_prefix_caches_have_in_part(pair, expected):
    for _ in range(3):
        assert pair.complete(PROMPTS["cached"]) == expected["cached"]


def test_one_block_of_each_group_of_states_is_read(pair, expected):
    params = pair.offer(PROMPTS["measured"], salt="counted")
    full, *states = sorted(params["remote_block_ids"], key=lambda ids: ids.count(0))
    assert (len(states), 0 in full, len(full)) == (2, False, -(-199 // STATE_BLOCK))
    before = pair.decode.metric("vllm:gantry_num_blocks_sum")
    assert pair.decode.complete(PROMPTS["measured"], params, salt="counted")[0] == expected["measured"]
    wait_for(lambda: pair.decode.metric("vllm:gantry_num_blocks_sum") == before + len(full) + 2, "the blocks are counted")


def test_a_read_that_fails_is_computed_here_with_the_same_tokens(pair, expected):
    def lose_the_hold(params):
        pair.end_holds()
        return params
    failed = pair.decode.metric("vllm:gantry_num_failed_transfers_total")
    for turn in range(2):
        assert pair.complete(PROMPTS["reversed"], lose_the_hold, salt=f"failed {turn}") == expected["reversed"]
    wait_for(lambda: pair.decode.metric("vllm:gantry_num_failed_transfers_total") == failed + 2, "both reads have failed")
    blocks_are_free(pair)


def test_states_of_other_layers_give_other_tokens(pair, expected):
    """The control of all others: states are used."""
    def swap(params):
        lists = params["remote_block_ids"]
        one, other = (i for i, ids in enumerate(lists) if 0 in ids)
        lists[one], lists[other] = lists[other], lists[one]
        return params
    assert pair.complete(PROMPTS["shm 200"], swap, salt="swapped") != expected["shm 200"]
