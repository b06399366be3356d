"""One read: from LMCache's addresses to the flags of its objects. A read has a thread, and LMCache's threads wait for none."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Callable, Optional

import gantry

from .known_peers import Peers
from .channel_session import Registered, Session
from .channel_settings import Settings
from .source import Source

log = logging.getLogger("lmcache.gantry")

_WAIT_SECONDS = 1.0  # of one look at a transfer
_PAUSE_SECONDS = 0.1
_WAIT_SECONDS_MIN = 0.05
_DEAD_SIDECAR_SECONDS = 1.0  # its copy workers have ended by then, and what a living sidecar may need beyond its time


@dataclass
class Read:
    """
    pairs       (local offset, remote offset, bytes) for each object
    succeeded   a flag for each object, once `done`: then no byte of the others arrives any more
    began, ended   of time.monotonic()
    """

    pairs: list[tuple[int, int, int]]
    id: str = field(default_factory=lambda: "lmcache-" + secrets.token_hex(8))
    succeeded: list[bool] = field(default_factory=list)
    done: bool = False
    began: float = field(default_factory=time.monotonic)
    ended: float = 0.0
    cancelled: bool = False
    transfer: Optional[gantry.Transfer] = None

    def end(self, succeeded: list[bool]) -> None:
        self.succeeded, self.ended, self.transfer = succeeded, time.monotonic(), None
        self.done = True


class Reader:
    """Carries out reads. start() and cancel() neither block nor raise."""

    def __init__(self, session: Session, peers: Peers, settings: Settings) -> None:
        self._session, self._peers, self._settings = session, peers, settings
        self._lock = threading.Lock()
        self.under_way = 0  # reads

    def start(self, read: Read, source: Source) -> None:
        if not source.room.acquire(blocking=False):
            log.warning("a read of %d objects fails: 64 others of this server are under way. Does the sidecar stand still?", len(read.pairs))
            read.end([False] * len(read.pairs))
            return
        if not in_background("gantry-read", lambda: self._run(read, source)):
            source.room.release()
            read.end([False] * len(read.pairs))

    def cancel(self, read: Read) -> None:
        """It ends soon. The sidecar is told by another thread."""
        read.cancelled = True
        transfer = read.transfer
        if transfer is not None:
            in_background("gantry-cancel", lambda: transfer.cancel(0))

    def _run(self, read: Read, source: Source) -> None:
        succeeded = [False] * len(read.pairs)
        failed = True
        self._count(1)
        try:
            status = self._read(read, source)
            succeeded, failed = [True] * len(read.pairs), False
            log.debug("%d objects, %d bytes by %s in %d us", len(read.pairs), status.bytes, status.path, status.total_us)
        except Exception as error:  # noqa: BLE001 - LMCache must be told, whatever happened
            succeeded = _arrived(read)
            log.warning("%d of %d objects are not read from %s, and LMCache counts misses: %s", succeeded.count(False),
                        len(succeeded), source.handshake.workload, error)
        finally:
            read.end(succeeded)
            source.room.release()
            self._count(-1)
        if failed:
            self._peers.invalidate(source.handshake.peer)
            source.invalidate()

    def _read(self, read: Read, source: Source) -> gantry.TransferStatus:
        now = self._session.current
        if now is None:
            raise gantry.Error("sidecar_lost", "this server has no lease at its sidecar")
        theirs = source.checked()
        self._peers.reclaim(source.url, theirs)
        self._peers.introduce(now, theirs)
        name = f"{theirs.workload.partition('@')[0]}/{theirs.buffer}"
        remote = name if theirs.peer == now.peer else f"{theirs.peer}/{name}"
        ranges = [gantry.Range(0, mine, 0, other, length) for mine, other, length in read.pairs]
        left = self._left(read)
        if left <= 0:
            raise gantry.Error("deadline_exceeded", f"the read did not begin within {self._settings.read_deadline} s")
        fence = now.fences.new()
        transfer = self._submitted(now, read, lambda: now.client.read(
            [now.buffer], [remote], ranges=ranges, id=read.id, deadline=left, fence=fence,
            require_path=self._settings.require_path))
        read.transfer = transfer
        if read.cancelled or self._left(read) <= 0:
            transfer.cancel(0)
        else:
            now.fences.raise_(fence)
        return self._awaited(now, read, transfer)

    def _count(self, change: int) -> None:
        with self._lock:
            self.under_way += change

    def _left(self, read: Read) -> float:
        return read.began + self._settings.read_deadline - time.monotonic()

    def _submitted(self, now: Registered, read: Read, submit: Callable[[], gantry.Transfer]) -> gantry.Transfer:
        """A request without an answer may be carried out all the same: it is made again, by the same id, until there is one.

        Where there is none in time its fence is not raised, so no byte of it moves.
        """
        while not read.cancelled and self._left(read) > 0:
            try:
                return submit()
            except gantry.Error as error:
                if self._is_lost(now, error) or error.code != "deadline_exceeded":
                    raise
                log.debug("a read is asked for again: %s", error)
        raise gantry.Error("deadline_exceeded", f"the sidecar did not take the read within {self._settings.read_deadline} s")

    def _awaited(self, now: Registered, read: Read, transfer: gantry.Transfer) -> gantry.TransferStatus:
        """Returns when no byte moves any more: LMCache uses the memory for others then. Raises gantry.Error when it failed.

        The sidecar counts the deadline from when it took the request, which may be late. So the read is cancelled here.
        """
        while True:
            left = self._left(read)
            try:
                if left <= 0:
                    transfer.cancel(0)
                return transfer.wait(max(_WAIT_SECONDS_MIN, min(_WAIT_SECONDS, left)) if left > 0 else _WAIT_SECONDS)
            except TimeoutError:
                continue
            except gantry.Error:
                if self._has_ended(now, transfer):
                    raise
                time.sleep(_PAUSE_SECONDS)

    def _has_ended(self, now: Registered, transfer: gantry.Transfer) -> bool:
        """After an error: whether it is the transfer's own end, or the end of the sidecar that moved the bytes."""
        try:
            if self._session.current is now:
                return transfer.poll().done
        except gantry.Error as error:
            if not self._is_lost(now, error):
                return False
        ended = self._session.sidecar_has_ended(now)  # a lease ends by other causes, too; then its transfers are cancelled
        time.sleep(_DEAD_SIDECAR_SECONDS + (0 if ended else now.quiesce))
        return True

    def _is_lost(self, now: Registered, error: gantry.Error) -> bool:
        return isinstance(error, gantry.SidecarLost) or self._session.current is not now


def in_background(name: str, work: Callable[[], Any]) -> bool:
    """Does it in a thread for which no process waits at its end. False: there can be no more threads."""
    def guarded() -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - a thread has nobody to tell
            log.debug("%s: %s", name, error)

    try:
        threading.Thread(target=guarded, name=name, daemon=True).start()
    except RuntimeError as error:
        log.warning("no thread can be made for %s: %s", name, error)
        return False
    return True


def _arrived(read: Read) -> list[bool]:
    """After a failure: the objects that the sidecar does not name as missing. None of them where it says nothing."""
    nothing = [False] * len(read.pairs)
    if read.transfer is None:
        return nothing
    try:
        said = read.transfer.details()
    except Exception as error:  # noqa: BLE001 - LMCache must be told, whatever happened
        log.debug("the end of a read is not described: %s", error)
        return nothing
    missing = said.get("failed_items")
    if said.get("state") not in ("failed", "cancelled", "expired") or said.get("failed_items_truncated") or not missing:
        return nothing
    flags = [True] * len(read.pairs)
    for item in missing:
        if item >= len(flags):
            return nothing
        flags[item] = False
    return flags
