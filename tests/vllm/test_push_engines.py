"""Two engines whose prefiller's sidecar moves the bytes: the tokens are those of one engine."""

import re

import pytest
from backends import PATHS
from conftest import running_pair
from prompts import LENGTHS, PROMPTS, TOGETHER
from vllm_servers import wait_for

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def pushing(environment, folder, expected, forks):
    with running_pair(environment, folder, ("push-prefill", "push-decode"), settings={"executor": "peer", "read_deadline": 20},
                      forks=forks) as both:
        yield both


@pytest.fixture(params=PATHS)
def way(request, pushing):
    """(path, what a router does to the parameters). A sidecar that was told so takes its peer for one of another node."""
    if request.param != "tcp":
        return request.param, lambda params: params
    addresses = [re.findall('"the peer API listens on TCP","address":"([^"]+)"', sidecar.log)[-1]
                 for sidecar in (pushing.prefill_sidecar, pushing.decode_sidecar)]
    pushing.decode_sidecar.ask("DELETE", "/v1/peers/push-prefill")
    peer = pushing.prefill_sidecar.ask("PUT", "/v1/peers/push-decode", {"address": addresses[1], "node_id": "elsewhere"})[1]
    assert peer["state"] == "up", peer

    def change(params):
        params["gantry"]["workers"][0] |= {"address": addresses[0], "node_id": "elsewhere"}
        return params
    return request.param, change


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
