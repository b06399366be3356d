"""A model of which every other layer has a sliding window: two groups of layers, whose blocks lie in the same memory."""

import json
import shutil

import pytest
from backends import BLOCK
from conftest import answers_of, running_pair
from prompts import LENGTHS, PROMPTS
from vllm_servers import wait_for

WINDOW = 2 * BLOCK
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def model(environment, folder):
    """The weights of the usual one."""
    path = folder / "hybrid"
    shutil.copytree(environment / "model", path)
    config = json.loads((path / "config.json").read_text())
    config |= {"sliding_window": WINDOW,
               "layer_types": ["sliding_attention", "full_attention"] * (config["num_hidden_layers"] // 2)}
    (path / "config.json").write_text(json.dumps(config))
    return path


@pytest.fixture(scope="module")
def expected(environment, folder, forks, model):
    return answers_of(environment, model, folder, forks)


@pytest.fixture(scope="module")
def pair(environment, folder, forks, model, expected):
    with running_pair(environment, folder, ("hybrid-prefill", "hybrid-decode"), model=model, forks=forks) as both:
        yield both


@pytest.mark.parametrize("path", ["shm", "tcp"])
@pytest.mark.parametrize("length", [length for length in LENGTHS if length < WINDOW] + [100 + 37 * i for i in range(8)])
def test_prompts_shorter_and_longer_than_the_window(pair, expected, path, length):
    name = f"{path} {length}" if f"{path} {length}" in PROMPTS else f"{path} together {(length - 100) // 37}"
    assert pair.complete_by_reads(PROMPTS[name], expected[name]) == expected[name]
    for engine in (pair.prefill, pair.decode):
        wait_for(lambda engine=engine: engine.metric("vllm:kv_cache_usage_perc") == 0, f"{engine.name} has free blocks only")


def test_a_long_prompt_moves_fewer_blocks_than_with_full_attention_alone(pair, expected):
    name = "shm 500"
    blocks = -(-500 // BLOCK)
    params = pair.offer(PROMPTS[name], salt="counted")
    full, sliding = sorted(params["remote_block_ids"], key=lambda ids: ids.count(0))
    assert 0 not in full and len(full) == len(sliding) == blocks
    assert sliding.count(0) >= blocks - WINDOW // BLOCK - 1
    assert pair.decode.complete(PROMPTS[name], params, salt="counted")[0] == expected[name]


def test_a_window_without_a_block_that_is_needed_is_computed_here(pair, expected):
    def without_the_last(params):
        params["remote_block_ids"] = [ids[:-1] + [0] for ids in params["remote_block_ids"]]
        return params
    before = len(pair.decode.reads())
    assert pair.complete(PROMPTS["reversed"], without_the_last) == expected["reversed"]
    assert "has moved past a block that is needed here" in pair.decode.log and len(pair.decode.reads()) == before


def test_a_read_that_fails_is_computed_here_with_the_same_tokens(pair, expected):
    """Twice, as what a failed read has left must not serve the next one."""
    def lose_the_hold(params):
        pair.end_holds()
        return params
    before, failed = len(pair.decode.reads()), pair.decode.metric("vllm:gantry_num_failed_transfers_total")
    for turn in range(2):
        assert pair.complete(PROMPTS["cached"], lose_the_hold, salt=f"failed {turn}") == expected["cached"]
    wait_for(lambda: pair.decode.metric("vllm:gantry_num_failed_transfers_total") == failed + 2, "both reads have failed")
    assert len(pair.decode.reads()) == before
    for engine in (pair.prefill, pair.decode):
        wait_for(lambda engine=engine: engine.metric("vllm:kv_cache_usage_perc") == 0, f"{engine.name} has free blocks only")


def test_groups_in_the_wrong_order_give_other_tokens(pair, expected):
    """The control of all others: both groups are used."""
    def swap(params):
        full, sliding = sorted(params["remote_block_ids"], key=lambda ids: ids.count(0))
        assert 0 in sliding
        params["remote_block_ids"] = [[one or other for one, other in zip(sliding, full)]] * 2
        return params
    assert pair.complete(PROMPTS["shm 200"], swap, salt="swapped") != expected["shm 200"]
