"""The connector's series in vLLM's /metrics. Those that NixlConnector has too have its names, with `gantry` for `nixl`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorPromMetrics
from vllm.v1.metrics.utils import create_metric_per_engine

from .stats import PATHS

if TYPE_CHECKING:
    from vllm.config import VllmConfig

_SECONDS = [0.001, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0]
_BYTES = [2**exponent for exponent in range(11, 36, 2)]  # 2 KiB to 32 GiB
_NUMBERS = [1, 5, 10, 20, 30, 50, 75, 100, 200, 400, 1000, 2000, 4000, 10000, 20000, 50000, 100000]

# (list of the stats, metric, meaning, buckets)
HISTOGRAMS: tuple[tuple[str, str, str, list[Any]], ...] = (
    ("transfer_duration", "vllm:gantry_xfer_time_seconds",
     "Reads of prompts' blocks that succeeded, from the step of the decoder that asked until the end.", _SECONDS),
    ("post_duration", "vllm:gantry_post_time_seconds", "Of these, the calls that submitted them to the sidecar.", _SECONDS),
    ("sidecar_duration", "vllm:gantry_sidecar_time_seconds", "Of these, the sidecar's time from admission until the end.", _SECONDS),
    ("bytes_transferred", "vllm:gantry_bytes_transferred", "Bytes of each read that succeeded.", _BYTES),
    ("num_blocks", "vllm:gantry_num_blocks", "Blocks of the cache that each read that succeeded has filled.", _NUMBERS),
    ("num_descriptors", "vllm:gantry_num_descriptors", "Pairs of blocks of each read that succeeded, in all layers.", _NUMBERS),
)
# (number of the stats, metric without the suffix _total, meaning)
COUNTERS = (
    ("num_failed_transfers", "vllm:gantry_num_failed_transfers", "Reads that failed, also those that could not be begun."),
    ("num_failed_blocks", "vllm:gantry_num_failed_blocks", "Blocks of failed reads that may not have arrived whole."),
    ("num_failed_notifications", "vllm:gantry_num_failed_notifications",
     "Messages to prefillers that were refused or not delivered."),
    ("num_kv_expired_reqs", "vllm:gantry_num_kv_expired_reqs",
     "Prompts that no decoder had read when their hold's time was over. Counted by the prefiller."),
    ("num_recomputed_reqs", "vllm:gantry_num_recomputed_reqs", "Prompts that were computed, in part or whole, instead of read."),
    ("num_recomputed_blocks", "vllm:gantry_num_recomputed_blocks", "Blocks of these that were computed."),
    ("num_reconnects", "vllm:gantry_num_reconnects", "Leases that a worker took anew after its sidecar was lost."),
)


class GantryPromMetrics(KVConnectorPromMetrics):
    """All series exist from the start, and their number does not grow."""

    def __init__(self, vllm_config: "VllmConfig", metric_types: dict[Any, Any], labelnames: list[str],
                 per_engine_labelvalues: dict[int, list[object]]) -> None:
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        histogram_cls: Any = self._histogram_cls  # of prometheus_client, or Ray's
        self._histograms: dict[str, dict[int, Any]] = {
            key: create_metric_per_engine(histogram_cls(name=name, documentation=text, buckets=buckets, labelnames=labelnames),
                                          per_engine_labelvalues)
            for key, name, text, buckets in HISTOGRAMS}
        self._counters: dict[str, dict[int, Any]] = {
            key: create_metric_per_engine(self._counter_cls(name=name, documentation=text, labelnames=labelnames),
                                          per_engine_labelvalues)
            for key, name, text in COUNTERS}
        self._path_transfers = self._of_paths("vllm:gantry_path_transfers", "Reads that succeeded, by the path they took.")
        self._path_bytes = self._of_paths("vllm:gantry_path_bytes", "Bytes of reads that succeeded, by the path they took.")

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        for key, histograms in self._histograms.items():
            for value in transfer_stats_data[key]:
                histograms[engine_idx].observe(value)
        for key, counters in self._counters.items():
            counters[engine_idx].inc(transfer_stats_data[key])
        for path, length in zip(transfer_stats_data["path"], transfer_stats_data["bytes_transferred"]):
            self._path_transfers[path][engine_idx].inc(1)
            self._path_bytes[path][engine_idx].inc(length)

    def _of_paths(self, name: str, text: str) -> dict[str, dict[int, Any]]:
        """path -> engine -> counter"""
        metric = self._counter_cls(name=name, documentation=text, labelnames=[*self._labelnames, "path"])
        return {path: create_metric_per_engine(metric, {engine: [*values, path] for engine, values
                                                        in self.per_engine_labelvalues.items()}) for path in PATHS}
