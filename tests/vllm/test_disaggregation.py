"""Prefill and decode of the real vLLM in two engines, over two sidecars: the tokens are those of one engine."""

import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from backends import BLOCK
from prompts import LENGTHS, PATHS, PROMPTS, TOGETHER
from vllm_servers import wait_for
from workers import copy_workers_of, go_on, stand_still

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def over(pair, tcp_address):
    """over("tcp"): what a router does to the parameters for the read to take this path. A peer that is up stays where it is."""
    def over(path):
        peer = f"/v1/peers/{pair.prefill_sidecar.name}"
        if pair.decode_sidecar.ask("GET", peer)[1].get("address", "").startswith("unix:") == (path == "tcp"):
            pair.decode_sidecar.ask("DELETE", peer)

        def change(params):
            if path == "tcp":
                params["gantry"]["workers"][0] |= {"address": tcp_address, "node_id": "elsewhere"}
            return params
        return change
    return over


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("length", LENGTHS)
def test_a_prompt_ends_at_before_and_behind_the_end_of_a_block(pair, expected, over, path, length):
    tokens = expected[f"{path} {length}"]
    assert pair.complete_by_reads(PROMPTS[f"{path} {length}"], tokens, path=path, change=over(path)) == tokens


@pytest.mark.parametrize("path", PATHS)
def test_sixteen_prompts_at_once(pair, expected, over, path):
    names = [f"{path} together {i}" for i in range(TOGETHER)]
    before = len(pair.decode.reads())
    assert pair.complete_together([PROMPTS[name] for name in names], over(path)) == [expected[name] for name in names]
    wait_for(lambda: len(pair.decode.reads()) >= before + TOGETHER, "the reads are logged")
    assert pair.decode.reads()[before:] == [("succeeded", path)] * TOGETHER


def test_a_prompt_of_which_the_decoder_has_all_full_blocks(pair, expected):
    prompt = PROMPTS["cached"]
    assert pair.decode.complete(prompt)[0] == expected["cached"]
    assert pair.complete(prompt) == expected["cached"]


def test_a_prompt_of_full_blocks_that_is_asked_for_twice(pair, expected):
    """The second time both engines have all of its blocks. vLLM computes or reads the last one all the same, as it needs a token."""
    name = f"{PATHS[0]} {2 * BLOCK}"
    for _ in range(2):
        assert pair.complete(PROMPTS[name], salt="twice") == expected[name]
        wait_for(lambda: not pair.holds(), "the hold has ended")
    for engine in (pair.prefill, pair.decode):
        wait_for(lambda engine=engine: engine.metric("vllm:kv_cache_usage_perc") == 0, f"{engine.name} has free blocks only")


def test_the_prefiller_frees_its_blocks_when_they_were_read(pair):
    pair.complete(PROMPTS[f"{PATHS[0]} 200"])
    wait_for(lambda: not pair.holds(), "the holds have ended")
    for engine in (pair.prefill, pair.decode):
        wait_for(lambda engine=engine: engine.metric("vllm:kv_cache_usage_perc") == 0, f"{engine.name} has free blocks only")


def test_blocks_in_the_wrong_order_give_other_tokens(pair, expected):
    """The control of all others: the decoder does use what it reads."""
    def reverse(params):
        params["remote_block_ids"] = [blocks[::-1] for blocks in params["remote_block_ids"]]
        return params
    assert pair.complete(PROMPTS["reversed"], reverse) != expected["reversed"]


def test_engines_that_do_not_match_say_how_they_differ(pair, expected):
    def differ(params):
        params["gantry"]["compatibility"]["block_size"] = 64
        return params
    before = len(pair.decode.reads())
    assert pair.complete(PROMPTS["other block size"], differ) == expected["other block size"]
    assert f"block_size: {BLOCK} here, 64 at the prefiller" in pair.decode.log
    assert len(pair.decode.reads()) == before
    wait_for(lambda: not pair.holds(), "the prefiller is told that nobody reads the blocks")


