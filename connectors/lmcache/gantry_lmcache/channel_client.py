"""LMCache's client of the channel: reads from one other server."""

from __future__ import annotations

import itertools
import logging
import threading
import time

from lmcache.v1.distributed.transfer_channel.abstract import TransferChannelClient
from lmcache.v1.distributed.transfer_channel.api import TransferChannelAddress, TransferChannelReadResult

from .reading import Read, Reader
from .source import Source

log = logging.getLogger("lmcache.gantry")

_KEPT_SECONDS = 300.0  # of an end that LMCache does not ask for, because it gave up before


class GantryChannelClient(TransferChannelClient):
    """LMCache's loop calls submit_read() and query_read_status(): they make no request, and raise nothing."""

    def __init__(self, reader: Reader, source: Source) -> None:
        self._reader, self.source = reader, source
        self._lock = threading.Lock()
        self._ids = itertools.count()
        self._reads: dict[int, Read] = {}
        self._closed = False

    def submit_read(self, local_addresses: list[TransferChannelAddress],
                    remote_addresses: list[TransferChannelAddress]) -> int:
        """Begins to read remote_addresses[i] into local_addresses[i], and returns the id of the task."""
        read = Read([(mine.offset, theirs.offset, theirs.size) for mine, theirs in zip(local_addresses, remote_addresses)])
        why = _refusal_of(local_addresses, remote_addresses) or ("the client is closed" if self._closed else "")
        with self._lock:
            self._forget_old()
            task = next(self._ids)
            self._reads[task] = read
        if why:
            log.warning("a read of %d objects fails: %s", len(local_addresses), why)
            read.end([False] * len(local_addresses))
        else:
            self._reader.start(read, self.source)
        return task

    def query_read_status(self, task_id: int) -> TransferChannelReadResult:
        """The state of a task. A task that has ended is told once; one that is not known has ended without any object."""
        with self._lock:
            read = self._reads.get(task_id)
            if read is not None and not read.done:
                return TransferChannelReadResult(finished=False)
            self._reads.pop(task_id, None)
        return TransferChannelReadResult(finished=True, succeeded_mask=[] if read is None else list(read.succeeded))

    def close(self) -> None:
        """Cancels what runs. Its tasks are not known afterwards."""
        self._closed = True
        with self._lock:
            reads, self._reads = list(self._reads.values()), {}
        for read in reads:
            if not read.done:
                self._reader.cancel(read)

    def _forget_old(self) -> None:
        now = time.monotonic()
        self._reads = {task: read for task, read in self._reads.items() if not read.done or now - read.ended < _KEPT_SECONDS}


def _refusal_of(local: list[TransferChannelAddress], remote: list[TransferChannelAddress]) -> str:
    if len(local) != len(remote):
        return f"there are {len(local)} local and {len(remote)} remote addresses"
    for mine, theirs in zip(local, remote):
        if not (mine.is_valid() and theirs.is_valid()):
            return "an address is not valid"
        if mine.size != theirs.size:
            return f"an object has {theirs.size} bytes there, and {mine.size} here"
    return ""
