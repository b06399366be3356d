"""The adapter by which LMCache imports the channel. It is an L2 adapter that stores nothing and finds nothing."""

from __future__ import annotations

import gc
import itertools
import logging
import sys
from typing import Any, Optional

import gantry
from lmcache.lmcache_native import Bitmap
from lmcache.logging import init_logger
from lmcache.v1.distributed.internal_api import L1MemoryDesc, L2StoreResult
from lmcache.v1.distributed.l2_adapters.base import L2AdapterInterface
from lmcache.v1.distributed.transfer_channel.factory import register_transfer_channel_factory
from lmcache.v1.platform import create_event_notifier

from .channel_session import Session
from .channel_settings import LOAD_MARGIN_SECONDS, Settings, load_timeout_of
from .context import GantryChannelContext
from .memory import mapping_at

log = logging.getLogger("lmcache.gantry")

ENGINE = "gantry"  # of --p2p-transfer-engine

for _logger in ("lmcache.gantry", "gantry"):
    init_logger(_logger)  # LMCache's loggers have handlers of their own

_open: "Optional[GantryChannel]" = None  # what make_channel() takes its session of


class GantryChannel(L2AdapterInterface):
    """Its parameters are those of the channel: see Settings. Lookups and loads of it find nothing, and end at once.

    It is to be the first --l2-adapter. It replaces the pages of the L1 memory, and adapters that follow find the new ones.
    """

    session: Session

    def __init__(self, params: Optional[dict[str, Any]] = None, l1_memory_desc: Optional[L1MemoryDesc] = None) -> None:
        """Takes the lease and registers the memory.

        Raises ValueError for parameters that the channel does not understand, and for a --p2p-load-timeout that is too
        short for them. Raises gantry.Error where there is no sidecar, where it cannot map the memory, and "conflict" where
        another adapter was made before.
        """
        super().__init__(max_capacity_bytes=0)
        global _open
        self.settings = Settings.of(params or {})
        _check_load_timeout(self.settings)
        if l1_memory_desc is None:
            raise gantry.Error("invalid_argument", "LMCache has no L1 memory for the transfer channel", "start the server with --l1-size-gb")
        if _open is not None and not _open.session.closed:
            raise gantry.Error("conflict", "there is a GantryChannel in this server already", "pass it once")
        mapping = mapping_at(l1_memory_desc.ptr)
        if mapping is None or not mapping.shared:
            _check_first()
        self.session = Session(self.settings, l1_memory_desc.ptr, l1_memory_desc.size)
        self.context: Optional[GantryChannelContext] = None
        _open = self
        self._store, self._lookup, self._load = (create_event_notifier() for _ in range(3))
        self._tasks = itertools.count(1)  # LMCache's store loop and its prefetch loop both take some
        self._stored: dict[int, L2StoreResult] = {}
        self._found: dict[int, Bitmap] = {}
        self._closed = False

    def get_store_event_fd(self) -> int:
        return int(self._store.fileno())

    def get_lookup_and_lock_event_fd(self) -> int:
        return int(self._lookup.fileno())

    def get_load_event_fd(self) -> int:
        return int(self._load.fileno())

    def submit_store_task(self, keys: Any, objects: Any) -> int:
        """Ends at once, with nothing stored. LMCache holds the objects until it has seen the end."""
        task = next(self._tasks)
        self._stored[task] = L2StoreResult(True, 0)
        self._store.notify()
        return task

    def pop_completed_store_tasks(self) -> dict[int, L2StoreResult]:
        stored, self._stored = self._stored, {}
        return stored

    def submit_lookup_and_lock_task(self, keys: Any, group_layout_descs: Any) -> int:
        return self._end_empty(keys, self._lookup)

    def query_lookup_and_lock_result(self, task_id: int) -> Optional[Bitmap]:
        return self._found.pop(task_id, None)

    def submit_unlock(self, keys: Any) -> None:
        """Nothing is locked."""

    def submit_load_task(self, keys: Any, objects: Any) -> int:
        return self._end_empty(keys, self._load)

    def query_load_result(self, task_id: int) -> Optional[Bitmap]:
        return self._found.pop(task_id, None)

    def report_status(self) -> dict[str, Any]:
        """Healthy while there is a lease at the sidecar."""
        return {"is_healthy": self.session.current is not None, "type": "GantryChannel",
                "reads_under_way": 0 if self.context is None else self.context.reads_under_way}

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.session.close()
            for notifier in (self._store, self._lookup, self._load):
                notifier.close()

    def _end_empty(self, keys: Any, notifier: Any) -> int:
        task = next(self._tasks)
        self._found[task] = Bitmap(len(keys))
        notifier.notify()
        return task


def make_channel(l1_memory_desc: L1MemoryDesc, listen_url: str, advertise_url: str, **_: Any) -> GantryChannelContext:
    """LMCache calls it for `--p2p-transfer-engine gantry`. Raises gantry.Error: see GantryChannelContext."""
    adapter = _open
    if adapter is None or adapter.session.closed or adapter.session.address != l1_memory_desc.ptr:
        raise gantry.Error("conflict", "the L1 memory of the transfer channel is not that of the adapter GantryChannel",
                           "pass GantryChannel as the first --l2-adapter, without another affinity tag")
    adapter.context = GantryChannelContext(l1_memory_desc, listen_url, advertise_url, adapter.settings, adapter.session)
    return adapter.context


def _check_first() -> None:
    """Adapters may register the L1 memory at a device when they are made. These would use the pages that are replaced."""
    for found in gc.get_objects():
        kind = type(found)
        if L2AdapterInterface in kind.__mro__ and kind is not GantryChannel:
            raise gantry.Error("conflict", f"the L2 adapter {kind.__name__} was made before GantryChannel, and may have registered the "
                               "L1 memory, whose pages GantryChannel replaces", "pass GantryChannel as the first --l2-adapter")


def _check_load_timeout(settings: Settings) -> None:
    timeout = load_timeout_of(sys.argv)
    if timeout < settings.read_deadline + LOAD_MARGIN_SECONDS:
        raise ValueError(f"--p2p-load-timeout is {timeout:g} s, and LMCache uses the memory of a read for others then. It has to be "
                         f"{LOAD_MARGIN_SECONDS:g} s longer than read_deadline of GantryChannel, {settings.read_deadline:g} s")
    log.info("a read has %g s, and LMCache waits %g s for it", settings.read_deadline, timeout)


register_transfer_channel_factory(ENGINE, make_channel)