@pytest.mark.parametrize("made_up", [
    {"remote_block_ids": [["x"] * 100]}, {"remote_block_ids": "abc"}, {"remote_block_ids": [[-1] * 100]}, {"remote_block_ids": [[]]},
    {"remote_block_ids": [[1.5] * 100]}, {"remote_request_id": 5}, {"remote_request_id": "a\0b"}, {"gantry": 7}, {"gantry": {}}, {"gantry": {"compatibility": "x"}}, {"remote_block_ids": None}],
    ids=str)
def test_parameters_that_a_client_made_up_end_nothing(pair, expected, made_up):
    before = pair.decode.log.count("is computed here: ")
    assert pair.complete(PROMPTS["made up"], lambda params: params | made_up) == expected["made up"]
    assert pair.decode.log.count("is computed here: ") > before
    pair.end_holds()  # of those whose prefiller the parameters do not name


def of_worker(**changes):
    def change(params):
        return params | {"gantry": params["gantry"] | {"workers": [params["gantry"]["workers"][0] | changes]}}
    return change


# A client may make these up in the right shape: (change of the parameters, what the decoder's log says).
LIES = {
    "blocks": (lambda params: params | {"remote_block_ids": [[10**6 + i for i in range(len(params["remote_block_ids"][0]))]]},
               "block 1000000 does not exist: .* has blocks 0 to "),
    "request": (lambda params: params | {"remote_request_id": "cmpl-unknown"}, "has no hold 'cmpl-unknown'"),
    "workload": (of_worker(workload="vllm-unknown-0"), "of workload 'vllm-unknown-0' is not there"),
    "peer": (of_worker(peer="nobody", address="unix:/nobody.sock", node_id=""), "not read from nobody .*peer_unavailable"),
    "size": (lambda params: params | {"tp_size": 4}, "tp_size is 4, and gantry.workers lists 1")}


def test_parameters_that_are_well_formed_and_untrue_end_nothing(pair, expected):
    """All at once: a peer that is not there is waited for."""
    log = len(pair.decode.log)
    offers = {name: pair.offer(PROMPTS["made up"], salt=f"untrue {name}") for name in LIES}
    with ThreadPoolExecutor(len(LIES)) as pool:
        answers = list(pool.map(lambda name: pair.decode.complete(PROMPTS["made up"], LIES[name][0](offers[name]),
                                                                  salt=f"untrue {name}")[0], LIES))
    assert answers == [expected["made up"]] * len(LIES)
    said = [line for line in pair.decode.log[log:].splitlines() if "is computed here: " in line]
    for name, (_, why) in LIES.items():
        assert any(re.search(why, line) for line in said), (name, said)
    pair.end_holds()  # of those whose prefiller the parameters do not name


def test_parameters_of_another_prompt_are_not_used(pair, expected):
    """A prompt of as many blocks, as a router might confuse them."""
    before = len(pair.decode.reads())
    params = pair.offer(PROMPTS["made up"], salt="confused")
    assert pair.decode.complete(PROMPTS["cached"], params, salt="confused")[0] == expected["cached"]
    assert "is computed here: they are of another prompt" in pair.decode.log
    assert len(pair.decode.reads()) == before
    wait_for(lambda: not pair.holds(), "the prefiller is told that nobody reads the blocks")


def test_an_aborted_request_gives_its_blocks_back(pair, expected):
    """The copy workers stand still, so that the read cannot end before its consumer has gone."""
    params = pair.offer(PROMPTS[f"{PATHS[0]} 500"], salt="aborted")
    workers = copy_workers_of(pair.decode_sidecar)
    stand_still(workers)
    try:
        with pytest.raises(TimeoutError):
            pair.decode.complete(PROMPTS[f"{PATHS[0]} 500"], params, salt="aborted", seconds=1)
    finally:
        go_on(workers)
    for engine in (pair.prefill, pair.decode):
        wait_for(lambda engine=engine: engine.metric("vllm:kv_cache_usage_perc") == 0, f"{engine.name} has free blocks only")
    assert pair.complete(PROMPTS["after an abort"]) == expected["after an abort"]


def test_blocks_that_nobody_asks_for_are_free_when_their_hold_ends(pair):
    pair.offer(PROMPTS[f"{PATHS[0]} 200"], salt="forgotten")
    assert pair.holds()
    pair.end_holds()
    wait_for(lambda: pair.prefill.metric("vllm:kv_cache_usage_perc") == 0, "the prefiller has free blocks only")
