"""kill -9 of either sidecar between two requests: answers stay right, both engines live, and reads come back."""

import pytest
from prompts import PROMPTS
from vllm_servers import wait_for

pytestmark = pytest.mark.timeout(900)


@pytest.mark.parametrize("side", ["prefill", "decode"])
def test_a_sidecar_dies_between_two_requests(pair, expected, side):
    sidecar = getattr(pair, f"{side}_sidecar")
    engine = getattr(pair, side)
    lost, back = (engine.log.count(f"the Gantry sidecar is {state}") for state in ("lost", "back"))  # in cases before
    sidecar.kill()
    try:
        wait_for(lambda: engine.log.count("the Gantry sidecar is lost") > lost, "the loss is noticed")
        before = len(pair.decode.reads())
        assert pair.complete(PROMPTS[f"{side} sidecar lost"]) == expected[f"{side} sidecar lost"]
        assert len(pair.decode.reads()) == before, "the blocks were computed again"
    finally:
        sidecar.start()
    wait_for(lambda: engine.log.count("the Gantry sidecar is back") > back, "the lease is back")
    name = f"{side} sidecar back"
    assert pair.complete(PROMPTS[name]) == expected[name]
    # The peer may need another attempt until its session is back.
    attempts = iter(range(1000))
    wait_for(lambda: pair.complete(PROMPTS[name], salt=f"{next(attempts)}") == expected[name]
             and len(pair.decode.reads()) > before, "reads come back")
    assert pair.prefill.healthy() and pair.decode.healthy()
