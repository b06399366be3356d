"""Paged KV caches whose every byte is known: one allocation, a view for each layer and kind, guards between them."""

import itertools
import random
from dataclasses import dataclass

from workloads import Memory

GUARD_BYTES = 4096 + 512  # before each view and behind the last: no view begins where its allocation does
GUARD = 0xA5
_seeds = itertools.count(21)
_POOL = random.Random(20).randbytes(1 << 20)


@dataclass(frozen=True)
class Geometry:
    """What a rank registers. `kinds`: the views of a layer, as "k" and "v", or "kv" where both share a block."""

    layers: int
    kinds: tuple
    blocks: int
    block_bytes: int
    aux_bytes: int = 0  # one more buffer, "aux", of so many blocks as AUX_BLOCKS, each of this size

    AUX_BLOCKS = 16

    @property
    def names(self):
        return [f"{kind}.{layer}" for layer in range(self.layers) for kind in self.kinds]

    @property
    def view_bytes(self):
        return self.blocks * self.block_bytes

    def offset(self, view):
        return GUARD_BYTES + view * (self.view_bytes + GUARD_BYTES)

    @property
    def aux_offset(self):
        return self.offset(len(self.names))

    @property
    def bytes(self):
        end = self.aux_offset
        return end + self.AUX_BLOCKS * self.aux_bytes + GUARD_BYTES if self.aux_bytes else end

    @property
    def specs(self):
        """(name, offset, length, block_bytes) of each buffer."""
        views = [(name, self.offset(view), self.view_bytes, self.block_bytes) for view, name in enumerate(self.names)]
        aux = [("aux", self.aux_offset, self.AUX_BLOCKS * self.aux_bytes, self.aux_bytes)] if self.aux_bytes else []
        return views + aux


def runs(*lists):
    """(first of each list, how many) for stretches in which every list counts up by one."""
    start = 0
    for end in range(1, len(lists[0]) + 1):
        if end == len(lists[0]) or any(each[end] != each[end - 1] + 1 for each in lists):
            yield (*(each[start] for each in lists), end - start)
            start = end


class Cache:
    """The memory of one rank, and beside it what every byte of it must be.

    What is computed here is written to both. What a transfer brings is written to `wanted` when it is submitted; when it
    has succeeded, and whenever nothing moves, the memory must be what is wanted, guards and free blocks included.
    """

    def __init__(self, geometry):
        self.geometry = geometry
        self.memory = Memory(geometry.bytes)
        self.wanted = bytearray(geometry.bytes)
        for offset in (*map(geometry.offset, range(len(geometry.names))), geometry.aux_offset):
            guard = slice(offset - GUARD_BYTES, offset)
            self.wanted[guard] = self.memory.map[guard] = bytes([GUARD]) * GUARD_BYTES
        self._random = random.Random(next(_seeds))

    def compute(self, blocks, layers=None):
        """New content of these blocks, of all layers or of [first, last]."""
        stretches = [(block * self.geometry.block_bytes, count * self.geometry.block_bytes) for block, count in runs(blocks)]
        for view in self._views(layers):
            base, at = self.geometry.offset(view), self._random.randrange(len(_POOL) // 2)
            for start, length in stretches:
                self._write(base + start, length, at)
                at = (at + length + 1) % (len(_POOL) // 2)

    def compute_aux(self, block):
        size = self.geometry.aux_bytes
        self._write(self.geometry.aux_offset + block * size, size, self._random.randrange(len(_POOL) // 2))

    def _write(self, start, length, at):
        assert at + length <= len(_POOL), f"a stretch of {length} bytes is longer than what there is"
        self.wanted[start:start + length] = self.memory.map[start:start + length] = _POOL[at:at + length]

    def expect(self, mine, source, theirs, slices=None, layers=None):
        """From now on block mine[i] is wanted to be what theirs[i] of `source` is now.

        slices: ((offset here, offset there, bytes), ...) of each block that move; None: all of it.
        """
        size, other_size = self.geometry.block_bytes, source.geometry.block_bytes
        if slices is None:
            pieces = [(block * size, other * size, count * size) for block, other, count in runs(mine, theirs)]
        else:
            pieces = [(block * size + offset, other * other_size + offset_there, length)
                      for block, other in zip(mine, theirs) for offset, offset_there, length in slices]
        for view in self._views(layers):
            here, there = self.geometry.offset(view), source.geometry.offset(view)
            for to, at, length in pieces:
                self.wanted[here + to:here + to + length] = source.wanted[there + at:there + at + length]

    def expect_aux(self, mine, source, theirs):
        size = self.geometry.aux_bytes
        to, at = self.geometry.aux_offset + mine * size, source.geometry.aux_offset + theirs * size
        self.wanted[to:to + size] = source.wanted[at:at + size]

    def accept(self, blocks, layers=None):
        """Whatever these blocks contain is right: a transfer into them did not succeed."""
        for start, length in self._places(blocks, layers):
            self.wanted[start:start + length] = self.memory.map[start:start + length]

    def differs_at(self, blocks, layers=None):
        """Offsets at which these blocks are not what is wanted, of each stretch of blocks the first."""
        return [start for start, length in self._places(blocks, layers)
                if self.memory.map[start:start + length] != self.wanted[start:start + length]]

    def assert_all_is_as_wanted(self, where):
        """Every byte of the allocation."""
        if self.memory.map[:] == self.wanted:
            return
        found = self.memory.map[:]
        first = next(i for i, (one, other) in enumerate(zip(found, self.wanted)) if one != other)
        raise AssertionError(f"{where}: {self.name_of(first)} is not what is wanted")

    def name_of(self, offset):
        geometry = self.geometry
        view, rest = divmod(offset, geometry.view_bytes + GUARD_BYTES)
        if rest < GUARD_BYTES or view >= len(geometry.names):
            return f"byte {offset}, of a guard or of aux,"
        block, byte = divmod(rest - GUARD_BYTES, geometry.block_bytes)
        return f"byte {byte} of block {block} of {geometry.names[view]}"

    def _views(self, layers):
        kinds = len(self.geometry.kinds)
        first, last = layers or (0, self.geometry.layers - 1)
        return range(first * kinds, (last + 1) * kinds)

    def _places(self, blocks, layers):
        size = self.geometry.block_bytes
        stretches = [(block * size, count * size) for block, count in runs(blocks)]
        for view in self._views(layers):
            base = self.geometry.offset(view)
            for start, length in stretches:
                yield base + start, length

    def close(self):
        self.memory.close()


class BlockPool:
    """The block ids of an engine, handed out in stretches of `stretch` at random places, as after hours of service."""

    def __init__(self, blocks, seed, stretch=1):
        self._random = random.Random(seed)
        self._stretch = stretch
        self._free = list(range(0, blocks, stretch))
        self._random.shuffle(self._free)
        self.taken = set()

    def take(self, count):
        blocks = []
        while len(blocks) < count:
            first = self._free.pop()
            blocks += range(first, first + self._stretch)
        self.taken.update(blocks)
        return blocks[:count]

    def give_back(self, blocks):
        firsts = {block - block % self._stretch for block in blocks}
        for first in firsts:
            self.taken.difference_update(range(first, first + self._stretch))
        self._free += sorted(firsts)
        self._random.shuffle(self._free)
