"""The sidecars of other servers, as this server told its own of them."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any, Callable, Optional

import gantry

from .channel_session import Registered
from .channel_handshake import Handshake

log = logging.getLogger("lmcache.gantry")

_LOOKS, _LOOK_SECONDS = 30, 2.0  # at peers that no client needs: a dead one is known to be down after seconds
_HINT = "give each sidecar a name of its own (--name)"

_Place = tuple[str, str, str]  # (generation of this lease, address, node)
_Claim = tuple[str, str]  # (peer, node)


class Peers:
    """Every method may be called by every thread; introduce() and sweep() make requests.

    Peers that others have set, such as an engine's connector or an operator, are neither moved while they are up nor deleted.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._up: dict[str, _Place] = {}  # peers that were up there when they were told last
        self._claims: dict[str, _Claim] = {}  # by the URL of the server that it is beside
        self._own: dict[str, str] = {}  # peers that the sidecar has from here: the sidecar's generation
        self._left: set[str] = set()  # that no client needs, until they are down
        self._looks_left = 0
        self._sweeping = False

    def claim(self, url: str, source: Handshake) -> None:
        """The peer is kept until release(), or until the server at this URL is beside another one."""
        with self._lock:
            before = self._claims.get(url)
            self._claims[url] = source.peer, source.node_id
            self._left.discard(source.peer)
            self._leave(before)

    def reclaim(self, url: str, source: Handshake) -> None:
        """As claim(), unless it was released."""
        with self._lock:
            known = url in self._claims
        if known:
            self.claim(url, source)

    def check(self, now: Registered, source: Handshake) -> None:
        """Raises gantry.Error "conflict" where sidecars of two nodes have one name. Makes no request."""
        with self._lock:
            claims = list(self._claims.values())
        others = [node for peer, node in claims if peer == source.peer and node != source.node_id]
        if others or (source.peer == now.peer and source.sidecar != now.sidecar):
            raise gantry.Error("conflict", f"two sidecars have the name {source.peer}, and one of them is at {source.address}", _HINT)

    def introduce(self, now: Registered, source: Handshake) -> None:
        """Tells the sidecar where the source's is, unless it knows; waits up to 5 s for it. Raises gantry.Error."""
        self.check(now, source)
        if source.peer == now.peer:
            return
        place = (now.client.generation, source.address, source.node_id)
        with self._lock:
            if self._up.get(source.peer) == place:
                return
            own = self._own.get(source.peer) == now.sidecar
        known = None if own else _known(now, source.peer)
        if known is None or known["state"] != "up":
            said = now.client.set_peer(source.peer, source.address, node_id=source.node_id or None)
        elif known.get("address") != source.address:
            raise gantry.Error("conflict", f"the sidecar has the peer {source.peer} at {known.get('address')} from another program, and the "
                               f"server says {source.address}", f"{_HINT}, or one peer_address for both programs")
        else:
            said = known
        with self._lock:
            if known is None:
                self._own[source.peer] = now.sidecar
            if said["state"] == "up":
                self._up[source.peer] = place

    def invalidate(self, peer: str) -> None:
        """The next read tells it again."""
        with self._lock:
            self._up.pop(peer, None)

    def release(self, url: str) -> bool:
        """Makes no request. True: a thread has to call sweep()."""
        with self._lock:
            self._leave(self._claims.pop(url, None))
            self._looks_left = _LOOKS
            begins = bool(self._left) and not self._sweeping
            self._sweeping = self._sweeping or begins
            return begins

    def sweep(self, current: Callable[[], Optional[Registered]]) -> None:
        """Forgets peers as soon as they are down, and takes up to a minute. Those that stay up are left."""
        while True:
            now = current()
            if now is not None:
                self._sweep(now)
            with self._lock:
                self._looks_left -= 1
                if not self._left or self._looks_left <= 0:
                    self._sweeping = False
                    return
            time.sleep(_LOOK_SECONDS)

    def close(self) -> None:
        """Ends sweep()."""
        with self._lock:
            self._left.clear()

    def _leave(self, claim: Optional[_Claim]) -> None:
        """To be called with the lock."""
        if claim is not None and claim[0] not in (peer for peer, _ in self._claims.values()):
            self._up.pop(claim[0], None)
            self._left.add(claim[0])

    def _sweep(self, now: Registered) -> None:
        with self._lock:
            left = [(peer, self._own.get(peer) == now.sidecar) for peer in self._left]
        for peer, own in left:
            try:
                if own and now.client.peer(peer)["state"] == "up":
                    continue
                with self._lock:
                    if peer not in self._left:  # a new client needs it
                        continue
                if own:
                    now.client.delete_peer(peer)
            except gantry.Error as error:
                if error.code != "not_found":
                    log.debug("the peer %s is not forgotten yet: %s", peer, error)
                    continue
            with self._lock:
                self._left.discard(peer)
                self._own.pop(peer, None)


def _known(now: Registered, peer: str) -> Optional[dict[str, Any]]:
    try:
        return now.client.peer(peer)
    except gantry.Error as error:
        if error.code != "not_found":
            raise
        return None
