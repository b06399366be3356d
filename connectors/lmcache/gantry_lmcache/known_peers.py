"""The sidecars of other servers, as this server told its own of them."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from typing import Callable, Optional

import gantry

from .greeting import Greeting
from .channel_session import Registered

log = logging.getLogger("lmcache.gantry")

_LOOKS, _LOOK_SECONDS = 30, 2.0  # at a peer that no client needs: a dead one is known to be down after seconds

_Place = tuple[str, str, str]  # (generation of this lease, address, node)


class Peers:
    """Every method may be called by every thread; introduce() and release() make requests."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._up: dict[str, _Place] = {}  # peers that were up there when they were told last
        self._uses: Counter[str] = Counter()
        self._left: set[str] = set()  # that no client needs, and that were up

    def claim(self, peer: str) -> None:
        """The peer is kept until as many calls of release()."""
        with self._lock:
            self._uses[peer] += 1
            self._left.discard(peer)

    def introduce(self, now: Registered, source: Greeting) -> None:
        """Tells the sidecar where the source's is, unless it knows; waits up to 5 s for it. Raises gantry.Error."""
        if source.peer == now.peer:
            return
        place = (now.client.generation, source.address, source.node_id)
        with self._lock:
            if self._up.get(source.peer) == place:
                return
        said = now.client.set_peer(source.peer, source.address, node_id=source.node_id or None)
        if said["state"] == "up":
            with self._lock:
                self._up[source.peer] = place
        self._sweep(now)

    def doubt(self, peer: str) -> None:
        """The next read tells it again."""
        with self._lock:
            self._up.pop(peer, None)

    def release(self, peer: str, current: Callable[[], Optional[Registered]]) -> None:
        """Forgets a peer as soon as it is down, and takes up to a minute. One that stays up is left: others of the pod may use it."""
        with self._lock:
            self._uses -= Counter({peer: 1})
            if self._uses[peer]:
                return
            self._up.pop(peer, None)
            self._left.add(peer)
        for _ in range(_LOOKS):
            now = current()
            if now is not None:
                self._sweep(now)
            with self._lock:
                if peer not in self._left:
                    return
            time.sleep(_LOOK_SECONDS)

    def _sweep(self, now: Registered) -> None:
        with self._lock:
            left = list(self._left)
        for peer in left:
            try:
                if peer != now.peer and now.client.peer(peer)["state"] == "up":
                    continue
                if peer != now.peer:
                    now.client.delete_peer(peer)
            except gantry.Error as error:
                if error.code != "not_found":
                    log.debug("the peer %s is not forgotten yet: %s", peer, error)
                    continue
            with self._lock:
                self._left.discard(peer)
