"""The sidecars of prefillers, as this worker told its own of them."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from contextlib import contextmanager
from enum import Enum
from typing import Any, Iterator, Optional

import gantry

from .handshake import Handshake, Workers

log = logging.getLogger("vllm.gantry")

KEPT = 64  # peers that are not up, and are not needed any more; a sidecar has room for 1024 in all
_LOOKED_AT = 2  # of those that were needed longest ago, with each new one

_Place = tuple[int, str, str]  # (life of the lease, address, node)


class _State(Enum):
    NEW = 0  # it was told, and nobody has waited for it
    WAITED = 1  # in vain
    UP = 2


class Peers:
    """Every method may be called by every thread. Clients may have made up what they say of a source."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._told: dict[str, tuple[_Place, _State]] = {}  # by their names; those needed last at the end
        self._reading: Counter[tuple[str, _Place]] = Counter()

    @contextmanager
    def reading(self, life: int, sources: Workers) -> Iterator[None]:
        """Meanwhile they are not forgotten, and stay where they are. After an error they are told again the next time."""
        these = Counter({(source.peer, _place(life, source)) for source in sources})
        with self._lock:
            self._reading += these
        try:
            yield
        except BaseException:
            with self._lock:
                for peer, place in these:
                    if self._told.get(peer) == (place, _State.UP):
                        self._told[peer] = place, _State.WAITED
            raise
        finally:
            with self._lock:
                self._reading -= these

    def introduce(self, client: gantry.Client, life: int, source: Handshake) -> bool:
        """Before a read: tells the sidecar where the source's is, unless it knows. Returns whether it was told.

        A new peer is waited for once, as set_peer() does. One is told again until it was up: on one node its socket may come
        later than its address. Raises gantry.Error "conflict" while it is read at another address.
        """
        state = self._claim(life, source)
        if state == _State.UP:
            return False
        self._tell(client, life, source, None if state == _State.NEW else 0)
        return True

    def remind(self, client: gantry.Client, life: int, source: Handshake) -> None:
        """Before a message: as introduce(), but waits for nothing, and tells the sidecar unless the peer is read just now."""
        state = self._claim(life, source)
        with self._lock:
            if state == _State.UP and self._reading[source.peer, _place(life, source)]:
                return
        self._tell(client, life, source, 0)

    def _claim(self, life: int, source: Handshake) -> _State:
        place = _place(life, source)
        with self._lock:
            told, state = self._told.pop(source.peer, (place, _State.NEW))
            if told[0] == life and told != place and self._reading[source.peer, told]:
                self._told[source.peer] = told, state
                raise gantry.Error("conflict", f"the parameters say that the peer {source.peer} is at {source.address}, and it is read "
                                   f"at {told[1]} just now", "use names of sidecars once")
            state = state if told == place else _State.NEW
            self._told[source.peer] = place, state
        return state

    def _tell(self, client: gantry.Client, life: int, source: Handshake, wait: Optional[float]) -> None:
        place = _place(life, source)
        is_up = self._set(client, source, wait)["state"] == "up"
        with self._lock:
            told, state = self._told.get(source.peer, (None, _State.NEW))
            if told == place and is_up:
                self._told[source.peer] = place, _State.UP
            elif told == place and (wait is None or state == _State.UP):
                self._told[source.peer] = place, _State.WAITED
        self._forget_some(client)

    def _set(self, client: gantry.Client, source: Handshake, wait: Optional[float]) -> dict[str, Any]:
        try:
            return client.set_peer(source.peer, source.address, wait, node_id=source.node_id or None)
        except gantry.Error as error:
            if error.code != "resource_exhausted":
                raise
        for peer in client.request("GET", "/v1/peers")["peers"]:
            if peer["state"] != "up":
                self._forget(client, peer["name"])
        return client.set_peer(source.peer, source.address, wait, node_id=source.node_id or None)

    def _forget_some(self, client: gantry.Client) -> None:
        """Prefillers come and go under new names, and names may be made up. Other workers here share those that are up."""
        with self._lock:
            surplus = [peer for peer in self._told if not self._is_read(peer)][:max(0, min(_LOOKED_AT, len(self._told) - KEPT))]
        for peer in surplus:
            try:
                is_up = client.peer(peer)["state"] == "up"
            except gantry.Error as error:
                is_up = error.code != "not_found"
            if not is_up:
                self._forget(client, peer)
                continue
            with self._lock:
                if peer in self._told:
                    self._told[peer] = self._told.pop(peer)

    def _forget(self, client: gantry.Client, peer: str) -> None:
        with self._lock:
            if self._is_read(peer):
                return
            self._told.pop(peer, None)
        try:
            client.delete_peer(peer)
        except gantry.Error as error:
            log.debug("the peer %s is not forgotten: %s", peer, error)

    def _is_read(self, peer: str) -> bool:
        return any(name == peer for name, _ in self._reading)


def _place(life: int, source: Handshake) -> _Place:
    return life, source.address, source.node_id
