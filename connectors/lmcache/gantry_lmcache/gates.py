"""Gates: a read moves no byte before its own process has opened its gate."""

from __future__ import annotations

import itertools

import gantry

_WORD = 8
_GATES = 8192  # a gate is used again after as many reads, when the one before is long over

Fence = tuple[gantry.Buffer, int, int]


class Gates:
    """Counters in an arena of their own, one for each read.

    LMCache takes its memory back after a time. A sidecar that stood still may take a request after that time, which nobody
    waits for any more. Its gate is closed, so it expires.
    """

    def __init__(self, client: gantry.Client) -> None:
        self._arena = client.arena(_GATES * _WORD, "lmcache-gates")
        self._counters = memoryview(self._arena).cast("B").cast("Q")
        self._buffer = client.register("gates", self._arena, access=())
        self._next = itertools.count()

    def new(self) -> Fence:
        """The fence of one transfer; its gate is closed."""
        turn, gate = divmod(next(self._next), _GATES)
        return self._buffer, gate * _WORD, turn + 1

    def open(self, fence: Fence) -> None:
        _, offset, value = fence
        self._counters[offset // _WORD] = value
