"""Prefillers' holds that the decoder's scheduler still needs, and when their prefillers are told."""

from __future__ import annotations

import time
from typing import Callable

from .handshake import Handshake, Workers, hold_id

_PARTS = 6  # a hold is renewed so many times in its time
_SECONDS_MIN = 0.1  # between two messages, whatever a request says of its hold's time


class Renewals:
    """The scheduler's alone. One message to each prefiller renews all of its holds that are needed here."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._needed: dict[str, tuple[Workers, str, float]] = {}  # request -> (sources, hold, its time in seconds)
        self._told: dict[Handshake, tuple[float, float]] = {}  # (when, and until when it is remembered)

    def add(self, request: str, sources: Workers, remote_request: str, ttl: float) -> None:
        self._needed.setdefault(request, (sources, hold_id(remote_request), ttl))

    def remove(self, request: str) -> None:
        self._needed.pop(request, None)

    def due(self) -> dict[Handshake, list[str]]:
        """The holds to renew now, by their prefillers."""
        if not self._needed and not self._told:
            return {}
        now = self._clock()
        holds: dict[Handshake, list[str]] = {}
        pauses: dict[Handshake, float] = {}
        for sources, hold, ttl in self._needed.values():
            pause = max(ttl / _PARTS, _SECONDS_MIN)
            for source in sources:
                holds.setdefault(source, []).append(hold)
                pauses[source] = min(pauses.get(source, pause), pause)
        due = {source: held for source, held in holds.items()
               if source not in self._told or now - self._told[source][0] >= pauses[source]}
        # A source that is needed no more is remembered for a pause: short requests one after the other are one message.
        self._told = {source: told for source, told in self._told.items() if source in holds or now < told[1]}
        self._told |= {source: (now, now + pauses[source]) for source in due}
        return due
