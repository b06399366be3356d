"""The sidecars of prefillers, as this worker told its own of them."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from contextlib import contextmanager
from typing import Any, Iterable, Iterator, Optional

import gantry

from .handshake import Handshake
from .places import Places

log = logging.getLogger("vllm.gantry")

PEERS_MAX = 256  # of a sidecar's 1024; those that were needed last are kept


_Place = tuple[int, str, str]  # (life of the lease, address, node)


class Peers:
    """Every method may be called by every thread."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._lock = threading.Lock()
        self._told: dict[str, tuple[_Place, bool]] = {}  # peer -> (its place, whether it was up); those needed last at the end
        self._reading: Counter[str] = Counter()

    @contextmanager
    def reading(self, peers: Iterable[str]) -> Iterator[None]:
        """They are not forgotten meanwhile."""
        names = Counter(set(peers))
        with self._lock:
            self._reading += names
        try:
            yield
        finally:
            with self._lock:
                self._reading -= names

    def introduce(self, client: gantry.Client, life: int, source: Handshake, wait: Optional[float] = None) -> bool:
        """Tells the sidecar where the source's is, unless it knows. Returns whether it was told.

        `wait` is the seconds for a new peer to be up, None: set_peer's. A peer is told again until it was up: on one node its
        socket may come later than its address. Clients may have made the source up: raises gantry.Error "permission_denied" for
        an address at which no prefiller may be, and "conflict" for another one than that of a peer that is up.
        """
        if why := self._places.why_not(source.address):
            raise gantry.Error("permission_denied", f"the prefiller {source.peer} is said to be at {source.address}: {why}",
                               "list its network or name in peer_addresses of kv_connector_extra_config")
        place = (life, source.address, source.node_id)
        with self._lock:
            told, up = self._told.get(source.peer, (None, False))
            if told == place:
                self._told[source.peer] = self._told.pop(source.peer)
                if up:
                    return False
        _refuse_another_place(client, source)
        state = self._set(client, source, 0 if told == place else wait)["state"]
        with self._lock:
            self._told.pop(source.peer, None)
            if state == "up" or wait != 0:
                self._told[source.peer] = place, state == "up"
        self._forget_some(client)
        return True

    def _set(self, client: gantry.Client, source: Handshake, wait: Optional[float]) -> dict[str, Any]:
        try:
            return client.set_peer(source.peer, source.address, wait, node_id=source.node_id or None)
        except gantry.Error as error:
            if error.code != "resource_exhausted" or not self._forget_the_dead(client):
                raise
        return client.set_peer(source.peer, source.address, wait, node_id=source.node_id or None)

    def _forget_the_dead(self, client: gantry.Client) -> bool:
        """Deletes the peers that are down: those of an engine that ran here before, and prefillers that have gone."""
        down = [peer["name"] for peer in client.request("GET", "/v1/peers")["peers"] if peer["state"] == "down"]
        with self._lock:
            dead = [peer for peer in down if not self._reading[peer]]
            for peer in dead:
                self._told.pop(peer, None)
        _delete(client, dead)
        return bool(dead)

    def _forget_some(self, client: gantry.Client) -> None:
        with self._lock:
            idle = [peer for peer in self._told if not self._reading[peer]]
            surplus = idle[:max(0, len(self._told) - PEERS_MAX)]
            for peer in surplus:
                del self._told[peer]
        _delete(client, surplus)


def _delete(client: gantry.Client, peers: list[str]) -> None:
    for peer in peers:
        try:
            client.delete_peer(peer)
        except gantry.Error as error:
            log.debug("the peer %s is not forgotten: %s", peer, error)


def _refuse_another_place(client: gantry.Client, source: Handshake) -> None:
    try:
        known = client.peer(source.peer)
    except gantry.Error as error:
        if error.code == "not_found":
            return
        raise
    address = known["address"]
    at_its_socket = address.startswith("unix:") and bool(source.node_id) and known.get("node_id") == source.node_id
    if known["state"] == "up" and address != source.address and not at_its_socket:
        raise gantry.Error("conflict", f"the parameters say that the peer {source.peer} is at {source.address}, and it is up at {address}",
                           "a peer that has moved is found once it is down at its old place")
