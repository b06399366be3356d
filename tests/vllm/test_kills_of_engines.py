"""kill -9 in the middle of a read between real engines: answers are one engine's, engines live, and nothing is left.

test_command.py kills the engine that is read from, over shm, and test_push_engines.py one that pushes over a slow link.
"""

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest
from leftovers import nothing_is_left, totals_of, workloads_of
from prompts import PROMPTS
from slow_link import SlowReads
from vllm_servers import Engine, Pair, wait_for
from workers import WorkerProcess, copy_workers_of, go_on, stand_still

pytestmark = pytest.mark.timeout(900)

PROMPT = "killed"
NAMES = iter(range(10**6))


@pytest.fixture(scope="module", autouse=True)
def lost_once(pair, expected):
    """Each engine keeps a descriptor more from the first loss of its sidecar on: that of its cache, beside the first life's arena."""
    for sidecar in (pair.prefill_sidecar, pair.decode_sidecar):
        kill_and_start(sidecar)
    reads_come_back(pair, expected)


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


class StandingWorkers:
    """The decoder's copy workers stand still: a read over shm goes on with them."""

    def __init__(self, pair):
        self._pair, self._standing = pair, copy_workers_of(pair.decode_sidecar)
        stand_still(self._standing)

    def change(self, params):
        return params

    def is_under_way(self):
        return totals_of(self._pair.decode_sidecar)["transfers_running"] > 0

    def go_on(self):
        go_on(self._standing)

    close = go_on


WAYS = {"shm": StandingWorkers, "tcp": SlowReads}


def in_the_middle(pair, params, salt, kill, way=StandingWorkers):
    """The decoder's tokens; kill() is called while its read is under way."""
    link = way(pair)
    try:
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(pair.decode.complete, PROMPTS[PROMPT], link.change(params), salt=salt)
            wait_for(link.is_under_way, lambda: f"the read is under way: {pair.decode.log[-2000:]}", 20)
            kill()
            link.go_on()
            return answer.result()[0]
    finally:
        link.close()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("victim", VICTIMS)
def test_a_kill_in_the_middle_of_a_read(pair, expected, victim, way):
    reads_come_back(pair, expected)
    # The slow link closes at the end, and may take the word with it that the read has ended.
    with nothing_is_left(pair, lost_holds="sidecar" in victim or way == "tcp"):
        salt = f"{victim} {next(NAMES)}"
        params = pair.offer(PROMPTS[PROMPT], salt=salt)
        assert in_the_middle(pair, params, salt, lambda: VICTIMS[victim](pair), WAYS[way]) == expected[PROMPT]
        reads_come_back(pair, expected)


def offer_of_another(pair, producer, salt):
    """The parameters of an offer that name `producer`, a worker without an engine, whose blocks are no prompt's."""
    params = pair.offer(PROMPTS[PROMPT], salt=salt)
    blocks = list(range(1, 1 + len(params["remote_block_ids"][0])))  # 0 is no prompt's
    producer.do("step", hold={salt: blocks}, sending=[salt])
    gantry = params["gantry"] | {"workers": [producer.do("handshake")]}
    return params | {"remote_block_ids": [blocks], "remote_request_id": salt, "gantry": gantry}


def test_a_prefiller_dies_in_the_middle_of_a_read(pair, expected, worker_server):
    reads_come_back(pair, expected)
    with nothing_is_left(pair, lost_holds=True, views=1):  # nobody asks for the pair's own offers
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


@pytest.fixture
def short_lived(environment, folder, pair, forks):
    """Starts another prefiller at the sidecar of the pair's."""
    engines = []

    def start():
        engines.append(Engine("engine-short-lived", environment, folder, pair.prefill_sidecar, forks=forks))
        engines[0].wait_until_ready()
        return engines[0]
    yield start
    for engine in engines:
        engine.stop()


def test_a_prefillers_engine_dies_in_the_middle_of_a_read_over_tcp(pair, expected, short_lived):
    """All of its processes. The read may end well where its bytes are still there."""
    reads_come_back(pair, expected)
    workloads = workloads_of(pair.prefill_sidecar)
    with nothing_is_left(pair, lost_holds=True, views=1):
        engine = short_lived()
        both = Pair(engine, pair.decode, [pair.prefill_sidecar, pair.decode_sidecar])
        params = both.offer(PROMPTS[PROMPT], salt="engine dies")

        def die():
            os.killpg(engine.pid, signal.SIGKILL)
            wait_for(lambda: workloads_of(pair.prefill_sidecar) == workloads, "its lease has ended")
        assert in_the_middle(both, params, "engine dies", die, SlowReads) == expected[PROMPT]
        wait_for(lambda: not engine.lives(), "it has ended")
        reads_come_back(pair, expected)


def test_a_prefillers_sidecar_stands_still(pair, expected):
    """Twice in a row: the second read fails at once where the peer was given up, and the prompt is computed all the same."""
    reads_come_back(pair, expected)
    with nothing_is_left(pair):
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
