"""The one exception of this package, and its kind for a sidecar that is gone."""

from __future__ import annotations

from typing import Any


class Error(Exception):
    """Why an operation failed.

    code     a stable name, for example "not_exportable"; docs/connectors.md lists them
    message  what happened, to what, and why
    hint     what to do about it; may be ""
    field    the argument or field of the request that is wrong; may be ""
    peers    of Buffer.unregister(): what became of the buffer at each peer that knew it
    """

    def __init__(self, code: str, message: str, hint: str = "", field: str = "") -> None:
        super().__init__(code, message, hint, field)
        self.code = code
        self.message = message
        self.hint = hint
        self.field = field
        self.peers: list[Any] = []

    def __str__(self) -> str:
        where = f" ({self.field})" if self.field else ""
        what_to_do = f"; {self.hint}" if self.hint else ""
        return f"{self.code}: {self.message}{where}{what_to_do}"


class SidecarLost(Error):
    """Error "sidecar_lost": this process's own sidecar is gone, or has ended the lease. A new Client has to be opened,
    as KeptClient does.

    Peers that are gone are "peer_lost" and "peer_unavailable".
    """


SIDECAR_LOST = "sidecar_lost"


def error_with(code: str, message: str, hint: str, field: str) -> Error:
    """The exception for an error of the library."""
    return (SidecarLost if code == SIDECAR_LOST else Error)(code, message, hint, field)
