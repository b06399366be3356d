"""What `await transfer` waits for: the ends of transfers, told to the loops that await them."""

from __future__ import annotations

import asyncio
import os
import queue
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

from .errors import Error

if TYPE_CHECKING:
    from .client import Client
    from .transfer import Transfer, TransferStatus

_POLL_SECONDS = 1.0  # of one request for events: the threads end as much later than the last await
_POLL_EVENTS_MAX = 1024
_AGAIN_SECONDS = 0.02  # without events
# The sidecar has no room for one more request that waits, or does not know how to keep notifications unread.
_WITHOUT_EVENTS = ("resource_exhausted", "malformed_body")


class _Waiter(NamedTuple):
    transfer: "Transfer"
    loop: asyncio.AbstractEventLoop
    outcome: "asyncio.Future[tuple[TransferStatus, Optional[Error]]]"


class Completions:
    """One long poll for all transfers of a client that are awaited, in whichever loops.

    While there are some it has two threads: one asks for events, and the other for the state of a transfer when it is
    first awaited and when an event says that it has ended. Loops and their executors have no part in it.
    """

    def __init__(self, client: "Client") -> None:
        self._client = weakref.ref(client)  # which holds this; somebody who waits holds the client
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._waiters: dict[str, list[_Waiter]] = {}
        self._running = False
        self._cursor: Optional[int] = None
        self._to_ask: "queue.SimpleQueue[Optional[str]]" = queue.SimpleQueue()

    async def wait(self, transfer: "Transfer") -> "TransferStatus":
        loop = asyncio.get_running_loop()
        if os.getpid() == self._owner:
            outcome: "asyncio.Future[tuple[TransferStatus, Optional[Error]]]" = loop.create_future()
            self._add(_Waiter(transfer, loop, outcome))
            status, error = await outcome
        else:  # a child of fork has none of the threads
            status, error = transfer._wait_slice(0)
        if error is not None:
            raise error
        return status

    def _add(self, waiter: _Waiter) -> None:
        with self._lock:
            self._waiters.setdefault(waiter.transfer.id, []).append(waiter)
            start = not self._running
            self._running = True
        self._to_ask.put(waiter.transfer.id)
        if start:
            self._start()

    def _start(self) -> None:
        asks = False
        try:
            threading.Thread(target=self._ask, name="gantry-states", daemon=True).start()
            asks = True
            threading.Thread(target=self._follow, name="gantry-events", daemon=True).start()
        except RuntimeError as error:
            if asks:
                self._to_ask.put(None)
            self._end(Error("resource_exhausted", f"a transfer cannot be awaited: {error}",
                            "wait for it with Transfer.wait(), or allow this process more threads"))

    def _follow(self) -> None:
        """Asks for events while somebody waits."""
        self._cursor = None
        try:
            while self._has_waiters():
                try:
                    ended = self._ended()
                except Error as error:
                    if error.code not in _WITHOUT_EVENTS:
                        self._end(error)
                        return
                    time.sleep(_AGAIN_SECONDS)
                    ended = None
                except Exception as error:  # noqa: BLE001 - whoever waits must hear of it
                    self._end(Error("internal", f"events cannot be read: {error!r}"))
                    return
                with self._lock:
                    found = list(self._waiters) if ended is None else [name for name in ended if name in self._waiters]
                for name in found:
                    self._to_ask.put(name)
        finally:
            self._to_ask.put(None)

    def _ended(self) -> Optional[list[str]]:
        """Ids of transfers that have ended; None: it may be any of them."""
        client = self._client()
        if client is None:
            return []
        body = {"workload": client.workload, "max": _POLL_EVENTS_MAX, "acknowledge": 0}
        first = self._cursor is None
        if first:  # from now on; what ended before now shows when it is asked for
            answer = client.request("POST", "/v1/completions:poll", body)
        else:
            body |= {"cursor": self._cursor, "wait_ms": int(_POLL_SECONDS * 1000)}
            answer = client.request("POST", "/v1/completions:poll", body, _POLL_SECONDS)
        self._cursor = answer["cursor"]
        if first or answer.get("lost", 0):
            return None
        return [event["subject"] for event in answer["events"] if event["type"] == "transfer"]

    def _ask(self) -> None:
        """Asks for the state of transfers that may have ended."""
        while (name := self._to_ask.get()) is not None:
            with self._lock:
                waiters = self._waiters.get(name)
            if waiters:
                self._tell_state(name, waiters[0].transfer)

    def _tell_state(self, name: str, transfer: "Transfer") -> None:
        try:
            status, error = transfer._wait_slice(0)
        except Exception as problem:  # noqa: BLE001 - whoever waits must hear of it
            self._tell(name, (None, Error("internal", f"the transfer's state cannot be read: {problem!r}")))
            return
        if status.done or error is not None:
            self._tell(name, (status, error))

    def _has_waiters(self) -> bool:
        """Forgets those that were cancelled. When none is left the next one starts other threads."""
        with self._lock:
            left = {name: [waiter for waiter in waiters if not waiter.outcome.done()]
                    for name, waiters in self._waiters.items()}
            self._waiters = {name: waiters for name, waiters in left.items() if waiters}
            self._running = bool(self._waiters)
            return self._running

    def _end(self, error: Error) -> None:
        """Tells everybody that nobody asks any more."""
        with self._lock:
            names = list(self._waiters)
            self._running = False
        for name in names:
            self._tell(name, (None, error))

    def _tell(self, name: str, outcome: Any) -> None:
        with self._lock:
            waiters = self._waiters.pop(name, [])
        for waiter in waiters:
            try:
                waiter.loop.call_soon_threadsafe(_set, waiter.outcome, outcome)
            except RuntimeError:
                pass  # the loop is closed


def _set(future: Any, outcome: Any) -> None:
    if not future.done():
        future.set_result(outcome)
