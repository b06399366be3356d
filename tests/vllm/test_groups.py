"""Which blocks of groups of layers are needed and offered: on lists of blocks, without an engine."""

import sys

import pytest
from backends import ROOT

sys.path.insert(0, str(ROOT / "connectors/vllm"))
from gantry_vllm.groups import Group, needed, still_there  # noqa: E402

FULL, SLIDING = Group(32, 0), Group(32, 64)


@pytest.mark.parametrize("tokens, first", [(1, 0), (64, 0), (65, 0), (95, 0), (96, 1), (127, 1), (128, 2), (500, 13)])
def test_a_window_needs_the_blocks_that_the_last_token_sees(tokens, first):
    """Token `tokens - 1` sees itself and the 63 before it, from tokens - 64 on."""
    assert SLIDING.first_needed(tokens) == first == max(0, tokens - 64) // 32
    assert FULL.first_needed(tokens) == 0


def test_blocks_of_all_groups_that_are_not_computed_yet():
    blocks = ([1, 2, 3, 4], [0, 0, 7, 8])
    assert needed([FULL, SLIDING], blocks, 128) == [1, 2, 3, 4, 7, 8]
    assert needed([FULL, SLIDING], blocks, 128, computed=96) == [4, 8]
    assert needed([FULL, SLIDING], ([1, 2, 3, 4, 5], [0, 0, 7, 8, 9]), 128) == [1, 2, 3, 4, 7, 8], "the answer's block is no prompt's"
    assert needed([FULL], ([],), 0) == []


@pytest.mark.parametrize("held, now, offered", [
    (([1, 2], [5, 6]), ([1, 2, 3], [5, 6, 7]), ([1, 2], [5, 6])),
    (([1, 2], [5, 6]), ([1, 2, 3], [0, 6, 7]), ([1, 2], [0, 6])),
    (([1, 2], [0, 6]), ([1, 2], [0, 6]), ([1, 2], [0, 6])),
    (([1, 2], [5, 6]), ([1, 2], [5, 9]), None),
    (([1, 2],), ([1],), None)], ids=["same", "moved on", "moved on before", "another block", "shorter"])
def test_what_is_offered_of_a_hold(held, now, offered):
    assert still_there(held, now) == offered
