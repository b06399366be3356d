"""The decoder's side of a worker: reads prompts' blocks from prefillers."""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Optional

import gantry

from .handshake import Handshake, hold_id
from .holds import RELEASE
from .metadata import Load, Unwanted
from .session import Session

log = logging.getLogger("vllm.gantry")

_THREADS = 16  # reads that are under way at the same time
_WAIT_SECONDS = 1.0  # of one look at a transfer
_DEAD_SIDECAR_SECONDS = 1.0  # its copy workers have ended by then
_MESSAGE_DEADLINE_SECONDS = 10.0
_VIEWS_MAX = 256  # prefillers come and go under new names; those that were read last are kept


class Pulls:
    """A thread for each read that is under way. The methods are called in vLLM's steps, and neither block nor raise."""

    def __init__(self, session: Session, require_path: Optional[list[str]], deadline: float) -> None:
        self._session = session
        self._require_path, self._deadline = require_path, deadline
        self._lock = threading.Lock()
        self._views: dict[tuple[int, str, str], gantry.View] = {}  # (life of the lease, peer, workload), last used last
        self._addresses: dict[str, tuple[int, str]] = {}  # peer -> (life of the lease, where it was said to be)
        self._transfers: dict[str, Optional[gantry.Transfer]] = {}  # None: not submitted yet
        self._cancelled: set[str] = set()
        self._ended: set[str] = set()
        self._failed: set[str] = set()
        self._pool = ThreadPoolExecutor(_THREADS, "gantry-pull")

    def start(self, load: Load) -> None:
        with self._lock:
            self._transfers[load.request_id] = None
        self._pool.submit(self._run, load)

    def cancel(self, request: str) -> None:
        """The request is told as ended when no byte arrives any more."""
        with self._lock:
            if request not in self._transfers:
                return
            self._cancelled.add(request)
        self._pool.submit(self._cancel, request)

    def give_back(self, unwanted: Unwanted) -> None:
        self._pool.submit(self._give_back, unwanted.source, unwanted.remote_request_id)

    def take_ended(self) -> tuple[set[str], set[str]]:
        """Since the last call: (all requests whose reads have ended, those of them that failed)."""
        with self._lock:
            ended, self._ended = self._ended, set()
            failed, self._failed = self._failed, set()
        return ended, failed

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _run(self, load: Load) -> None:
        succeeded = False
        try:
            succeeded = self._read(load)
        except Exception as error:  # noqa: BLE001 - the request must be told, whatever happened
            log.warning("the blocks of request %s are computed here, as they were not read from %s: %s", load.request_id,
                        load.source.peer, error)
        with self._lock:
            self._transfers.pop(load.request_id, None)
            self._cancelled.discard(load.request_id)
            self._ended.add(load.request_id)
            if not succeeded:
                self._failed.add(load.request_id)
        if not succeeded:
            self._give_back(load.source, load.remote_request_id)

    def _read(self, load: Load) -> bool:
        client, life = self._session.client, self._session.life
        if client is None:
            raise gantry.Error("peer_unavailable", "this engine has no lease at its sidecar")
        view = self._view_of(client, life, load.source)
        with self._lock:
            if load.request_id in self._cancelled:
                return False
        transfer = client.read(view, local_blocks=load.local_blocks, remote_blocks=load.remote_blocks,
                               hold=hold_id(load.remote_request_id), deadline=self._deadline, executor="self",
                               require_path=self._require_path)
        with self._lock:
            self._transfers[load.request_id] = transfer
            cancelled = load.request_id in self._cancelled
        if cancelled:
            transfer.cancel(0)
        status = self._await_end(client, transfer)
        log.info("request %s: %s, %d bytes by %s in %d us", load.request_id, status.state, status.bytes, status.path,
                 status.total_us)
        return True

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
        """The view of a source; made again in each life of the lease, and where the peer has another address."""
        moved = self._introduce(client, life, source)
        key = (life, source.peer, source.workload)
        with self._lock:
            view = None if moved else self._views.pop(key, None)
            if view is not None:
                self._views[key] = view
        if view is None:
            view = client.view(source.workload, peer=source.peer, pairs=["kv.*"])
            with self._lock:
                last = [(each, its) for each, its in self._views.items() if each[0] == life and each != key]
                self._views = {**dict(last[-_VIEWS_MAX + 1:]), key: view}
        return view

    def _introduce(self, client: gantry.Client, life: int, source: Handshake, wait: Optional[float] = None) -> bool:
        """Tells the sidecar where the source's is, unless it knows. Returns whether it was told.

        `wait` is the seconds for the peer to be up, None: set_peer's. Without a wait the next read has one of its own.
        """
        place = (life, source.address)
        with self._lock:
            if self._addresses.get(source.peer) == place:
                return False
        client.set_peer(source.peer, source.address, wait)
        if wait != 0:
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
        client = self._session.client
        if client is None:
            return
        try:
            self._introduce(client, self._session.life, source, wait=0)
            client.notify(source.workload, RELEASE + hold_id(remote_request).encode(), peer=source.peer,
                          deadline=_MESSAGE_DEADLINE_SECONDS)
        except Exception as error:  # noqa: BLE001 - a thread of the pool has nobody to tell
            log.debug("the blocks of %s are not given back: %s", remote_request, error)
