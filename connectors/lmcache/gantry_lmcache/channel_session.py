"""This server's lease at the sidecar of its pod, with its L1 memory registered. It comes back when the sidecar was restarted."""

from __future__ import annotations

import http.client
import json
import logging
import os
import secrets
import socket
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

import gantry

from .channel_settings import QUIESCE_SECONDS_MAX, Settings
from .read_fences import ReadFences
from .channel_handshake import Handshake, host_of
from .memory import adopted_file_at, mapping_at, view_of

log = logging.getLogger("lmcache.gantry")

_WILDCARDS = ("0.0.0.0", "[::]")
_AGAIN_SECONDS = 0.5
_CLOSE_SECONDS = 5.0
_PROBE_SECONDS = 1.0
_NO_LEASE = gantry.Error("sidecar_lost", "the server has no lease at its sidecar just now", "start the sidecar of its pod")


@dataclass(frozen=True)
class Registered:
    """One lease with what it registered: all of it is gone with the client.

    peer, sidecar, node_id, address   the sidecar: its name, its generation, its node and where other sidecars reach it
    quiesce   seconds in which a cancelled transfer of this sidecar stops at the latest
    """

    client: gantry.Client
    buffer: gantry.Buffer
    fences: ReadFences
    peer: str
    sidecar: str
    node_id: str
    address: str
    quiesce: float


class Session:
    """Every method may be called by every thread.

    Private memory is adopted, so nothing else may use it until this returns. Later leases register the same pages: the
    session keeps a descriptor of their file until close().

    Raises gantry.Error when there is no sidecar for `start_timeout`, and where the memory cannot be registered.
    """

    def __init__(self, settings: Settings, address: int, size: int) -> None:
        self._settings, self.address, self._view = settings, address, view_of(address, size)
        self._host = ""
        self._life, self._bound_at = secrets.token_hex(8), 0.0
        self._file: Optional[int] = None
        self._lock = threading.Lock()
        self.closed = False
        self._kept = self._opened(f"lmcache-{self._life}")

    @property
    def current(self) -> Optional[Registered]:
        """None while there is no lease."""
        registered: Optional[Registered] = self._kept.prepared
        return registered

    def set_host(self, advertise_url: str) -> None:
        """The host that other servers reach: to be called before the first handshake()."""
        self._host = host_of(advertise_url)

    def count_age(self) -> None:
        """The server answers from now on. Before that, an earlier process may have answered in its place."""
        self._bound_at = time.monotonic()

    def handshake(self) -> "Handshake | gantry.Error":
        """The answer to the questions of other servers. Makes no request."""
        now = self.current
        if now is None:
            return _NO_LEASE
        age = time.monotonic() - self._bound_at if self._bound_at else 0.0
        return Handshake(self._life, age, now.peer, now.sidecar, self._reachable(now.address), now.node_id,
                        f"{now.client.workload}@{now.client.generation}", f"{now.buffer.name}@{now.buffer.generation}",
                        len(now.buffer))

    def sidecar_has_ended(self, lost: Registered) -> bool:
        """Whether another process answers in place of that of a lost lease. False: that one may live.

        A sidecar that is stopped in order closes its socket before its last bytes have moved.
        """
        path = Path(self._settings.run_dir)
        connection = http.client.HTTPConnection("gantry", timeout=_PROBE_SECONDS)
        try:
            connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.sock.settimeout(_PROBE_SECONDS)
            connection.sock.connect(str(path / "api.sock" if path.is_dir() else path))
            connection.request("GET", "/v1/info")
            return bool(json.loads(connection.getresponse().read())["generation"] != lost.sidecar)
        except (OSError, ValueError, KeyError, TypeError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def close(self) -> None:
        """Ends the lease. Waits five seconds at most: a sidecar that stands still does not hold up the server's end.

        Closing twice is no error.
        """
        with self._lock:
            if self.closed:
                return
            self.closed = True
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
        with self._lock:
            file, self._file = self._file, None
        if file is not None:
            os.close(file)

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
        self._keep_file()
        log.info("%d bytes of L1 memory are registered as workload %s of the sidecar %s", len(buffer), client.workload, info["name"])
        address = str(info.get("tcp_address", "")) or str(info.get("peer_address", ""))
        quiesce = info["limits"]["quiesce_ms_max"] / 1000
        if quiesce > QUIESCE_SECONDS_MAX:
            log.warning("the sidecar may take %g s to stop a read, and LMCache may use its memory before: set --quiesce-ms-max to %d at most",
                        quiesce, QUIESCE_SECONDS_MAX * 1000)
        return Registered(client, buffer, ReadFences(client), str(info["name"]), str(info["generation"]), str(info.get("node_id", "")),
                          address, quiesce)

    def _keep_file(self) -> None:
        """Without a descriptor, the next registration would copy the memory while LMCache writes it."""
        with self._lock:
            if self._file is not None or self.closed:
                return
            self._file = adopted_file_at(self.address)
            mapping = mapping_at(self.address)
            if self._file is None and mapping is not None and mapping.shared and "gantry-private" in mapping.path:
                raise gantry.Error("internal", "the file of the adopted L1 memory is not among this process's descriptors",
                                   "mount /proc in this container")

    def _reachable(self, address: str) -> str:
        """A sidecar has the addresses of its pod, and the server is in the pod."""
        if self._settings.peer_address is not None:
            return self._settings.peer_address
        host, _, port = address.rpartition(":")
        return f"{self._host}:{port}" if host in _WILDCARDS else address

    def _changed(self, client: Optional[gantry.Client]) -> None:
        if client is None:
            log.warning("the Gantry sidecar is lost. Reads from and by this server fail until it is back, and LMCache counts "
                        "misses")
        else:
            log.info("the Gantry sidecar is back; the L1 memory is registered again")
