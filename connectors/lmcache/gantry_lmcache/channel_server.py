"""LMCache's server of the channel: tells other servers where this one's memory is."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any, Callable

import gantry
import zmq
from lmcache.v1.distributed.transfer_channel.abstract import TransferChannelServer

from .channel_handshake import Handshake, answer, endpoint

log = logging.getLogger("lmcache.gantry")

_LOOK_SECONDS = 0.2  # between two looks whether the server is to end
_WARN_SECONDS = 60.0  # between two lines of the log: strangers may send much
_REQUEST_BYTES_MAX = 4096


class GantryChannelServer(TransferChannelServer):
    """A thread answers questions. It makes no request, so a sidecar that stands still does not hold it up."""

    def __init__(self, context: "zmq.Context[Any]", listen_url: str, handshake: "Callable[[], Handshake | gantry.Error]") -> None:
        """Listens at "HOST:PORT". Raises gantry.Error "conflict" where it cannot."""
        self._handshake = handshake
        self._stop = threading.Event()
        self._warned_at = -_WARN_SECONDS
        self._socket = context.socket(zmq.REP)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.IPV6, 1)
        self._socket.setsockopt(zmq.MAXMSGSIZE, _REQUEST_BYTES_MAX)
        try:
            self._socket.bind(endpoint(listen_url))
        except zmq.ZMQError as error:
            self._socket.close(linger=0)
            raise gantry.Error("conflict", f"the transfer channel cannot listen at {listen_url}: {error}",
                               "choose another port by --p2p-listen-url and --p2p-advertise-url") from None
        self._thread = threading.Thread(target=self._serve, name="gantry-handshake", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Afterwards the port is free. Closing twice is no error."""
        self._stop.set()
        if self._thread is not threading.current_thread():
            self._thread.join()  # it waits for nothing but the socket, for _LOOK_SECONDS

    def _serve(self) -> None:
        while not self._stop.is_set():
            try:
                if self._socket.poll(int(_LOOK_SECONDS * 1000)):
                    parts = self._socket.recv_multipart()
                    self._socket.send(answer(parts[0] if len(parts) == 1 else b"", self._handshake()))
            except Exception as error:  # noqa: BLE001 - the next question is answered all the same
                self._warn(error)
                self._stop.wait(_LOOK_SECONDS)
        self._socket.close(linger=0)

    def _warn(self, error: Exception) -> None:
        if time.monotonic() - self._warned_at >= _WARN_SECONDS:
            self._warned_at = time.monotonic()
            log.warning("a question of another server is not answered; others are not told for a minute: %s", error)
