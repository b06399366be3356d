"""Parts of the connector that no engine is needed for. connector_parts.py has the checks, as they need vLLM's Python."""

from pathlib import Path

import pytest
from forks import IMPORT_SECONDS

SCRIPT = Path(__file__).with_name("connector_parts.py")
SECONDS = 100


@pytest.mark.timeout(SECONDS + IMPORT_SECONDS)
@pytest.mark.parametrize("check", ["blocks_of_requests", "blocks_of_failed_reads", "layouts_with_equal_blocks_differ",
                                   "layers_and_blocks", "layers_that_share_a_block", "latent_attention",
                                   "latent_attention_with_an_axis_of_heads", "caches_that_cannot_be_offered"])
def test_part_of_the_connector(forks, folder, check):
    forks.run([SCRIPT, check], folder / f"{check}.log", SECONDS)
