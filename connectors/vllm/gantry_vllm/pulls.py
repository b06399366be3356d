"""The decoder's side of a worker: reads prompts' blocks from prefillers."""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from typing import Callable, Optional

import gantry

from .failures import missing_blocks
from .handshake import Handshake, Workers, hold_id
from .holds import RELEASE, RENEW
from .introductions import meet
from .lanes import Lanes
from .metadata import Load, Unwanted
from .peers import Peers
from .session import Session
from .settings import Settings
from .stats import Read, Recorder
from .tensor_parallel import CONSUMERS, BlockShape, Share, Topology, slices_of

log = logging.getLogger("vllm.gantry")

_READS, _READS_EACH = 256, 16  # that are under way at the same time, and from one prefiller
_CANCELS = 2
_MESSAGES = 16  # prefillers that are told something at the same time
_HOLDS_MAX = 100  # that one message renews: their ids have up to 512 bytes, and a message 64 KiB at most
_VIEWS_MAX = 256  # prefillers come and go under new names; those that were read last are kept
_WAIT_SECONDS = 1.0  # of one look at a transfer
_DEAD_SIDECAR_SECONDS = 1.0  # its copy workers have ended by then
_DEAD_SIDECAR_PUSH_SECONDS = 16.0  # those of the prefiller notice within 5 s, and are quiet within 10 s more (decision 0008)
_MESSAGE_DEADLINE_SECONDS = 10.0
_MEETING_SECONDS = 0.05  # between two looks whether a prefiller's sidecar has connected to this one
_MEET_SECONDS = 1.0  # between two messages that ask it to


