"""vLLM's own router before both engines, as it is for NixlConnector: it hands the parameters on, and answers are one engine's."""

import subprocess
from pathlib import Path

import pytest
from prompts import LENGTHS, PROMPTS
from backends import variables
from vllm_servers import Engine, free_port, wait_for

pytestmark = pytest.mark.timeout(900)


class Router(Engine):
    """It is asked as an engine is."""

    def __init__(self, environment, folder, pair):
        self.name, self.port = "router", free_port()
        self.log_path = Path(folder) / "router.log"
        command = ["nice", "-n", "10", f"{environment}/venv/bin/vllm-router", "--vllm-pd-disaggregation",
                   "--prefill", f"http://127.0.0.1:{pair.prefill.port}", "--decode", f"http://127.0.0.1:{pair.decode.port}",
                   "--kv-connector", "nixl", "--host", "127.0.0.1", "--port", str(self.port),
                   "--prometheus-host", "127.0.0.1", "--prometheus-port", str(free_port())]
        with open(self.log_path, "wb") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=variables(),
                                             start_new_session=True)


@pytest.fixture(scope="module")
def router(environment, folder, pair):
    router = Router(environment, folder, pair)
    try:
        router.wait_until_ready()
        yield router
    finally:
        router.stop()


@pytest.mark.parametrize("length", LENGTHS)
def test_answers_through_the_router(pair, expected, router, length):
    before = len(pair.decode.reads())
    assert router.complete(PROMPTS[f"shm {length}"], salt=f"routed {length}")[0] == expected[f"shm {length}"], router.log[-2000:]
    wait_for(lambda: len(pair.decode.reads()) > before, "the decoder has read the blocks")
    assert pair.decode.reads()[before:] == [("succeeded", "shm")]
    wait_for(lambda: not pair.holds(), "the holds have ended")
