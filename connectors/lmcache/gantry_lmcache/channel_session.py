"""This server's lease at the sidecar of its pod, with its L1 memory registered. It comes back when the sidecar was restarted."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from dataclasses import dataclass
from typing import Any, Optional

import gantry

from .channel_settings import Settings
from .gates import Gates
from .greeting import Greeting, host_of

log = logging.getLogger("lmcache.gantry")

_WILDCARDS = ("0.0.0.0", "[::]")
_AGAIN_SECONDS = 0.5
_CLOSE_SECONDS = 5.0
_NO_LEASE = gantry.Error("sidecar_lost", "the server has no lease at its sidecar just now", "start the sidecar of its pod")


@dataclass(frozen=True)
class Registered:
    """One life of the lease: all of it is gone with the client."""

    client: gantry.Client
    buffer: gantry.Buffer
    gates: Gates
    peer: str
    address: str
    node_id: str


class Session:
    """Every method may be called by every thread.

    view  all of the L1 memory. Private memory is adopted, so nothing else may use it until this returns

    Raises gantry.Error when there is no sidecar for `start_timeout`, and where the memory cannot be registered.
    """

    def __init__(self, settings: Settings, advertise_url: str, view: Any) -> None:
        self._settings, self._view = settings, view
        self._host = host_of(advertise_url)
        self._life, self._began = secrets.token_hex(8), time.monotonic()
        self._kept = self._opened(f"lmcache-{self._life}")

    @property
    def current(self) -> Optional[Registered]:
        """None while there is no lease."""
        registered: Optional[Registered] = self._kept.prepared
        return registered

    def greeting(self) -> "Greeting | gantry.Error":
        """The answer to the questions of other servers. Makes no request."""
        now = self.current
        if now is None:
            return _NO_LEASE
        return Greeting(self._life, time.monotonic() - self._began, now.peer, now.address, now.node_id,
                        f"{now.client.workload}@{now.client.generation}", f"{now.buffer.name}@{now.buffer.generation}",
                        len(now.buffer))

    def close(self) -> None:
        """Ends the lease. Waits five seconds at most: a sidecar that stands still does not hold up the server's end."""
        closer = threading.Thread(target=self._end_lease, name="gantry-close", daemon=True)
        try:
            closer.start()
            closer.join(_CLOSE_SECONDS)
        except RuntimeError as error:
            log.warning("the lease ends with the process, as no thread can be made: %s", error)
        self._view = None  # LMCache frees it next, and cannot unmap what a tensor shows

    def _end_lease(self) -> None:
        registered = self.current  # its objects go with this thread, and each may wait for the sidecar
        try:
            self._kept.close()
        except gantry.Error as error:
            log.debug("the lease is ended without an answer: %s", error)
        del registered

    def _opened(self, workload: str) -> gantry.KeptClient:
        end = time.monotonic() + self._settings.start_timeout
        while True:
            try:
                return gantry.KeptClient(self._settings.run_dir, workload, self._prepare, changed=self._changed)
            except gantry.Error as error:
                if error.code not in ("peer_unavailable", "sidecar_lost") or time.monotonic() > end:
                    raise
                log.info("the start waits for the sidecar: %s", error)
            time.sleep(_AGAIN_SECONDS)

    def _prepare(self, client: gantry.Client) -> Registered:
        info = client.request("GET", "/v1/info")
        buffer = client.register("l1", self._view, access=("remote_read",), adopt=True)
        log.info("%d bytes of L1 memory are registered as workload %s of the sidecar %s", len(buffer), client.workload, info["name"])
        return Registered(client, buffer, Gates(client), str(info["name"]), self._address_of(info), str(info.get("node_id", "")))

    def _address_of(self, info: dict[str, Any]) -> str:
        """A sidecar has the addresses of its pod, and the server is in the pod."""
        if self._settings.peer_address is not None:
            return self._settings.peer_address
        address = str(info.get("tcp_address", ""))
        host, _, port = address.rpartition(":")
        if host in _WILDCARDS:
            return f"{self._host}:{port}"
        return address or str(info.get("peer_address", ""))

    def _changed(self, client: Optional[gantry.Client]) -> None:
        if client is None:
            log.warning("the Gantry sidecar is lost. Reads from and by this server fail until it is back, and LMCache counts "
                        "misses")
        else:
            log.info("the Gantry sidecar is back; the L1 memory is registered again")
