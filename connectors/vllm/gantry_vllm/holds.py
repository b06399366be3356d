"""The prefiller's side of a worker: promises that prompts' blocks keep their content until they were read."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Mapping
from typing import Optional
from urllib.parse import quote

import gantry

from .handshake import hold_id
from .introductions import MEET, Introductions
from .session import Session
from .stats import Recorder
from .tensor_parallel import CONSUMERS

log = logging.getLogger("vllm.gantry")

RELEASE = b"gantry-vllm release "  # and the id of a hold: the decoder will not read it
RENEW = b"gantry-vllm renew "  # and ids of holds, a line each: the decoder will read them, and has not yet
_EVENTS_SECONDS = 0.02  # between two looks at events while there are holds
_IDLE_SECONDS = 0.2
_BEHIND_SECONDS = 0.0005  # from a command to a look: the step that waited for it goes on meanwhile
_POLL_EVENTS_MAX = 256
_AT_ONCE = 32  # requests before the thread looks for commands again, for which steps wait
_ENDED = ("consumed", "expired", "released")  # states of holds


class Putting:
    """The holds of one step on their way to the sidecar. A lock wakes its waiter sooner than a Future does."""

    def __init__(self) -> None:
        self._under_way = threading.Lock()
        self._under_way.acquire()
        self.stands: dict[str, bool] = {}  # by request, once it is done

    def end(self) -> None:
        self._under_way.release()

    def done(self) -> bool:
        return not self._under_way.locked()

    def wait(self, seconds: float) -> bool:
        """Returns whether it is done."""
        if not self._under_way.acquire(timeout=seconds):
            return False
        self._under_way.release()
        return True


class Holds:
    """One thread puts, releases and follows the holds, and reads all events of the workload.

    The methods are called in vLLM's steps, and neither block nor raise.

    A request is told by take_ended() when its blocks may be overwritten. When the lease is lost, reads that began may still
    go on at peers, but no longer than `read_deadline`; only then are the blocks told to be free.
    """

    def __init__(self, session: Session, layers: int, ttl: float, read_deadline: float, recorder: Recorder,
                 introductions: Introductions) -> None:
        self._session, self._recorder, self._introductions = session, recorder, introductions
        self._buffers = [f"kv.{i}" for i in range(layers)]
        self._ttl, self._read_deadline = ttl, read_deadline
        self._lock = threading.Lock()
        self._ended: set[str] = set()
        self._commands: "queue.SimpleQueue[tuple[str, Mapping[str, list[int]], Optional[Putting]]]" = queue.SimpleQueue()
        # The rest is the thread's alone.
        self._requests: dict[str, tuple[str, gantry.Hold]] = {}  # by the hold's id
        self._orphans: list[tuple[float, str]] = []  # (when its blocks are free, request), of a lease that was lost
        self._renewals: dict[str, None] = {}  # holds to renew, in order
        self._doubtful: dict[str, None] = {}  # holds that may have ended without a word, in order
        self._client: Optional[gantry.Client] = None
        self._cursor = 0
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="gantry-holds", daemon=True)
        self._thread.start()

    def put(self, holds: Mapping[str, list[int]]) -> Putting:
        """One hold for each request, on these blocks. A request whose hold does not stand is told as ended at once."""
        putting = Putting()
        self._commands.put(("put", holds, putting))
        return putting

    def release(self, request: str) -> None:
        self._commands.put(("release", {request: []}, None))

    def take_ended(self) -> set[str]:
        """Requests whose holds have ended, or never stood, since the last call."""
        if not self._ended:
            return set()
        with self._lock:
            ended, self._ended = self._ended, set()
        return ended

    def close(self) -> None:
        self._commands.put(("stop", {}, None))
        self._thread.join(_IDLE_SECONDS * 5)

    def _run(self) -> None:
        looked = look_at = 0.0
        while not self._stopped:
            try:
                command = self._commands.get(timeout=max(0.0, look_at - time.monotonic()))
            except queue.Empty:
                command = None
            try:
                self._follow_lease()
                if command is not None:
                    self._carry_out(*command)
                if command is None or time.monotonic() > looked + 2 * self._pause():
                    looked = time.monotonic()
                    self._look_at_events()
                    self._renew()
                    self._look_at_holds()
            except Exception as error:  # noqa: BLE001 - the thread must outlive whatever happens to the sidecar
                log.debug("holds: %s", error)
            self._free_orphans()
            # A step that comes during a look waits for it, and after a command the next one is a forward pass away.
            pause = self._pause() / 2 if command is not None else self._pause()
            look_at = max(looked + pause, time.monotonic() + _BEHIND_SECONDS) if pause else 0.0

    def _pause(self) -> float:
        """Seconds between two looks at events."""
        if self._renewals:
            return 0.0
        return _EVENTS_SECONDS if self._requests or self._orphans else _IDLE_SECONDS

    def _carry_out(self, what: str, holds: Mapping[str, list[int]], putting: Optional[Putting]) -> None:
        if what == "stop":
            self._stopped = True
        elif what == "release":
            for request in holds:
                self._release(hold_id(request))
        elif putting is not None:
            try:
                for request, blocks in holds.items():
                    putting.stands[request] = self._put(request, blocks)
                self._tell([request for request, stands in putting.stands.items() if not stands])
            finally:
                putting.end()

    def _put(self, request: str, blocks: list[int]) -> bool:
        if self._client is None:
            return False
        try:
            hold = self._client.hold(hold_id(request), gantry.HoldGroup(self._buffers, blocks), self._ttl,
                                     expected_consumers=CONSUMERS)
        except Exception as error:  # noqa: BLE001 - the step's other prompts are offered all the same
            log.warning("the blocks of request %s are not offered: %s", request, error)
            return False
        self._requests[hold.id] = (request, hold)
        return True

    def _release(self, hold: str) -> None:
        """Its end is an event as well: a read that began may still go on. Where that fails it ends at its time."""
        if hold in self._requests:
            try:
                self._requests[hold][1].release()
            except gantry.Error as error:
                log.debug("the hold %s is not released: %s", hold, error)

    def _renew(self) -> None:
        """One that has ended meanwhile is left as it is."""
        for hold in list(self._renewals)[:_AT_ONCE]:
            del self._renewals[hold]
            if hold in self._requests:
                try:
                    self._requests[hold][1].extend(self._ttl)
                except gantry.Error as error:
                    log.debug("the hold %s is not renewed: %s", hold, error)

    def _look_at_events(self) -> None:
        if self._client is None:
            return
        events, self._cursor, lost = self._client.poll_events(self._cursor, _POLL_EVENTS_MAX)
        for event in events:
            if event.type == "hold" and event.subject in self._requests:
                if event.fields["hold"]["outcome"] == "expired":
                    self._recorder.count(num_kv_expired_reqs=1)  # before vLLM is told: its last step for now takes both
                self._tell([self._requests.pop(event.subject)[0]])
            elif event.type == "notification":
                said = event.fields.get("notification", {})
                self._read_message(event.message or b"", (said.get("from_peer", ""), said.get("from_workload", "")))
            elif event.type == "notification_outcome" and not event.fields["delivery"]["delivered"]:
                self._recorder.count(num_failed_notifications=1)
        if lost:
            log.warning("%d events of the sidecar were lost; each hold is looked at", lost)
            self._doubtful |= dict.fromkeys(self._requests)

    def _read_message(self, message: bytes, sender: tuple[str, str]) -> None:
        if message.startswith(RELEASE):
            self._release(message[len(RELEASE):].decode(errors="replace"))
        elif message.startswith(RENEW):
            holds = message[len(RENEW):].decode(errors="replace").split("\n")
            self._renewals |= dict.fromkeys(hold for hold in holds if hold in self._requests)
        elif message.startswith(MEET):
            self._introductions.heard(message, sender)

    def _look_at_holds(self) -> None:
        """After events were lost: the ends of some holds may have been among them."""
        for hold in list(self._doubtful)[:_AT_ONCE]:
            if hold in self._requests and self._has_ended(hold):
                self._tell([self._requests.pop(hold)[0]])
            del self._doubtful[hold]

    def _has_ended(self, hold: str) -> bool:
        assert self._client is not None
        try:
            return self._client.request("GET", f"/v1/holds/{quote(hold, safe='')}?workload={self._session.workload}")["state"] in _ENDED
        except gantry.Error as error:
            if error.code == "not_found":
                return True
            raise

    def _follow_lease(self) -> None:
        client = self._session.client
        if client is self._client:
            return
        free_at = time.monotonic() + self._read_deadline
        self._orphans += [(free_at, request) for request, _ in self._requests.values()]
        self._requests.clear()
        self._client, self._cursor = client, 0

    def _free_orphans(self) -> None:
        now = time.monotonic()
        self._tell([request for free_at, request in self._orphans if free_at <= now])
        self._orphans = [orphan for orphan in self._orphans if orphan[0] > now]

    def _tell(self, requests: list[str]) -> None:
        if requests:
            with self._lock:
                self._ended.update(requests)
