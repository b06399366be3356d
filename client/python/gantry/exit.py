"""The end of the process: all clients end together, and with them all that they have registered."""

from __future__ import annotations

import atexit
import functools
import time
import weakref
from typing import TYPE_CHECKING

from . import native

if TYPE_CHECKING:
    from .client import Client

_TIMEOUT_MS_MAX = 24 * 3600 * 1000  # as the library bounds it
_clients: "weakref.WeakSet[Client]" = weakref.WeakSet()


def close_at_exit(client: "Client") -> None:
    _clients.add(client)
    _register()


@functools.cache
def _register() -> None:
    """With the first client, which has a finalizer: what is registered last comes first, so that this comes before those."""
    atexit.register(_close_all)


def _close_all() -> None:
    """One timeout for all of them; then the sidecar is asked nothing more."""
    clients = list(_clients)
    timeouts = [min(client._timeout_ms, _TIMEOUT_MS_MAX) for client in clients]
    end = time.monotonic() + max(timeouts, default=0) / 1000
    for client, timeout in zip(clients, timeouts):
        left = max(0, min(timeout, int((end - time.monotonic()) * 1000)))
        native.error_of(native.lib.gantry_client_close_within(client._handle, left))
