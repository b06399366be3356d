"""An engine whose sidecar is not where it is said to be does not start, and its log says why in one line."""

import re
from types import SimpleNamespace

import pytest
from vllm_servers import START_SECONDS, Engine, wait_for

pytestmark = pytest.mark.timeout(900)


def test_a_wrong_run_directory(environment, folder, forks):
    engine = Engine("engine-without-sidecar", environment, folder, SimpleNamespace(run_dir=folder / "not-there"), forks=forks)
    try:
        wait_for(lambda: not engine.lives(), "the engine ends", START_SECONDS)
        said = re.findall(r"gantry\.errors\.Error: peer_unavailable: .*", engine.log)
        assert said and str(folder / "not-there") in said[0], engine.log[-4000:]
        assert "Application startup complete" not in engine.log
    finally:
        engine.stop()
