"""What vLLM loads: GantryConnector, one half of it in the scheduler's process and one in the worker's."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Optional

from vllm.distributed.kv_transfer.kv_connector.v1.base import (KVConnectorHandshakeMetadata, KVConnectorMetadata,
                                                               KVConnectorRole, SupportsHMA)
from vllm.platforms import current_platform

from .groups import groups_of
from .handshake import WorkerCache, compatibility
from .metadata import StepMetadata
from .metrics import GantryPromMetrics
from .places import Places
from .scheduler import Scheduler
from .settings import Settings, refuse_unsupported
from .stats import GantryStats, Recorder
from .tensor_parallel import topology_of
from .vllm_versions import CROSS_LAYERS_LAYOUT, Connector, TransferResults
from .worker import Worker

if TYPE_CHECKING:
    import torch
    from vllm.config import VllmConfig
    from vllm.forward_context import ForwardContext
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks, KVCacheManager
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.kv_cache_interface import KVCacheConfig
    from vllm.v1.outputs import KVConnectorOutput
    from vllm.v1.request import Request

log = logging.getLogger("vllm.gantry")


class GantryConnector(Connector, SupportsHMA):
    """Prefill/decode disaggregation by pull: the decoder reads a prompt's blocks from the prefiller's memory."""

    def __init__(self, vllm_config: "VllmConfig", role: KVConnectorRole, kv_cache_config: "KVCacheConfig") -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        refuse_unsupported(vllm_config, kv_cache_config)
        transfer = vllm_config.kv_transfer_config
        assert transfer is not None and transfer.engine_id is not None
        if transfer.kv_load_failure_policy != "recompute":
            log.warning("kv_load_failure_policy is %r: requests fail when their blocks cannot be read. With \"recompute\" "
                        "they are computed here", transfer.kv_load_failure_policy)
        self._recorder = Recorder(recomputes=transfer.kv_load_failure_policy == "recompute")
        settings = Settings.of(transfer.kv_connector_extra_config)
        self._cross_layers = settings.cross_layers
        groups = groups_of(kv_cache_config)
        self._full_or_state = not any(group.window or group.chunk for group in groups)
        self._scheduler: Optional[Scheduler] = None
        self._worker: Optional[Worker] = None
        if role == KVConnectorRole.SCHEDULER:
            # A prefiller that lost its lease keeps blocks for its own read_deadline: no reader may take longer.
            factors = compatibility(vllm_config, groups, settings.model_id) | {"read_deadline": settings.read_deadline}
            self._scheduler = Scheduler(transfer.engine_id, groups, factors, settings.hold_ttl, Places(settings.peer_addresses),
                                        self._recorder)
        else:
            topology = topology_of(vllm_config)
            self._worker = Worker(settings, f"vllm-{transfer.engine_id}-{topology.rank}", kv_cache_config.num_blocks, topology,
                                  len(groups) == 1 and not groups[0].state, self._recorder)

    # The worker

    def get_mem_pool_context(self) -> Optional[AbstractContextManager[Any]]:
        assert self._worker is not None
        return self._worker.allocation() if current_platform.is_cpu() else None

    @property
    def prefer_cross_layer_blocks(self) -> bool:
        """vLLM up to 0.28 asks."""
        return self._cross_layers

    @classmethod
    def get_required_kvcache_layout(cls, vllm_config: "VllmConfig") -> Optional[str]:
        """vLLM from 0.29 on asks for an order of axes. It warns where a backend of the model has no such layout, and takes another."""
        transfer = vllm_config.kv_transfer_config
        return CROSS_LAYERS_LAYOUT if transfer is not None and transfer.kv_connector_extra_config.get("cross_layers") else None

    def register_kv_caches(self, kv_caches: "dict[str, torch.Tensor]") -> None:
        assert self._worker is not None
        self._worker.register(kv_caches)

    def register_cross_layers_kv_cache(self, kv_cache: "torch.Tensor", attn_backend: Any) -> None:
        assert self._worker is not None
        self._worker.register({"of all layers": kv_cache})

    def get_handshake_metadata(self) -> Optional[KVConnectorHandshakeMetadata]:
        assert self._worker is not None
        return self._worker.handshake()

    def bind_connector_metadata(self, connector_metadata: KVConnectorMetadata) -> None:
        super().bind_connector_metadata(connector_metadata)
        assert self._worker is not None
        self._worker.begin_step(self._bound())

    def start_load_kv(self, forward_context: "ForwardContext", **kwargs: Any) -> None:
        assert self._worker is not None
        self._worker.start_loads(self._bound())

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Reads end between steps."""

    def save_kv_layer(self, layer_name: str, kv_layer: "torch.Tensor", attn_metadata: Any, **kwargs: Any) -> None:
        """The decoder reads the cache itself."""

    def wait_for_save(self) -> None:
        assert self._worker is not None
        self._worker.end_step()

    def get_transfer_results(self, finished_req_ids: set[str]) -> TransferResults:
        assert self._worker is not None
        return self._worker.results()

    def get_block_ids_with_load_errors(self) -> set[int]:
        """vLLM asks after get_transfer_results() in each step. It takes blocks of models of one group alone."""
        assert self._worker is not None
        blocks: set[int] = super().get_block_ids_with_load_errors()
        return self._worker.missing() | blocks

    # vLLM asks both halves in each step for what they observed, and makes its log and its /metrics of that.

    def get_kv_connector_stats(self) -> Optional[GantryStats]:
        return self._recorder.take()

    @classmethod
    def build_kv_connector_stats(cls, data: Optional[dict[str, Any]] = None) -> Optional[GantryStats]:
        return GantryStats.of(data)

    @classmethod
    def build_prom_metrics(cls, vllm_config: "VllmConfig", metric_types: dict[Any, Any], labelnames: list[str],
                           per_engine_labelvalues: dict[int, list[object]]) -> GantryPromMetrics:
        return GantryPromMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)

    def shutdown(self) -> None:
        if self._worker is not None:
            self._worker.close()

    def _bound(self) -> StepMetadata:
        metadata = self._get_connector_metadata()
        assert isinstance(metadata, StepMetadata)
        return metadata

    # The scheduler

    @property
    def supports_divergent_local_hybrid_hits(self) -> bool:
        """Whether vLLM may count a prefix as local that attention has and the others lack: each read brings the state."""
        return self._full_or_state

    def set_xfer_handshake_metadata(self, metadata: dict[int, KVConnectorHandshakeMetadata]) -> None:
        assert self._scheduler is not None
        workers = [metadata[rank] for rank in sorted(metadata)]
        self._scheduler.set_handshake([worker for worker in workers if isinstance(worker, WorkerCache)])

    def bind_kv_cache_manager(self, kv_cache_manager: "KVCacheManager") -> None:
        super().bind_kv_cache_manager(kv_cache_manager)
        assert self._scheduler is not None
        self._scheduler.bind(kv_cache_manager)

    def on_new_request(self, request: "Request") -> None:
        assert self._scheduler is not None
        self._scheduler.added(request)

    def get_num_new_matched_tokens(self, request: "Request", num_computed_tokens: int) -> tuple[int, bool]:
        assert self._scheduler is not None
        return self._scheduler.matched_tokens(request, num_computed_tokens)

    def update_state_after_alloc(self, request: "Request", blocks: "KVCacheBlocks", num_external_tokens: int) -> None:
        assert self._scheduler is not None
        self._scheduler.blocks_allocated(request, blocks, num_external_tokens)

    def build_connector_meta(self, scheduler_output: "SchedulerOutput") -> KVConnectorMetadata:
        assert self._scheduler is not None
        self.follow(scheduler_output)
        return self._scheduler.build(scheduler_output)

    def update_connector_output(self, connector_output: "KVConnectorOutput") -> None:
        assert self._scheduler is not None
        self._scheduler.received(connector_output.finished_recving or set())

    def request_finished(self, request: "Request", block_ids: list[int]) -> tuple[bool, Optional[dict[str, Any]]]:
        assert self._scheduler is not None
        return self._scheduler.finished(request, (block_ids,))

    def request_finished_all_groups(self, request: "Request",
                                    block_ids: tuple[list[int], ...]) -> tuple[bool, Optional[dict[str, Any]]]:
        assert self._scheduler is not None
        return self._scheduler.finished(request, block_ids)
