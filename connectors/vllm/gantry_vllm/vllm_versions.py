"""The differences between the supported versions of vLLM: 0.26 to 0.31, and 0.32 with its newer connector interface.

The rest of the connector is written against the newer interface. `Connector` is the class that it derives from.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vllm.distributed.kv_transfer.kv_connector.v1 import base
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1, KVConnectorMetadata

from .metadata import StepMetadata

if TYPE_CHECKING:
    from vllm.v1.core.sched.output import SchedulerOutput

_NEWER = hasattr(base, "KVConnectorTransferResults")
# Otherwise blocks alone are told, which vLLM takes of models of one group of layers, and ends on those of others.
TAKES_FAILED_REQUESTS = _NEWER
# The order of the cache's axes in which a block has all layers, as the newer interface is asked for it.
CROSS_LAYERS_LAYOUT = "BLHNC" if _NEWER else None


class BlockTable:
    """The blocks of scheduled requests, as the scheduler tells them to the worker.

    It answers as KVCacheManager does. The older interface shows a connector no KVCacheManager.
    """

    def __init__(self) -> None:
        self._blocks: dict[str, tuple[list[int], ...]] = {}

    def follow(self, output: "SchedulerOutput") -> None:
        for name in output.finished_req_ids:
            self._blocks.pop(name, None)
        for new in output.scheduled_new_reqs:
            self._blocks[new.req_id] = tuple(list(ids) for ids in new.block_ids)
        cached = output.scheduled_cached_reqs
        for name, blocks in zip(cached.req_ids, cached.new_block_ids):
            if name in cached.resumed_req_ids or name not in self._blocks:
                self._blocks[name] = tuple(list(ids) for ids in blocks or ())
            elif blocks:
                self._blocks[name] = tuple(mine + list(more) for mine, more in zip(self._blocks[name], blocks))

    def get_block_ids(self, request_id: str) -> tuple[list[int], ...]:
        return self._blocks.get(request_id, ())


class Loads:
    """The blocks of reads under way. The older interface is told of failed blocks, the newer one of failed requests."""

    def __init__(self) -> None:
        self._blocks: dict[str, list[int]] = {}
        self._failed: set[int] = set()

    def begin(self, metadata: KVConnectorMetadata) -> None:
        if isinstance(metadata, StepMetadata):
            self._blocks.update({load.request_id: load.local_blocks for load in metadata.load})

    def end(self, received: set[str], failed: set[str]) -> None:
        for request in received | failed:
            blocks = self._blocks.pop(request, [])
            if request in failed:
                self._failed.update(blocks)

    def take_failed(self) -> set[int]:
        failed, self._failed = self._failed, set()
        return failed


if _NEWER:
    TransferResults: Any = base.KVConnectorTransferResults

    class Connector(KVConnectorBase_V1):
        """vLLM calls it by the interface that the connector is written against."""

        def follow(self, output: "SchedulerOutput") -> None:
            """The KVCacheManager knows the requests' blocks."""

else:

    @dataclass
    class TransferResults:  # type: ignore[no-redef]
        finished_sending: set[str] = field(default_factory=set)
        finished_recving: set[str] = field(default_factory=set)
        failed_recving: set[str] = field(default_factory=set)

    class Connector(KVConnectorBase_V1):  # type: ignore[no-redef]
        """Turns the calls of the older interface into those of the newer one."""

        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self._table = BlockTable()
            self._loads = Loads()

        def bind_gpu_block_pool(self, gpu_block_pool: Any) -> None:
            self.bind_kv_cache_manager(self._table)

        def bind_kv_cache_manager(self, kv_cache_manager: Any) -> None:
            """The connector's own does it."""

        def follow(self, output: "SchedulerOutput") -> None:
            """To be called before the metadata of a step are built."""
            self._table.follow(output)

        def bind_connector_metadata(self, connector_metadata: KVConnectorMetadata) -> None:
            super().bind_connector_metadata(connector_metadata)
            self._loads.begin(connector_metadata)

        def get_finished(self, finished_req_ids: set[str]) -> tuple[set[str], set[str]]:
            results = self.get_transfer_results(finished_req_ids)
            self._loads.end(results.finished_recving, results.failed_recving)
            return results.finished_sending, results.finished_recving

        def get_transfer_results(self, finished_req_ids: set[str]) -> Any:
            raise NotImplementedError

        def get_block_ids_with_load_errors(self) -> set[int]:
            return self._loads.take_failed()
