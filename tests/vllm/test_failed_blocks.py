"""A read that failed in part: the real vLLM computes from the first missing block on, and uses those before it."""

import re
from pathlib import Path

import pytest
from backends import BLOCK
from prompts import PROMPTS
from vllm_servers import Engine, wait_for

pytestmark = pytest.mark.timeout(900)

FIRST_MISSING = 4  # as faulty_connector.py has it
PROMPT = PROMPTS["in part"]
BLOCKS = -(-len(PROMPT) // BLOCK)


@pytest.fixture
def decoder(pair, environment, folder, forks):
    """A decoder at the same sidecar as the pair's, whose reads all fail from FIRST_MISSING on."""
    engine = Engine("engine-faulty", environment, folder, pair.decode_sidecar, "FaultyConnector", "faulty_connector",
                    Path(__file__).parent / "faulty", forks=forks)
    try:
        engine.wait_until_ready()
        yield engine
    finally:
        engine.stop()


def test_blocks_before_the_first_missing_one_are_used(pair, expected, decoder):
    assert decoder.complete(PROMPT, pair.offer(PROMPT))[0] == expected["in part"]
    # vLLM has counted the tokens that it computes again, so that the others were not.
    assert re.search(rf"Recovered from KV load failure: 1 request\(s\) rescheduled "
                     rf"\({len(PROMPT) - FIRST_MISSING * BLOCK} tokens affected\)", decoder.log)
    for name, value in (("failed_transfers", 1), ("failed_blocks", BLOCKS - FIRST_MISSING - 1), ("recomputed_reqs", 1),
                        ("recomputed_blocks", BLOCKS - FIRST_MISSING)):
        wait_for(lambda name=name, value=value: decoder.metric(f"vllm:gantry_num_{name}_total") == value, name)
    wait_for(lambda: not pair.holds(), "the prefiller is told that nobody reads the blocks")
    # Computed and read blocks together serve another request.
    assert decoder.complete(PROMPT)[0] == expected["in part"]
    wait_for(lambda: decoder.metric("vllm:kv_cache_usage_perc") == 0, "all blocks are free")
    assert decoder.healthy()
