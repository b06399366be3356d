"""The worker's half of the connector: memory at the start, then holds and reads in each step."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Optional

import torch

from .cache import ArenaAllocation, cache_of, joined
from .handshake import Handshake, WorkerCache
from .holds import Holds, Putting
from .introductions import Introductions
from .metadata import StepMetadata
from .peers import Peers
from .places import Places
from .pulls import Pulls
from .session import Session
from .settings import Settings
from .stats import Recorder
from .tensor_parallel import Topology, block_shape
from .vllm_versions import TransferResults

log = logging.getLogger("vllm.gantry")

_HOLD_SECONDS = 0.5  # a step waits no longer for its holds; the decoder computes the prompt then
_BUSY_HOLD_SECONDS = 0.01  # nor than this while the holds of an earlier step are not put


class Worker:
    """Its methods are called by vLLM's worker thread. After the start they neither block nor raise."""

    def __init__(self, settings: Settings, workload: str, blocks: int, topology: Topology, in_parts: bool,
                 recorder: Recorder) -> None:
        self._settings, self._blocks = settings, blocks
        self._topology, self._in_parts = topology, in_parts
        self._recorder = recorder
        self._session = Session(settings.run_dir, workload, recorder)
        self._peers = Peers()
        self._introductions = Introductions(self._session, Places(settings.peer_addresses), self._peers)
        self._allocation = ArenaAllocation(self._session.make_arena)
        self._layout = ""
        self._holds: Optional[Holds] = None
        self._pulls: Optional[Pulls] = None
        self._putting: Optional[Putting] = None  # of this step
        self._last_put: Optional[Putting] = None  # of earlier steps: they are put one after the other
        self._sending: set[str] = set()  # finished, and their holds have not ended
        self._missing: set[int] = set()  # blocks that reads which have just ended did not fill
        self._ended: set[str] = set()  # holds that ended before their requests were told as finished
        self._released: set[str] = set()  # requests whose blocks are vLLM's again, and their holds have not ended

    def allocation(self) -> AbstractContextManager[Any]:
        return self._allocation

    def register(self, kv_caches: Mapping[str, torch.Tensor]) -> None:
        """At the start: whatever is wrong is raised, and vLLM does not serve."""
        if self._settings.cross_layers:
            kv_caches = joined(kv_caches)
        cache = cache_of(kv_caches, self._blocks, writable=self._settings.executor == "peer")
        if cache.device.type == "cpu" and self._allocation.arena is None:
            raise ValueError("the KV cache was not allocated from an arena; on the CPU GantryConnector needs vLLM 0.32 or newer")
        self._session.register(cache)
        self._layout = cache.layout
        self._holds = Holds(self._session, len(cache.specs), self._settings.hold_ttl, self._settings.read_deadline,
                            self._recorder, self._introductions)
        shape = block_shape(next(iter(kv_caches.values())))
        self._pulls = Pulls(self._session, self._topology, shape, self._settings, self._recorder, in_parts=self._in_parts,
                            mine=self._place(), peers=self._peers)
        log.info("the KV cache is registered as workload %s of the sidecar %s: %s on %s", self._session.workload,
                 self._session.peer_name, cache.layout, cache.device)

    def handshake(self) -> WorkerCache:
        source = self._place()
        if why := Places().why_not(source.address):
            log.warning("decoders on other nodes come to %s only where their peer_addresses lists it: %s", source.address, why)
        return WorkerCache(source, self._layout)

    def _place(self) -> Handshake:
        return Handshake(self._session.peer_name, self._settings.peer_address or self._session.peer_address,
                         self._session.workload, self._session.node_id)

    def begin_step(self, step: StepMetadata) -> None:
        """Before the forward pass. The holds are put while it runs."""
        if self._holds is None or self._pulls is None or step.is_empty():
            return
        if step.hold:
            self._putting = self._holds.put(step.hold)
        for request in step.release:
            self._holds.release(request)
            self._released.add(request)
        self._sending.update(step.sending)
        for unwanted in step.unwanted:
            self._pulls.give_back(unwanted)
        for source, holds in step.renew.items() if self._topology.rank == 0 else ():
            self._pulls.renew(source, holds)
        for request in step.cancel:
            self._pulls.cancel(request)

    def start_loads(self, step: StepMetadata) -> None:
        if self._pulls is not None:
            for load in step.load:
                self._pulls.start(load)

    def end_step(self) -> None:
        """The holds stand before the answer leaves the engine. A sidecar that stands still is waited for once."""
        if self._putting is not None:
            is_free = self._last_put is None or self._last_put.done()
            self._putting.wait(_HOLD_SECONDS if is_free else _BUSY_HOLD_SECONDS)
            self._last_put, self._putting = self._putting, None

    def results(self) -> TransferResults:
        if self._holds is None or self._pulls is None:
            return TransferResults()
        self._ended |= self._holds.take_ended()
        sent = self._sent() if self._ended else set()
        received, failed, self._missing = self._pulls.take_ended()
        return TransferResults(finished_sending=sent, finished_recving=received, failed_recving=failed)

    def _sent(self) -> set[str]:
        """Requests whose holds have ended, and that have finished."""
        forgotten = self._ended & self._released
        sent = self._ended & self._sending
        self._ended -= sent | forgotten
        self._released -= forgotten
        self._sending -= sent
        return sent

    def missing(self) -> set[int]:
        """The blocks that are computed again, and all of their requests' behind them, of those that results() has just told."""
        missing, self._missing = self._missing, set()
        return missing

    def close(self) -> None:
        for part in (self._pulls, self._holds, self._introductions, self._session):
            if part is not None:
                part.close()