class Pulls:
    """A thread for each prompt that is read. The methods are called in vLLM's steps, and neither block nor raise.

    A prompt is one transfer from each rank of the prefiller that has heads of this one. `in_parts`: only the blocks that a
    failed read lacks are computed again. `mine`: where this cache is, for a prefiller whose sidecar moves the bytes.
    """

    def __init__(self, session: Session, topology: Topology, shape: BlockShape, settings: Settings, recorder: Recorder,
                 in_parts: bool, mine: Optional[Handshake] = None, peers: Optional[Peers] = None) -> None:
        self._executor, self._mine = settings.executor, mine
        self._session, self._topology, self._shape, self._recorder = session, topology, shape, recorder
        self._require_path, self._deadline, self._in_parts = settings.require_path, settings.read_deadline, in_parts
        self._lock = threading.Lock()
        self._views: dict[tuple[int, str, str, Share], gantry.View] = {}  # by life, peer, workload; last used last
        self._transfers: dict[str, list[gantry.Transfer]] = {}  # those that were submitted
        self._cancelled: set[str] = set()
        self._ended: set[str] = set()
        self._failed: set[str] = set()
        self._missing: set[int] = set()
        self._renewing: set[Handshake] = set()
        self._peers = peers or Peers()
        self._quiet_seconds = _DEAD_SIDECAR_SECONDS if settings.executor == "self" else _DEAD_SIDECAR_PUSH_SECONDS
        self._reads = Lanes("gantry-read", _READS_EACH, _READS)
        self._messages = Lanes("gantry-tell", 1, _MESSAGES)  # not behind reads that wait for a peer
        self._cancels = Lanes("gantry-cancel", _CANCELS, _CANCELS)

    def start(self, load: Load) -> None:
        with self._lock:
            self._transfers[load.request_id] = []
        if not self._reads.submit(load.sources[0].peer, self._run, load, time.monotonic()):
            self._end(load, False, load.local_blocks)

    def cancel(self, request: str) -> None:
        """The request is told as ended when no byte arrives any more."""
        with self._lock:
            if request not in self._transfers:
                return
            self._cancelled.add(request)
        self._cancels.submit("", self._cancel, request)

    def give_back(self, unwanted: Unwanted) -> None:
        for rank in self._topology.gives_back(len(unwanted.sources)):
            self._give_back(unwanted.sources[rank], unwanted.remote_request_id)

    def renew(self, source: Handshake, holds: list[str]) -> None:
        """Tells a prefiller to keep blocks that are not read yet, unless the last message to it is still being sent."""
        with self._lock:
            if source in self._renewing:
                return
            self._renewing.add(source)
        if not self._messages.submit(source.peer, self._renew, source, holds):
            with self._lock:
                self._renewing.discard(source)

    def take_ended(self) -> tuple[set[str], set[str], set[int]]:
        """Since the last call: (all requests whose reads have ended, those of them that have no block, blocks that others lack)."""
        if not self._ended:
            return set(), set(), set()
        with self._lock:
            ended, self._ended = self._ended, set()
            failed, self._failed = self._failed, set()
            missing, self._missing = self._missing, set()
        return ended, failed, missing

    def close(self) -> None:
        for lanes in (self._reads, self._messages, self._cancels):
            lanes.close()

    def _run(self, load: Load, began: float) -> None:
        succeeded = False
        missing = load.local_blocks
        try:
            succeeded = self._read(load, began)
        except Exception as error:  # noqa: BLE001 - the request must be told, whatever happened
            missing = self._missing_of(load)
            log.warning("request %s: its prompt is not read from %s from block %d of %d on, and %s: %s", load.request_id,
                        load.sources[0].peer, _first(load, missing), len(load.local_blocks), self._recorder.outcome, error)
            if getattr(error, "code", "") == "peer_unavailable":
                self._ask_to_meet(load.sources)  # it may have forgotten this sidecar; the next push finds it
        self._end(load, succeeded, missing)
        size = len(load.sources)
        ranks = self._topology.unread(size) if succeeded else [share.rank for share in self._topology.shares(size)]
        for rank in ranks:
            self._give_back(load.sources[rank], load.remote_request_id)

    def _end(self, load: Load, succeeded: bool, missing: list[int]) -> None:
        """No byte arrives any more; after a failure these blocks are missing."""
        with self._lock:
            self._transfers.pop(load.request_id, None)
            cancelled = load.request_id in self._cancelled
            self._cancelled.discard(load.request_id)
            self._ended.add(load.request_id)
            if succeeded:
                return
            if self._in_parts and _first(load, missing) > 0 and not cancelled:
                self._missing.update(missing)
            else:
                self._failed.add(load.request_id)
            if not cancelled:
                self._recorder.failed_read(len(missing), len(load.local_blocks) - _first(load, missing))

    def _read(self, load: Load, began: float) -> bool:
        client, life = self._session.current
        if client is None:
            raise gantry.Error("peer_unavailable", "this engine has no lease at its sidecar")
        if self._is_cancelled(load):
            return False
        if time.monotonic() - began > self._deadline:
            raise gantry.Error("deadline_exceeded", f"reads from {load.sources[0].peer} before this one took {self._deadline} s")
        with self._peers.reading(life, load.sources):
            return self._read_shares(client, life, load, began)

    def _is_cancelled(self, load: Load) -> bool:
        with self._lock:
            return load.request_id in self._cancelled

    def _read_shares(self, client: gantry.Client, life: int, load: Load, began: float) -> bool:
        failure: Optional[Exception] = None
        posted: list[float] = []
        for share in self._topology.shares(len(load.sources)):
            try:
                if not self._submit(client, life, load, share, posted):
                    break
            except Exception as error:  # noqa: BLE001 - the shares that move already are to be awaited all the same
                failure = error
                break
        if failure is not None:
            self._cancel(load.request_id)
        with self._lock:
            transfers = list(self._transfers[load.request_id])
        for transfer, seconds in zip(transfers, posted):
            try:
                self._note(load, began, seconds, self._await_end(client, transfer))
            except Exception as error:  # noqa: BLE001 - the others are to be awaited all the same
                failure = failure or error
        try:
            if failure is not None:
                raise failure
        finally:
            failure = None  # it names this frame: the two would keep the view until Python looks for cycles
        return not self._is_cancelled(load)

    def _submit(self, client: gantry.Client, life: int, load: Load, share: Share, posted: list[float]) -> bool:
        """False: the request was cancelled, and nothing more is to be read."""
        view = self._view_of(client, life, load.sources, share)
        if self._is_cancelled(load):
            return False
        asked = time.monotonic()
        transfer = self._submitted(client, lambda: client.read(
            view, id=_transfer_id(load, share), local_blocks=load.local_blocks,
            remote_blocks=load.remote_blocks, hold=hold_id(load.remote_request_id), deadline=self._deadline,
            executor=self._executor,
            hold_consumers=CONSUMERS // self._topology.readers(share.rank, len(load.sources)), require_path=self._require_path),
            load, load.sources[share.rank])
        if transfer is None:
            return False
        posted.append(time.monotonic() - asked)
        with self._lock:
            self._transfers[load.request_id].append(transfer)
            cancelled = load.request_id in self._cancelled
        if cancelled:
            transfer.cancel(0)
        return not cancelled

    def _submitted(self, client: gantry.Client, submit: Callable[[], gantry.Transfer], load: Load,
                   source: Handshake) -> Optional[gantry.Transfer]:
        """A request without an answer may be carried out all the same: it is made again, by the same id, until there is one.

        A push is asked for again until the prefiller's sidecar knows this one. None: the request was cancelled meanwhile.
        """
        began, said = time.monotonic(), -_MEET_SECONDS
        while True:
            try:
                return submit()
            except gantry.Error as error:
                if self._session.client is not client or error.code == "sidecar_lost":
                    time.sleep(self._quiet_seconds)
                    raise
                now = time.monotonic()
                if error.code == "peer_unavailable" and error.field == "/executor" and now - began < self._deadline:
                    if self._is_cancelled(load):
                        return None
                    if now - said >= _MEET_SECONDS:
                        said = now
                        self._ask_to_meet((source,))
                    time.sleep(_MEETING_SECONDS)
                elif error.code != "deadline_exceeded":
                    raise
                log.debug("a read is asked for again: %s", error)

    def _ask_to_meet(self, sources: Workers) -> None:
        if self._executor == "peer" and self._mine is not None:
            for source in sources:
                self._messages.submit(source.peer, self._tell, source, meet(self._mine))

    def _note(self, load: Load, began: float, posted: float, status: gantry.TransferStatus) -> None:
        log.info("request %s: %s, %d bytes by %s in %d us, moved by %s", load.request_id, status.state, status.bytes, status.path,
                 status.total_us, "the prefiller's sidecar" if status.executor == "peer" else "this sidecar")
        self._recorder.read(Read(time.monotonic() - began, posted, status.total_us / 1e6, status.bytes, len(load.local_blocks),
                                 status.descriptors_in, status.path))

    def _missing_of(self, load: Load) -> list[int]:
        """The blocks that reads which failed did not fill; all of them, unless the sidecar knows better."""
        with self._lock:
            transfers = list(self._transfers[load.request_id])
        if len(transfers) < len(self._topology.shares(len(load.sources))):
            return load.local_blocks
        missing: set[int] = set()
        for transfer in transfers:
            try:
                found = missing_blocks(transfer.details(), load.local_blocks)
                missing.update(load.local_blocks if found is None else found)
            except Exception as error:  # noqa: BLE001 - the request must be told, whatever happened
                log.debug("request %s: %s", load.request_id, error)
                return load.local_blocks
        return [block for block in load.local_blocks if block in missing] or load.local_blocks

    def _await_end(self, client: gantry.Client, transfer: gantry.Transfer) -> gantry.TransferStatus:
        """Returns when no byte moves any more: vLLM uses the blocks for others then. Raises gantry.Error when it failed."""
        while True:
            try:
                return transfer.wait(_WAIT_SECONDS)
            except TimeoutError:
                continue
            except gantry.Error:
                if self._has_ended(client, transfer):
                    raise
                time.sleep(_WAIT_SECONDS / 10)

    def _has_ended(self, client: gantry.Client, transfer: gantry.Transfer) -> bool:
        """After an error: whether it is the transfer's own end, or the end of the sidecar that moved the bytes."""
        try:
            if transfer.poll().done:
                return True
        except gantry.Error:
            pass
        if self._session.client is not client:
            time.sleep(self._quiet_seconds)
            return True
        return False

    def _view_of(self, client: gantry.Client, life: int, sources: Workers, share: Share) -> gantry.View:
        """The view of a share; made once in each life of the lease, and again where the peer has another address."""
        source, size = sources[share.rank], len(sources)
        moved = self._peers.introduce(client, life, source)
        key = (life, source.peer, source.workload, share)
        with self._lock:
            view = None if moved else self._views.pop(key, None)
            if view is not None:
                self._views[key] = view
        if view is None:
            remote = BlockShape(self._shape.outer, max(1, self._topology.total_heads // size), self._shape.head_bytes)
            slices = None if size == self._topology.size else slices_of(share, self._shape, remote)
            view = client.view(source.workload, peer=source.peer, pairs=["kv.*"], slices=slices)
            with self._lock:
                last = [(each, its) for each, its in self._views.items() if each[0] == life and each != key]
                self._views = {**dict(last[-_VIEWS_MAX + 1:]), key: view}
        return view

    def _cancel(self, request: str) -> None:
        with self._lock:
            transfers = list(self._transfers.get(request, ()))
        for transfer in transfers:
            try:
                transfer.cancel(0)
            except gantry.Error as error:
                log.debug("request %s: %s", request, error)

    def _give_back(self, source: Handshake, remote_request: str) -> None:
        """Tells the prefiller that nobody reads the blocks. Where that fails the hold ends at its time."""
        self._messages.submit(source.peer, self._tell, source, RELEASE + hold_id(remote_request).encode())

    def _renew(self, source: Handshake, holds: list[str]) -> None:
        try:
            for first in range(0, len(holds), _HOLDS_MAX):
                self._tell(source, RENEW + "\n".join(holds[first:first + _HOLDS_MAX]).encode())
        finally:
            with self._lock:
                self._renewing.discard(source)

    def _tell(self, source: Handshake, message: bytes) -> None:
        client, life = self._session.current
        if client is None:
            return
        try:
            self._peers.remind(client, life, source)
            client.notify(source.workload, message, peer=source.peer, deadline=_MESSAGE_DEADLINE_SECONDS)
        except Exception as error:  # noqa: BLE001 - a thread of a pool has nobody to tell
            self._recorder.count(num_failed_notifications=1)
            log.debug("a message to %s is not sent: %s", source.peer, error)


def _first(load: Load, missing: list[int]) -> int:
    """The number of the first missing block among those of the load."""
    return load.local_blocks.index(missing[0]) if missing else 0


def _transfer_id(load: Load, share: Share) -> str:
    """Requests may have any text as their id, and transfers may not."""
    return "vllm-" + hashlib.sha256(f"{share.rank} {load.request_id}".encode()).hexdigest()[:40]
