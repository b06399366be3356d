"""The decoder's side of a worker: reads prompts' blocks from prefillers."""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Optional

import gantry

from .failures import missing_blocks
from .handshake import Handshake, hold_id
from .holds import RELEASE, RENEW
from .metadata import Load, Unwanted
from .session import Session
from .stats import Read, Recorder

log = logging.getLogger("vllm.gantry")

_THREADS = 16  # reads that are under way at the same time
_RENEWALS = 4  # prefillers that are told at the same time to keep blocks
_HOLDS_MAX = 1000  # that one message renews: their ids have 45 bytes, and a message 64 KiB at most
_WAIT_SECONDS = 1.0  # of one look at a transfer
_DEAD_SIDECAR_SECONDS = 1.0  # its copy workers have ended by then
_MESSAGE_DEADLINE_SECONDS = 10.0


class Pulls:
    """A thread for each read that is under way. The methods are called in vLLM's steps, and neither block nor raise."""

    def __init__(self, session: Session, require_path: Optional[list[str]], deadline: float, recorder: Recorder) -> None:
        self._session, self._recorder = session, recorder
        self._require_path, self._deadline = require_path, deadline
        self._lock = threading.Lock()
        self._views: dict[tuple[int, Handshake], gantry.View] = {}  # (life of the lease, source)
        self._addresses: dict[str, tuple[int, str]] = {}  # peer -> (life of the lease, where it was said to be)
        self._transfers: dict[str, Optional[gantry.Transfer]] = {}  # None: not submitted yet
        self._cancelled: set[str] = set()
        self._ended: set[str] = set()
        self._failed: set[str] = set()
        self._missing: set[int] = set()
        self._pool = ThreadPoolExecutor(_THREADS, "gantry-pull")
        self._renewing: set[Handshake] = set()
        self._renewals = ThreadPoolExecutor(_RENEWALS, "gantry-renew")  # not behind reads that wait for a peer

    def start(self, load: Load) -> None:
        with self._lock:
            self._transfers[load.request_id] = None
        self._pool.submit(self._run, load, time.monotonic())

    def cancel(self, request: str) -> None:
        """The request is told as ended when no byte arrives any more."""
        with self._lock:
            if request not in self._transfers:
                return
            self._cancelled.add(request)
        self._pool.submit(self._cancel, request)

    def give_back(self, unwanted: Unwanted) -> None:
        self._pool.submit(self._give_back, unwanted.source, unwanted.remote_request_id)

    def renew(self, source: Handshake, holds: list[str]) -> None:
        """Tells a prefiller to keep blocks that are not read yet, unless the last message to it is still being sent."""
        with self._lock:
            if source in self._renewing:
                return
            self._renewing.add(source)
        self._renewals.submit(self._renew, source, holds)

    def take_ended(self) -> tuple[set[str], set[str], set[int]]:
        """Since the last call: (all requests whose reads have ended, those of them that have no block, blocks that others lack)."""
        with self._lock:
            ended, self._ended = self._ended, set()
            failed, self._failed = self._failed, set()
            missing, self._missing = self._missing, set()
        return ended, failed, missing

    def close(self) -> None:
        for pool in (self._pool, self._renewals):
            pool.shutdown(wait=False, cancel_futures=True)

    def _run(self, load: Load, began: float) -> None:
        succeeded = False
        missing = load.local_blocks
        try:
            succeeded = self._read(load, began)
        except Exception as error:  # noqa: BLE001 - the request must be told, whatever happened
            missing = self._missing_of(load)
            log.warning("the blocks of request %s from number %d of %d on are computed here, as they were not read from %s: %s",
                        load.request_id, load.local_blocks.index(missing[0]), len(load.local_blocks), load.source.peer, error)
        with self._lock:
            self._transfers.pop(load.request_id, None)
            cancelled = load.request_id in self._cancelled
            self._cancelled.discard(load.request_id)
            self._ended.add(load.request_id)
            if not succeeded and missing[0] != load.local_blocks[0] and not cancelled:
                self._missing.update(missing)
            elif not succeeded:
                self._failed.add(load.request_id)
            if not succeeded and not cancelled:
                self._recorder.failed_read(len(missing), len(load.local_blocks) - load.local_blocks.index(missing[0]))
        if not succeeded:
            self._give_back(load.source, load.remote_request_id)

    def _read(self, load: Load, began: float) -> bool:
        client, life = self._session.client, self._session.life
        if client is None:
            raise gantry.Error("peer_unavailable", "this engine has no lease at its sidecar")
        view = self._view_of(client, life, load.source)
        with self._lock:
            if load.request_id in self._cancelled:
                return False
        asked = time.monotonic()
        transfer = client.read(view, local_blocks=load.local_blocks, remote_blocks=load.remote_blocks,
                               hold=hold_id(load.remote_request_id), deadline=self._deadline, executor="self",
                               require_path=self._require_path)
        posted = time.monotonic() - asked
        with self._lock:
            self._transfers[load.request_id] = transfer
            cancelled = load.request_id in self._cancelled
        if cancelled:
            transfer.cancel(0)
        status = self._await_end(client, transfer)
        log.info("request %s: %s, %d bytes by %s in %d us", load.request_id, status.state, status.bytes, status.path,
                 status.total_us)
        self._recorder.read(Read(time.monotonic() - began, posted, status.total_us / 1e6, status.bytes, len(load.local_blocks),
                                 status.descriptors_in, status.path))
        return True

    def _missing_of(self, load: Load) -> list[int]:
        """The blocks that a read which failed did not fill; all of them, unless the sidecar knows better."""
        with self._lock:
            transfer = self._transfers[load.request_id]
        missing = None
        if transfer is not None:
            try:
                missing = missing_blocks(transfer.details(), load.local_blocks)
            except Exception as error:  # noqa: BLE001 - the request must be told, whatever happened
                log.debug("request %s: %s", load.request_id, error)
        return missing or load.local_blocks

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
            time.sleep(_DEAD_SIDECAR_SECONDS)
            return True
        return False

    def _view_of(self, client: gantry.Client, life: int, source: Handshake) -> gantry.View:
        """The view of a source; made once in each life of the lease, and again where the peer has another address."""
        moved = self._introduce(client, life, source)
        with self._lock:
            view = self._views.get((life, source))
        if view is None or moved:
            view = client.view(source.workload, peer=source.peer, pairs=["kv.*"])
            with self._lock:
                self._views = {key: each for key, each in self._views.items() if key[0] == life}
                self._views[life, source] = view
        return view

    def _introduce(self, client: gantry.Client, life: int, source: Handshake) -> bool:
        """Tells the sidecar where the source's is, unless it knows. Returns whether it was told."""
        place = (life, source.address)
        with self._lock:
            if self._addresses.get(source.peer) == place:
                return False
        client.set_peer(source.peer, source.address)
        with self._lock:
            self._addresses[source.peer] = place
        return True

    def _cancel(self, request: str) -> None:
        with self._lock:
            transfer = self._transfers.get(request)
        if transfer is not None:
            try:
                transfer.cancel(0)
            except gantry.Error as error:
                log.debug("request %s: %s", request, error)

    def _give_back(self, source: Handshake, remote_request: str) -> None:
        """Tells the prefiller that nobody reads the blocks. Where that fails the hold ends at its time."""
        self._tell(source, RELEASE + hold_id(remote_request).encode())

    def _renew(self, source: Handshake, holds: list[str]) -> None:
        for first in range(0, len(holds), _HOLDS_MAX):
            self._tell(source, RENEW + " ".join(holds[first:first + _HOLDS_MAX]).encode())
        with self._lock:
            self._renewing.discard(source)

    def _tell(self, source: Handshake, message: bytes) -> None:
        client = self._session.client
        if client is None:
            return
        try:
            self._introduce(client, self._session.life, source)
            client.notify(source.workload, message, peer=source.peer, deadline=_MESSAGE_DEADLINE_SECONDS)
        except Exception as error:  # noqa: BLE001 - a thread of a pool has nobody to tell
            self._recorder.count(num_failed_notifications=1)
            log.debug("a message to %s is not sent: %s", source.peer, error)
