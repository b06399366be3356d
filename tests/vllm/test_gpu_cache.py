"""The cache of an engine on a GPU has the layout that the case asked for."""

import re

import pytest
from backends import LAYOUT, ON_GPU

pytestmark = [pytest.mark.timeout(900), pytest.mark.skipif(not ON_GPU, reason="needs vLLM on a GPU")]

CACHES = {"NHD": "6 of float32 [16, heads, 64] on cuda:0",
          "HND": "6 of float32 [heads, 16, 64] on cuda:0",
          "cross": "1 of float32 [6, 16, 4, 64] at [4096, 256, 64, 1] on cuda:0"}


def test_the_cache_has_the_layout_that_was_asked_for(pair):
    for engine in (pair.prefill, pair.decode):
        assert re.findall(r"the KV cache is registered as .*: (\d+ of .*)", engine.log) == [CACHES[LAYOUT]]
