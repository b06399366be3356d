"""Two engines whose prefiller's sidecar moves the bytes: the tokens are those of one engine."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest
from backends import PATHS
from conftest import running_pair
from leftovers import totals_of
from prompts import LENGTHS, PROMPTS, TOGETHER
from slow_link import PASSING, SlowLink, ports_of
from test_kills_of_engines import PROMPT
from vllm_servers import wait_for

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def pushing(environment, folder, expected, forks):
    with running_pair(environment, folder, ("push-prefill", "push-decode"), settings={"executor": "peer", "read_deadline": 20},
                      forks=forks) as both:
        yield both


def push_to(pair, address):
    """The prefiller's sidecar is told that the decoder's is of another node, at this address."""
    peer = pair.prefill_sidecar.ask("PUT", "/v1/peers/push-decode", {"address": address, "node_id": "elsewhere"})[1]
    assert peer["state"] == "up", peer


def over_tcp(pair):
    """Changes the parameters as a router does. A sidecar that was told so takes its peer for one of another node."""
    prefillers = f"127.0.0.1:{ports_of(pair.prefill_sidecar)[0]}"
    pair.decode_sidecar.ask("DELETE", "/v1/peers/push-prefill")
    push_to(pair, f"127.0.0.1:{ports_of(pair.decode_sidecar)[0]}")

    def change(params):
        params["gantry"]["workers"][0] |= {"address": prefillers, "node_id": "elsewhere"}
        return params
    return change


@pytest.fixture(params=PATHS)
def way(request, pushing):
    """(path, what a router does to the parameters)"""
    if request.param != "tcp":
        return request.param, lambda params: params
    return request.param, over_tcp(pushing)


def pushed(pair):
    """(path, state) of what the prefiller's sidecar has written for the decoder."""
    transfers = pair.prefill_sidecar.ask("GET", "/v1/transfers?limit=1000")[1]["transfers"]
    return [(transfer["path"], transfer["state"]) for transfer in transfers
            if (transfer.get("requested_by"), transfer["op"]) == ("push-decode", "write")]


def test_prompts_are_written_by_the_prefillers_sidecar(pushing, expected, way):
    path, change = way
    before = len(pushed(pushing))
    for length in LENGTHS:
        assert pushing.complete(PROMPTS[f"{path} {length}"], change) == expected[f"{path} {length}"]
    names = [f"{path} together {i}" for i in range(TOGETHER)]
    assert pushing.complete_together([PROMPTS[name] for name in names], change) == [expected[name] for name in names]
    count = len(LENGTHS) + TOGETHER
    wait_for(lambda: len(pushed(pushing)) == before + count, lambda: pushed(pushing))
    assert pushed(pushing)[:count] == [(path, "succeeded")] * count
    wait_for(lambda: not pushing.holds(), "the holds have ended")


def test_blocks_that_are_written_in_the_wrong_order_give_other_tokens(pushing, expected):
    def reverse(params):
        params["remote_block_ids"] = [blocks[::-1] for blocks in params["remote_block_ids"]]
        return params
    assert pushing.complete(PROMPTS["reversed"], reverse) != expected["reversed"]


def test_a_prefiller_dies_in_the_middle_of_a_push_over_a_slow_link(pushing, expected):
    """All of its processes; no case of it follows. The push may end well where its bytes are still there."""
    ports, change = ports_of(pushing.decode_sidecar), over_tcp(pushing)
    assert pushing.complete(PROMPTS[PROMPT], change, salt="lives") == expected[PROMPT]
    link = SlowLink(ports, PASSING, pushed=True, together=True)
    try:
        push_to(pushing, f"{SlowLink.host}:{ports[0]}")
        params = change(pushing.offer(PROMPTS[PROMPT], salt="dies"))
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(pushing.decode.complete, PROMPTS[PROMPT], params, salt="dies")
            wait_for(link.standing.is_set, lambda: f"the push is under way: {pushing.decode.log[-2000:]}", 20)
            os.killpg(pushing.prefill.pid, signal.SIGKILL)
            link.open()
            assert answer.result()[0] == expected[PROMPT]
    finally:
        link.close()
    wait_for(lambda: not pushing.prefill.lives(), "it has ended")
    wait_for(lambda: pushing.decode.metric("vllm:kv_cache_usage_perc") == 0, "the decoder has free blocks only")
    assert pushing.decode.healthy()
    for sidecar in (pushing.prefill_sidecar, pushing.decode_sidecar):
        wait_for(lambda sidecar=sidecar: totals_of(sidecar)["transfers_running"] == 0, f"{sidecar.name} moves nothing")
    assert not pushing.holds()
