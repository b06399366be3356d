"""What a client asks by plain requests of the REST interface: its peers and its events."""

from __future__ import annotations

import base64
import ctypes
import json
import time
from dataclasses import dataclass
from typing import Any, Iterator, Optional
from urllib.parse import quote

from . import native

_EVENT_SLICE_SECONDS = 0.5
_PEER_WAIT_MS_MAX = 60_000  # as the sidecar cuts it


@dataclass(frozen=True)
class Event:
    """What happened to this workload: a transfer that ended, a lease or a peer that changed.

    sequence  grows by 1; type, subject: what happened to which object; fields: the event as the REST interface has it
    """

    sequence: int
    type: str
    subject: str
    fields: dict[str, Any]

    @property
    def message(self) -> Optional[bytes]:
        """What a notification says; None of any other event."""
        notification = self.fields.get("notification")
        return None if notification is None else base64.b64decode(notification["message"])


class RestCalls:
    """The part of Client that needs nothing but its lease."""

    _handle: int
    workload: str

    def request(self, method: str, target: str, body: Any = None, wait: float = 0.0) -> Any:
        """One request of the REST interface in the name of this workload; body and answer are what json makes of them.

        `wait` is what the request itself asks the sidecar to wait, in seconds; signals are handled after it.
        """
        encoded = None if body is None else json.dumps(body).encode()
        answer = ctypes.c_void_p()
        native.check(native.lib.gantry_client_request(self._handle, native.text(method, "method"),
                                                      native.text(target, "target"), encoded,
                                                      native.milliseconds(wait, "wait"), ctypes.byref(answer)))
        text = native.take_text(answer.value)
        return json.loads(text) if text else None

    def set_peer(self, name: str, address: str, wait: Optional[float] = None, *,
                 node_id: Optional[str] = None) -> dict[str, Any]:
        """Tells the sidecar where another one is, for example "unix:/run/gantry/node/pod-b.peer.sock" or "10.1.2.3:9461".

        node_id  of its node, as GET /v1/info there says: where it is this node's, and the peer has a socket in the node's
                 directory, this socket is used instead of `address`, so that memory is shared

        Returns what peer() does as soon as the peer is up, or after `wait` seconds (60 at most; None: 5). With 0 it returns
        at once, and the state of a new peer is "connecting": an event "peer_up" says when it is up. It goes on connecting
        whatever the wait is. Another address than before first waits until the old peer's memory is unmapped.
        """
        target = f"/v1/peers/{quote(name, safe='')}"
        body = {"address": address} if node_id is None else {"address": address, "node_id": node_id}
        seconds = 0.0
        if wait is not None:
            wait_ms = min(native.milliseconds(wait, "wait"), _PEER_WAIT_MS_MAX)
            target, seconds = f"{target}?wait_ms={wait_ms}", wait_ms / 1000
        peer: dict[str, Any] = self.request("PUT", target, body, seconds)
        return peer

    def peer(self, name: str) -> dict[str, Any]:
        """State, path and reasons of a peer."""
        peer: dict[str, Any] = self.request("GET", f"/v1/peers/{quote(name, safe='')}")
        return peer

    def delete_peer(self, name: str) -> None:
        """Forgets a peer; its memory is unmapped when this returns."""
        self.request("DELETE", f"/v1/peers/{quote(name, safe='')}")

    def poll_events(self, cursor: int = 0, max_events: int = 256, wait: float = 0.0) -> tuple[list[Event], int, int]:
        """(events after `cursor`, the cursor for the next call, how many were lost), waiting up to `wait` seconds."""
        end = time.monotonic() + wait
        while True:
            left = min(_EVENT_SLICE_SECONDS, max(0.0, end - time.monotonic()))
            body = {"workload": self.workload, "cursor": cursor, "max": max_events, "wait_ms": int(left * 1000)}
            answer = self.request("POST", "/v1/completions:poll", body, left)
            if answer["events"] or time.monotonic() >= end:
                break
        found = [Event(item["sequence"], item["type"], item.get("subject", ""), item) for item in answer["events"]]
        return found, answer["cursor"], answer.get("lost", 0)

    def events(self, cursor: int = 0, timeout: Optional[float] = None) -> Iterator[Event]:
        """The events after `cursor`, for ever, or until none came for `timeout` seconds."""
        last = time.monotonic()
        while timeout is None or time.monotonic() - last < timeout:
            found, cursor, _ = self.poll_events(cursor, wait=_EVENT_SLICE_SECONDS)
            if found:
                yield from found
                last = time.monotonic()
