"""The sidecars of other servers, as this server told its own of them."""

from __future__ import annotations

import logging
import threading
import time
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
        self._claims: dict[str, str] = {}  # by the URL of the server that it is beside
        self._left: set[str] = set()  # that no client needs, until they are down

    def claim(self, url: str, peer: str) -> None:
        """The peer is kept until release(), or until the server at this URL is beside another one."""
        with self._lock:
            before = self._claims.get(url, peer)
            self._claims[url] = peer
            self._left.discard(peer)
            self._leave(before)

    def reclaim(self, url: str, peer: str) -> None:
        """As claim(), unless it was released."""
        with self._lock:
            known = url in self._claims
        if known:
            self.claim(url, peer)

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

    def release(self, url: str, current: Callable[[], Optional[Registered]]) -> None:
        """Forgets a peer as soon as it is down, and takes up to a minute. One that stays up is left: others of the pod may use it."""
        with self._lock:
            peer = self._claims.pop(url, "")
            self._leave(peer)
        for _ in range(_LOOKS):
            now = current()
            if now is not None:
                self._sweep(now)
            with self._lock:
                if peer not in self._left:
                    return
            time.sleep(_LOOK_SECONDS)

    def _leave(self, peer: str) -> None:
        """To be called with the lock."""
        if peer and peer not in self._claims.values():
            self._up.pop(peer, None)
            self._left.add(peer)

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
