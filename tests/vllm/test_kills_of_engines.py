"""kill -9 in the middle of a read between real engines: answers are one engine's, engines live, and nothing is left."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest
from prompts import PROMPTS
from vllm_servers import wait_for
from workers import WorkerProcess, copy_workers_of, go_on, stand_still, totals_of

pytestmark = pytest.mark.timeout(900)

PROMPT = "killed"
NAMES = iter(range(10**6))


def has_nothing(pair):
    pair.end_holds()
    for engine in (pair.prefill, pair.decode):
        wait_for(lambda engine=engine: engine.metric("vllm:kv_cache_usage_perc") == 0, f"{engine.name} has free blocks only")
        assert engine.healthy()
    wait_for(lambda: totals_of(pair.decode_sidecar)["transfers_running"] == 0, "no read is under way")


def reads_come_back(pair, expected):
    before = len(pair.decode.reads())
    wait_for(lambda: pair.complete(PROMPTS[PROMPT], salt=f"back {next(NAMES)}") == expected[PROMPT]
             and len(pair.decode.reads()) > before, "reads come back")


def kill_and_start(sidecar):
    sidecar.kill()
    sidecar.start()


def kill_worker(pair):
    os.kill(copy_workers_of(pair.decode_sidecar)[0], signal.SIGKILL)


VICTIMS = {"prefiller's sidecar": lambda pair: kill_and_start(pair.prefill_sidecar),
           "decoder's sidecar": lambda pair: kill_and_start(pair.decode_sidecar),
           "copy worker": kill_worker}


def in_the_middle(pair, params, salt, kill):
    """The decoder's tokens; kill() is called while its read is under way."""
    standing = copy_workers_of(pair.decode_sidecar)
    stand_still(standing)
    try:
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(pair.decode.complete, PROMPTS[PROMPT], params, salt=salt)
            wait_for(lambda: totals_of(pair.decode_sidecar)["transfers_running"] > 0,
                     lambda: f"the read is under way: {pair.decode.log[-2000:]}", 20)
            kill()
            go_on(standing)
            return answer.result()[0]
    finally:
        go_on(standing)


@pytest.mark.parametrize("victim", VICTIMS)
def test_a_kill_in_the_middle_of_a_read(pair, expected, victim):
    reads_come_back(pair, expected)
    salt = f"{victim} {next(NAMES)}"
    params = pair.offer(PROMPTS[PROMPT], salt=salt)
    assert in_the_middle(pair, params, salt, lambda: VICTIMS[victim](pair)) == expected[PROMPT]
    reads_come_back(pair, expected)
    has_nothing(pair)


def offer_of_another(pair, producer, salt):
    """The parameters of an offer that name `producer`, a worker without an engine, whose blocks are no prompt's."""
    params = pair.offer(PROMPTS[PROMPT], salt=salt)
    blocks = list(range(1, 1 + len(params["remote_block_ids"][0])))  # 0 is no prompt's
    producer.do("step", hold={salt: blocks}, sending=[salt])
    gantry = params["gantry"] | {"workers": [producer.do("handshake")]}
    return params | {"remote_block_ids": [blocks], "remote_request_id": salt, "gantry": gantry}


def test_a_prefiller_dies_in_the_middle_of_a_read(pair, expected, worker_server):
    reads_come_back(pair, expected)
    producer = WorkerProcess(worker_server, pair.prefill_sidecar, "vllm-short-lived")
    producer.do("fill", seed=1)
    params = offer_of_another(pair, producer, "lives")
    assert pair.decode.complete(PROMPTS[PROMPT], params, salt="lives")[0] != expected[PROMPT], "its bytes give other tokens"
    params = offer_of_another(pair, producer, "dies")
    before = len(pair.decode.reads())

    def die():
        """A read may end well where its bytes are still there; these copy workers never end."""
        producer.kill()
        wait_for(lambda: totals_of(pair.decode_sidecar)["transfers_running"] == 0, "the read has ended")
    said = in_the_middle(pair, params, "dies", die)
    assert len(pair.decode.reads()) == before, "no read succeeded"
    assert said == expected[PROMPT], pair.decode.log[-3000:]
    reads_come_back(pair, expected)
    has_nothing(pair)


def test_a_prefillers_sidecar_stands_still(pair, expected):
    """Twice in a row: the second read fails at once where the peer was given up, and the prompt is computed all the same."""
    for turn in range(2):
        reads_come_back(pair, expected)
        params = pair.offer(PROMPTS[PROMPT], salt=f"still {turn}")
        before = len(pair.decode.reads())
        stand_still([pair.prefill_sidecar.process.pid])
        try:
            assert pair.decode.complete(PROMPTS[PROMPT], params, salt=f"still {turn}")[0] == expected[PROMPT]
            assert len(pair.decode.reads()) == before
        finally:
            go_on([pair.prefill_sidecar.process.pid])
    reads_come_back(pair, expected)
    has_nothing(pair)
