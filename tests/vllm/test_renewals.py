"""A prompt that waits in the decoder's queue for longer than its hold's time is read all the same."""

import http.client
import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from prompts import PROMPTS
from vllm_servers import MODEL, REQUEST_SECONDS, wait_for

pytestmark = pytest.mark.timeout(900)

SEQUENCES = 16  # that an engine computes at the same time (--max-num-seqs)
ROUNDS = 8  # of others before the prompt's turn
TOKENS = 500  # 16 sequences of them fit into the cache
HOLD_SECONDS = 6  # a machine may stand still for a part of it
SHORT_TTL = 6


class Filler:
    """A long request that is aborted by closing its connection."""

    def __init__(self, engine):
        self._connection = http.client.HTTPConnection("127.0.0.1", engine.port, timeout=REQUEST_SECONDS)
        self._connection.request("POST", "/v1/completions", json.dumps({
            "model": MODEL, "prompt": PROMPTS["waits"][:10], "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True}),
            {"Content-Type": "application/json"})

    def close(self):
        self._connection.sock.shutdown(socket.SHUT_RDWR)
        self._connection.close()


@pytest.fixture
def fillers(pair):
    """Those that the decoder computes before whatever comes now."""
    made = [Filler(pair.decode) for _ in range(SEQUENCES * ROUNDS)]
    try:
        wait_for(lambda: pair.decode.metric("vllm:num_requests_running") == SEQUENCES
                 and pair.decode.metric("vllm:num_requests_waiting") > SEQUENCES, "the queue is full")
        yield made
    finally:
        for filler in made:
            filler.close()
        wait_for(lambda: pair.decode.metric("vllm:num_requests_running") + pair.decode.metric("vllm:num_requests_waiting") == 0,
                 "the decoder has nothing to do")


def test_a_prompt_that_waits_longer_than_its_hold(pair, expected, fillers):
    pair.end_holds()  # of other cases
    params = pair.offer(PROMPTS["waits"])
    params["gantry"]["hold_ttl"] = SHORT_TTL
    reads = len(pair.decode.reads())
    pair.shorten_holds(HOLD_SECONDS)
    (before,) = pair.holds()
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(pair.decode.complete, PROMPTS["waits"], params)
        wait_for(lambda: time.time() * 1000 > before["expires_unix_ms"], "the time that the hold had at first is over")
        assert len(pair.decode.reads()) == reads, "the prompt waits still"
        assert [hold["id"] for hold in pair.holds()] == [before["id"]], "the hold was renewed"
        while fillers:
            fillers.pop().close()
        assert answer.result()[0] == expected["waits"]
    wait_for(lambda: len(pair.decode.reads()) > reads, "the read is logged")
    assert pair.decode.reads()[reads:] == [("succeeded", "shm")]
    wait_for(lambda: not pair.holds(), "the hold has ended")
