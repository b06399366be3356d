"""The adapter by which LMCache imports the channel. It is an L2 adapter that stores nothing and finds nothing."""

from __future__ import annotations

import itertools
from typing import Any, Optional

from lmcache.lmcache_native import Bitmap
from lmcache.logging import init_logger
from lmcache.v1.distributed.internal_api import L1MemoryDesc, L2StoreResult
from lmcache.v1.distributed.l2_adapters.base import L2AdapterInterface
from lmcache.v1.distributed.transfer_channel.factory import register_transfer_channel_factory
from lmcache.v1.platform import create_event_notifier

from .context import GantryChannelContext
from .channel_settings import Settings

ENGINE = "gantry"  # of --p2p-transfer-engine

for _logger in ("lmcache.gantry", "gantry"):
    init_logger(_logger)  # LMCache's loggers have handlers of their own

_settings = Settings.of({})


class GantryChannel(L2AdapterInterface):
    """Its parameters are those of the channel: see Settings. Lookups and loads of it find nothing, and end at once."""

    def __init__(self, params: Optional[dict[str, Any]] = None, l1_memory_desc: Optional[L1MemoryDesc] = None) -> None:
        """Raises ValueError for parameters that the channel does not understand. The memory is the channel's own matter."""
        super().__init__(max_capacity_bytes=0)
        global _settings
        _settings = Settings.of(params or {})
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
        return self._nothing(keys, self._lookup)

    def query_lookup_and_lock_result(self, task_id: int) -> Optional[Bitmap]:
        return self._found.pop(task_id, None)

    def submit_unlock(self, keys: Any) -> None:
        """Nothing is locked."""

    def submit_load_task(self, keys: Any, objects: Any) -> int:
        return self._nothing(keys, self._load)

    def query_load_result(self, task_id: int) -> Optional[Bitmap]:
        return self._found.pop(task_id, None)

    def report_status(self) -> dict[str, Any]:
        return {"is_healthy": True, "type": "GantryChannel"}

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            for notifier in (self._store, self._lookup, self._load):
                notifier.close()

    def _nothing(self, keys: Any, notifier: Any) -> int:
        task = next(self._tasks)
        self._found[task] = Bitmap(len(keys))
        notifier.notify()
        return task


def make_channel(l1_memory_desc: L1MemoryDesc, listen_url: str, advertise_url: str, **_: Any) -> GantryChannelContext:
    """LMCache calls it for `--p2p-transfer-engine gantry`. Raises gantry.Error: see GantryChannelContext."""
    return GantryChannelContext(l1_memory_desc, listen_url, advertise_url, _settings)


register_transfer_channel_factory(ENGINE, make_channel)
