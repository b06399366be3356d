"""Push: where the prefiller's sidecar moves the bytes, it must know the decoder's. The decoder's worker says where that is."""

from __future__ import annotations

import json
import logging

from .handshake import Handshake
from .lanes import Lanes
from .offer import handshake_of
from .peers import Peers
from .places import Places
from .session import Session

log = logging.getLogger("vllm.gantry")

MEET = b"gantry-vllm meet "  # and a decoder's Handshake: its sidecar is to be connected to
_AT_ONCE = 4  # decoders that are told to the sidecar at the same time


def meet(decoder: Handshake) -> bytes:
    return MEET + json.dumps(decoder.params()).encode()


class Introductions:
    """The prefiller's side. Workloads of all peers can send such messages: each speaks for itself, and from one of `places`."""

    def __init__(self, session: Session, places: Places, peers: Peers) -> None:
        self._session, self._places, self._peers = session, places, peers
        self._lanes = Lanes("gantry-meet", 1, _AT_ONCE)

    def heard(self, message: bytes, sender: tuple[str, str]) -> None:
        """Neither blocks nor raises. The sender is a peer and its workload, as the own sidecar knows them."""
        try:
            said = json.loads(message[len(MEET):])
            if not isinstance(said, dict):
                raise ValueError("the message has no object")
            decoder = handshake_of(said)
            if sender != (decoder.peer, decoder.workload):
                raise ValueError(f"{sender[1]} of {sender[0]} says where {decoder.workload} of {decoder.peer} is")
            if why := self._places.why_not(decoder.address):
                raise ValueError(f"{why}. List its network or name in peer_addresses of kv_connector_extra_config")
        except (ValueError, RecursionError) as error:
            log.warning("a decoder that asks for a push is not connected to: %s", error)
            return
        self._lanes.submit("", self._connect, decoder)

    def close(self) -> None:
        self._lanes.close()

    def _connect(self, decoder: Handshake) -> None:
        client, life = self._session.current
        if client is None:
            return
        try:
            self._peers.remind(client, life, decoder)
        except Exception as error:  # noqa: BLE001 - the decoder asks again
            log.debug("the decoder's sidecar %s is not connected to: %s", decoder.peer, error)
