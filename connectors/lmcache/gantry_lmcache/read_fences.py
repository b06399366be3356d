"""Fences of reads: a read moves no byte before its own process has raised its fence."""

from __future__ import annotations

import itertools

import gantry

_WORD = 8
_FENCES = 8192  # a fence is used again after as many reads, when the one before is long over

Fence = tuple[gantry.Buffer, int, int]


class ReadFences:
    """Counters in an arena of their own, one for each read.

    LMCache takes its memory back after a time. A sidecar that stood still may take a request after that time, which nobody
    waits for any more. Its fence is not raised, so it expires.
    """

    def __init__(self, client: gantry.Client) -> None:
        self._arena = client.arena(_FENCES * _WORD, "lmcache-fences")
        self._counters = memoryview(self._arena).cast("B").cast("Q")
        self._buffer = client.register("fences", self._arena, access=())
        self._next = itertools.count()

    def new(self) -> Fence:
        """The fence of one transfer, which is not raised."""
        turn, number = divmod(next(self._next), _FENCES)
        return self._buffer, number * _WORD, turn + 1

    def raise_(self, fence: Fence) -> None:
        _, offset, value = fence
        self._counters[offset // _WORD] = value
