"""Either sidecar is upgraded under load: it is ended by SIGTERM and another one starts in its place, as Kubernetes does it."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from prompts import MANY, PROMPTS
from vllm_servers import wait_for

pytestmark = pytest.mark.timeout(900)

TOGETHER = 3


class Load:
    """Requests without a pause until stop(), each of which is compared."""

    def __init__(self, pair, expected):
        self._pair, self._expected = pair, expected
        self._stopped = threading.Event()
        self.answers = 0
        self._pool = ThreadPoolExecutor(TOGETHER)
        self._runs = [self._pool.submit(self._run, number) for number in range(TOGETHER)]

    def _run(self, number):
        round = 0
        while not self._stopped.is_set():
            name = MANY[(number + TOGETHER * round) % len(MANY)]
            assert self._pair.complete(PROMPTS[name], salt=f"upgrade {number} {round}") == self._expected[name], name
            round += 1
            self.answers += 1

    def stop(self):
        self._stopped.set()
        with self._pool:
            for run in self._runs:
                run.result()


def test_sidecars_are_upgraded_under_load(pair, expected):
    load = Load(pair, expected)
    try:
        for side in ("decode", "prefill"):
            sidecar, engine = getattr(pair, f"{side}_sidecar"), getattr(pair, side)
            back, answers, reads = engine.log.count("the Gantry sidecar is back"), load.answers, len(pair.decode.reads())
            wait_for(lambda: load.answers > answers and len(pair.decode.reads()) > reads, "the load reads")
            sidecar.stop()
            sidecar.start()
            wait_for(lambda: engine.log.count("the Gantry sidecar is back") > back, f"the lease of {engine.name} is back")
            reads = len(pair.decode.reads())
            wait_for(lambda: len(pair.decode.reads()) > reads + TOGETHER, "reads come back")
    finally:
        load.stop()
    pair.end_holds()
    for engine in (pair.prefill, pair.decode):
        wait_for(lambda engine=engine: engine.metric("vllm:kv_cache_usage_perc") == 0, f"{engine.name} has free blocks only")
        assert engine.healthy()
