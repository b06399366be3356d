"""A prompt that waits in the decoder's queue for longer than its hold's time is read all the same."""

import contextlib
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
ATTEMPTS = 3


class Request:
    """A long one that is aborted by closing its connection."""

    def __init__(self, engine, prompt, **more):
        self._connection = http.client.HTTPConnection("127.0.0.1", engine.port, timeout=REQUEST_SECONDS)
        self._connection.request("POST", "/v1/completions", json.dumps({
            "model": MODEL, "prompt": prompt, "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True, **more}),
            {"Content-Type": "application/json"})

    def close(self):
        self._connection.sock.shutdown(socket.SHUT_RDWR)
        self._connection.close()


@contextlib.contextmanager
def fillers_of(pair, rounds=ROUNDS):
    """Those that the decoder computes before whatever comes now."""
    made = [Request(pair.decode, PROMPTS["waits"][:10]) for _ in range(SEQUENCES * rounds)]
    try:
        wait_for(lambda: pair.decode.metric("vllm:num_requests_running") == SEQUENCES
                 and pair.decode.metric("vllm:num_requests_waiting") >= SEQUENCES, "the queue is full")
        yield made
    finally:
        for filler in made:
            filler.close()
        wait_for(lambda: pair.decode.metric("vllm:num_requests_running") + pair.decode.metric("vllm:num_requests_waiting") == 0,
                 "the decoder has nothing to do")


def is_read_behind_its_time(pair, expected, salt):
    """Whether the hold was renewed and the read succeeded; the tokens are right in any case."""
    pair.end_holds()  # of other cases
    reads = len(pair.decode.reads())
    with fillers_of(pair) as fillers, ThreadPoolExecutor(1) as pool:
        params = pair.offer(PROMPTS["waits"], salt=salt)
        params["gantry"]["hold_ttl"] = SHORT_TTL
        pair.shorten_holds(HOLD_SECONDS)
        (before,) = pair.holds()
        answer = pool.submit(pair.decode.complete, PROMPTS["waits"], params, salt=salt)
        wait_for(lambda: time.time() * 1000 > before["expires_unix_ms"], "the time that the hold had at first is over")
        assert len(pair.decode.reads()) == reads, "the prompt waits still"
        renewed = [hold["id"] for hold in pair.holds()] == [before["id"]]
        while fillers:
            fillers.pop().close()
        assert answer.result()[0] == expected["waits"]
    wait_for(lambda: not pair.holds(), "the hold has ended")
    return renewed and pair.decode.reads()[reads:] == [("succeeded", "shm")]


def test_a_prompt_that_waits_longer_than_its_hold(pair, expected):
    """A sidecar that gets no processor for seconds is given up, and its blocks are not read: more than once is no chance."""
    assert any(is_read_behind_its_time(pair, expected, f"waits {attempt}") for attempt in range(ATTEMPTS)), pair.decode.log[-4000:]


def test_a_prompt_that_is_aborted_before_its_read_began(pair):
    """It waits in the decoder's queue. The prefiller is told at once, while others are computed still."""
    pair.end_holds()  # of other cases
    reads = len(pair.decode.reads())
    with fillers_of(pair, 2):
        params = pair.offer(PROMPTS["waits"], salt="is aborted")
        waiting = pair.decode.metric("vllm:num_requests_waiting")
        request = Request(pair.decode, PROMPTS["waits"], kv_transfer_params=params, cache_salt="is aborted")
        wait_for(lambda: pair.decode.metric("vllm:num_requests_waiting") > waiting, "it waits")
        assert pair.holds()
        request.close()
        wait_for(lambda: not pair.holds(), "its blocks are given back")
        assert pair.decode.metric("vllm:num_requests_running") == SEQUENCES, "its turn had not come"
    assert len(pair.decode.reads()) == reads
    wait_for(lambda: pair.prefill.metric("vllm:kv_cache_usage_perc") == 0, "the prefiller has free blocks only")
