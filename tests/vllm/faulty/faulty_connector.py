"""GantryConnector for a decoder whose reads all fail, although the blocks before FIRST_MISSING have arrived.

Sidecars tell of such an end too, but not at will: they move one layer of all blocks after the other, and neighbours in one piece.
test_kills_in_reads.py has what a sidecar tells.
"""

import gantry
from gantry_vllm import pulls
from gantry_vllm.connector import GantryConnector

FIRST_MISSING = 4
GARBAGE = 50.0  # No right token comes of it. Not NaN: the last block's end is multiplied by 0 and no more.
_caches = []


class FaultyConnector(GantryConnector):

    def register_kv_caches(self, kv_caches):
        super().register_kv_caches(kv_caches)
        _caches.extend(kv_caches.values())


def _read_in_part(self, load, began):
    _read(self, load, began)
    for cache in _caches:
        cache[load.local_blocks[FIRST_MISSING:]] = GARBAGE
    raise gantry.Error("deadline_exceeded", "the read ended in part")


_read = pulls.Pulls._read
pulls.Pulls._read = _read_in_part
pulls.missing_blocks = lambda details, blocks: blocks[FIRST_MISSING:FIRST_MISSING + 1] + blocks[FIRST_MISSING + 2:]
