"""What the connector has observed since vLLM last asked, as vLLM carries it from the workers to its log and to Prometheus."""

from __future__ import annotations

import copy
import threading
import time
from dataclasses import dataclass
from typing import Any, Optional, Union

import gantry
import numpy as np
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorStats

PATHS = (*gantry.PATHS, "other")  # "other": one that this version does not know

# A value for each read that succeeded, at the same place of each list; names as NixlConnector has them where it has them.
LISTS = ("transfer_duration", "post_duration", "sidecar_duration", "bytes_transferred", "num_blocks", "num_descriptors", "path",
         "ended")
COUNTS = ("num_failed_transfers", "num_failed_blocks", "num_failed_notifications", "num_kv_expired_reqs", "num_recomputed_reqs",
          "num_recomputed_blocks", "num_reconnects")
_LOGGED_COUNTS = ("failed transfers", "failed blocks", "failed notifications", "KV expired reqs", "recomputed reqs",
                  "recomputed blocks", "reconnects")
_MB = 2**20


@dataclass(frozen=True)
class Read:
    """A read that succeeded. Times are seconds.

    transfer  from the step that asked for it until it has ended; post: of the call that submitted it
    sidecar   from the sidecar's admission until it has ended
    """

    transfer: float
    post: float
    sidecar: float
    bytes: int
    blocks: int
    descriptors: int
    path: str


@dataclass
class GantryStats(KVConnectorStats):
    """`data` has the LISTS, and the COUNTS as numbers."""

    def __post_init__(self) -> None:
        if not self.data:
            self.reset()

    @staticmethod
    def of(data: Optional[dict[str, Any]]) -> "GantryStats":
        """Its lists are its own: vLLM gives the same data to all of its loggers, and each of them aggregates."""
        return GantryStats(data=copy.deepcopy(data or {}))

    def reset(self) -> None:
        self.data: dict[str, Any] = {name: [] for name in LISTS} | {name: 0 for name in COUNTS}

    def is_empty(self) -> bool:
        return not any(self.data.values())

    def aggregate(self, other: KVConnectorStats) -> "GantryStats":
        for name in LISTS:
            self.data[name] += other.data[name]
        for name in COUNTS:
            self.data[name] += other.data[name]
        return self

    def reduce(self) -> dict[str, Union[int, float]]:
        """What one line of the log says. Paths that no read took are left out."""
        transfers, paths = len(self.data["path"]), self.data["path"]
        line: dict[str, Union[int, float]] = {"Num successful transfers": transfers}
        line |= {f"Num by {path}": paths.count(path) for path in PATHS if path in paths}
        for title, name in (("xfer", "transfer_duration"), ("sidecar", "sidecar_duration"), ("post", "post_duration")):
            milliseconds = 1e3 * np.asarray(self.data[name] or [0.0])
            line[f"Avg {title} time (ms)"] = round(milliseconds.mean().item(), 3)
            line[f"P90 {title} time (ms)"] = round(np.percentile(milliseconds, 90).item(), 3)
        megabytes, busy = sum(self.data["bytes_transferred"]) / _MB, self._busy_seconds()
        line["Avg MB per transfer"] = round(megabytes / max(transfers, 1), 3)
        line["Throughput (MB/s)"] = round(megabytes / busy, 3) if busy else 0
        line["Avg number of blocks"] = round(sum(self.data["num_blocks"]) / max(transfers, 1), 1)
        return line | {f"Num {title}": self.data[name] for title, name in zip(_LOGGED_COUNTS, COUNTS)}

    def _busy_seconds(self) -> float:
        """The time in which at least one read was under way; overlapping ones count once."""
        seconds, until = 0.0, 0.0
        for began, ended in sorted((end - duration, end) for end, duration in
                                   zip(self.data["ended"], self.data["transfer_duration"])):
            seconds += max(0.0, ended - max(began, until))
            until = max(until, ended)
        return seconds


class Recorder:
    """Every thread may call its methods; none of them blocks or raises."""

    def __init__(self, recomputes: bool) -> None:
        self._recomputes = recomputes  # prompts whose reads failed; otherwise their requests fail
        # For the log: the fate of a prompt that is not read.
        self.outcome = "it is computed here" if recomputes else 'its request fails, as kv_load_failure_policy is not "recompute"'
        self._lock = threading.Lock()
        self._stats = GantryStats()

    def read(self, read: Read) -> None:
        path = read.path if read.path in PATHS else PATHS[-1]
        values = (read.transfer, read.post, read.sidecar, read.bytes, read.blocks, read.descriptors, path, time.time())
        with self._lock:
            for name, value in zip(LISTS, values):
                self._stats.data[name].append(value)

    def failed_read(self, failed: int, again: int) -> None:
        """So many blocks did not arrive, and so many are to be computed again."""
        self.count(num_failed_transfers=1, num_failed_blocks=failed)
        if self._recomputes:
            self.computed_instead(again)

    def computed_instead(self, blocks: int) -> None:
        self.count(num_recomputed_reqs=1, num_recomputed_blocks=blocks)

    def count(self, **counts: int) -> None:
        """By the names of COUNTS."""
        with self._lock:
            for name, more in counts.items():
                self._stats.data[name] += more

    def take(self) -> Optional[GantryStats]:
        """What was recorded since the last call; None for nothing."""
        if self._stats.is_empty():  # in most steps, and without the lock
            return None
        with self._lock:
            taken, self._stats = self._stats, GantryStats()
        return taken
