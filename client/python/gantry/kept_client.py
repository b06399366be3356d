"""A client that comes back by itself when its sidecar was restarted."""

from __future__ import annotations

import logging
import os
import threading
from typing import Any, Callable, Optional, Union

from .client import Client
from .errors import Error

log = logging.getLogger("gantry")

_REOPEN_SECONDS_MAX = 5.0


class KeptClient:
    """Opens a Client, and another one each time its lease is lost: a thread looks every `check_every` seconds.

    prepare  called with each new client before others get it: adopts memory and registers it. Its result is kept as
             `prepared` as long as the client is. When it raises, this client is closed; the first time the error is the
             caller's, later another one is tried
    changed  called by the thread with None when the lease is lost, and with each client that follows
    options  what Client takes

    Memory that the lost client had adopted by register(adopt=True) keeps its pages and its file until the next client is
    prepared: adopting it again replaces no page, so the process may use it all the time. Memory that is freed meanwhile keeps
    its pages until then. Copy workers are killed together with their sidecar, and end within
    milliseconds: who uses the memory of a lost read for something else waits a second first. A peer that was writing into it
    goes on until its own transfer ends.
    """

    def __init__(self, path: Union[str, "os.PathLike[str]"], workload: str,
                 prepare: Callable[[Client], Any] = lambda client: None, *,
                 changed: Callable[[Optional[Client]], None] = lambda client: None, check_every: float = 0.2,
                 **options: Any) -> None:
        self._open: Callable[[], Client] = lambda: Client(path, workload, **options)
        self._prepare, self._changed, self._check_every = prepare, changed, check_every
        self._lock = threading.Lock()
        self._client: Optional[Client] = None
        self._adopted: list[Any] = []  # of a lost client
        self.prepared: Any = None
        self.lives = 0  # clients that were opened and prepared until now
        self._stop = threading.Event()
        self._open_next()
        self._keeper = threading.Thread(target=self._keep, name="gantry-keeper", daemon=True)
        try:
            self._keeper.start()
        except RuntimeError as error:
            if self._client is not None:
                self._client.close()
            raise Error("resource_exhausted", f"a client cannot be kept: {error}", "allow this process more threads") from None

    @property
    def client(self) -> Optional[Client]:
        """None while there is no lease."""
        return self._client

    @property
    def current(self) -> tuple[Optional[Client], int]:
        """(the client, its life), which belong together: what was made with a client of another life is gone."""
        with self._lock:
            return self._client, self.lives

    def close(self) -> None:
        """Ends the lease, and opens no other one. Closing twice is no error."""
        self._stop.set()
        with self._lock:
            client, self._client, self.prepared = self._client, None, None
        if client is not None:
            client.close()
        if self._keeper is not threading.current_thread():
            self._keeper.join(_REOPEN_SECONDS_MAX)
        self._adopted = []

    def __enter__(self) -> "KeptClient":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _open_next(self) -> None:
        client = self._open()
        try:
            prepared = self._prepare(client)
            with self._lock:
                if self._stop.is_set():
                    raise InterruptedError("the kept client was closed meanwhile")
                self._client, self.prepared = client, prepared
                self.lives += 1
            self._adopted = []
        except BaseException:
            _close(client)
            raise

    def _keep(self) -> None:
        pause, why = self._check_every, ""
        while not self._stop.wait(pause):
            client = self._client
            try:
                if client is None:
                    self._open_next()
                    pause = self._check_every
                    self._tell(self._client)
                else:
                    client.check()
            except Exception as error:  # noqa: BLE001 - the thread outlives whatever happens to the sidecar
                if client is None:
                    pause = min(2 * pause, _REOPEN_SECONDS_MAX)
                    if str(error) != why:
                        why = str(error)
                        log.warning("the lease is not back yet: %s", why)
                elif not self._stop.is_set():
                    log.warning("the lease at the sidecar is lost, and is taken again as soon as there is one: %s", error)
                    self._adopted = client.adoptions()
                    with self._lock:
                        self._client, self.prepared = None, None
                    _close(client)
                    self._tell(None)

    def _tell(self, client: Optional[Client]) -> None:
        try:
            self._changed(client)
        except Exception:  # noqa: BLE001 - the caller's own
            log.exception("the function that is told of a changed lease failed")


def _close(client: Client) -> None:
    try:
        client.close()
    except Exception as error:  # noqa: BLE001 - it is gone either way
        log.debug("closing a lost client: %s", error)
