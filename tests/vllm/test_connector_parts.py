"""Parts of the connector that no engine is needed for. connector_parts.py has the checks, as they need vLLM's Python."""

import subprocess
from pathlib import Path

import pytest
from backends import python_of, variables

SCRIPT = Path(__file__).with_name("connector_parts.py")


@pytest.mark.parametrize("check", ["blocks_of_requests", "blocks_of_failed_reads", "layouts_with_equal_blocks_differ",
                                   "layers_and_blocks", "caches_that_cannot_be_offered"])
def test_part_of_the_connector(environment, check):
    done = subprocess.run([python_of(environment), SCRIPT, check], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          env=variables(), timeout=100, check=False)
    assert done.returncode == 0, done.stderr[-6000:]
