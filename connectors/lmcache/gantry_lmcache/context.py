"""LMCache's context of the channel: the one lease of this server, its clients, and its addresses."""

from __future__ import annotations

import logging
import threading
from typing import Any

import gantry
import zmq
from lmcache.v1.distributed.internal_api import L1MemoryDesc
from lmcache.v1.distributed.transfer_channel.abstract import TransferChannelContext
from lmcache.v1.distributed.transfer_channel.api import TransferChannelAddress

from .channel_client import GantryChannelClient
from .channel_server import GantryChannelServer
from .channel_handshake import ask
from .known_peers import Peers
from .reading import Reader, in_background
from .channel_session import Session
from .channel_settings import Settings
from .source import Source

log = logging.getLogger("lmcache.gantry")

_HANDSHAKE_SECONDS = 3.0


class GantryChannelContext(TransferChannelContext):
    """Every method may be called by every thread.

    get_transfer_channel_client() waits for another server's answer, three seconds at most. No other call waits for a
    sidecar or a server.
    """

    def __init__(self, l1_memory_desc: L1MemoryDesc, listen_url: str, advertise_url: str, settings: Settings,
                 session: Session) -> None:
        """The session is of this memory, and the context's from now on. Raises gantry.Error where the port is taken."""
        self._size = l1_memory_desc.size
        self._settings = settings
        self._lock = threading.Lock()
        self._clients: dict[str, GantryChannelClient] = {}
        self._zmq: "zmq.Context[Any]" = zmq.Context.instance()
        self._closed = False
        self._session = session
        session.set_host(advertise_url)
        self._peers = Peers()
        self._reader = Reader(self._session, self._peers, settings)
        try:
            self._server = GantryChannelServer(self._zmq, listen_url, self._session.handshake)
        except BaseException:
            self._session.close()
            raise
        session.count_age()

    @property
    def reads_under_way(self) -> int:
        return self._reader.under_way

    def get_transfer_channel_server(self) -> GantryChannelServer:
        return self._server

    def get_transfer_channel_client(self, peer_advertise_url: str) -> GantryChannelClient:
        """The client of the server at this URL. Raises gantry.Error where none answers; LMCache tries again."""
        with self._lock:
            known = self._clients.get(peer_advertise_url)
        if known is not None:
            return known
        any_host = self._settings.peer_hosts == "any"
        source = Source(peer_advertise_url, lambda: ask(self._zmq, peer_advertise_url, _HANDSHAKE_SECONDS, any_host),
                        self._settings.restart_wait)
        now = self._session.current
        if now is not None:
            self._peers.check(now, source.handshake)
        made = GantryChannelClient(self._reader, source)
        with self._lock:
            if self._closed:
                raise gantry.Error("cancelled", "the transfer channel is closed")
            client = self._clients.setdefault(peer_advertise_url, made)
            if client is made:
                self._peers.claim(source.url, source.handshake)
        if client is made:
            in_background("gantry-introduce", lambda: self._introduce(source))
        return client

    def remove_transfer_channel_client(self, peer_advertise_url: str) -> None:
        with self._lock:
            client = self._clients.pop(peer_advertise_url, None)
            # A new client of the same URL may follow at once, and claims its peer anew.
            sweep = client is not None and self._peers.release(peer_advertise_url)
        if client is not None:
            client.close()
        if sweep:
            in_background("gantry-sweep", lambda: self._peers.sweep(lambda: self._session.current))

    def get_transfer_channel_address(self, lmcache_addresses: list[tuple[int, int]]) -> list[TransferChannelAddress]:
        """Addresses of (offset, size) in the L1 memory. Raises ValueError for what lies outside of it."""
        for offset, size in lmcache_addresses:
            if offset < 0 or size < 0 or offset + size > self._size:
                raise ValueError(f"the object of {size} bytes at {offset} lies outside of {self._size} bytes of L1 memory")
        return [TransferChannelAddress(offset=offset, size=size) for offset, size in lmcache_addresses]

    def get_num_connected_clients(self) -> int:
        with self._lock:
            return len(self._clients)

    def close(self) -> None:
        """Ends the lease: no byte arrives afterwards, and other servers' reads from here fail.

        A sidecar that stands still is waited for five seconds.
        """
        with self._lock:
            clients, self._clients = list(self._clients.values()), {}
            self._closed = True
        self._server.close()
        self._peers.close()
        for client in clients:
            client.close()
        self._session.close()

    def _introduce(self, source: Source) -> None:
        """Before the first read, which would wait for it otherwise."""
        now = self._session.current
        if now is not None:
            self._peers.introduce(now, source.handshake)
