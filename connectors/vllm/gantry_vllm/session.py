"""This worker's lease at the sidecar of its pod. It comes back by itself when the sidecar was restarted."""

from __future__ import annotations

import logging
import os
import threading
from typing import Optional

import gantry
import torch

from .cache import Cache

log = logging.getLogger("vllm.gantry")

_CHECK_SECONDS = 0.2
_REOPEN_SECONDS_MAX = 5.0


class Session:
    """One thread looks after the lease: it opens a new client and registers the same tensors again.

    Every method may be called by every thread. `client` is None while there is no lease.
    """

    def __init__(self, run_dir: str, workload: str) -> None:
        self.workload = workload
        self._run_dir = run_dir
        self._client: Optional[gantry.Client] = gantry.Client(run_dir, workload)
        self.life = 1  # grows with each lease
        info = self._client.request("GET", "/v1/info")
        self.peer_name, self.peer_address = str(info["name"]), str(info.get("peer_address", ""))
        self._cache: Optional[Cache] = None
        self._mapping: Optional[torch.Tensor] = None  # all of the arena that the tensors lie in, in every life
        self._memory = -1
        self._kept: list[object] = []  # arena and buffers of this life
        self._stop = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name="gantry-session", daemon=True)

    @property
    def client(self) -> Optional[gantry.Client]:
        return self._client

    def make_arena(self, length: int) -> gantry.Arena:
        assert self._client is not None
        arena = self._client.arena(length, "vllm-kv-cache")
        self._memory = os.dup(arena.fileno())
        self._mapping = torch.frombuffer(arena, dtype=torch.int8)
        return arena

    def register(self, cache: Cache) -> None:
        """Offers the cache to peers and begins to look after the lease. Raises gantry.Error."""
        assert self._client is not None
        self._cache = cache
        self._kept = list(self._client.register_many(cache.specs))
        self._keeper.start()

    def close(self) -> None:
        self._stop.set()
        if self._keeper.is_alive():
            self._keeper.join(_CHECK_SECONDS + 2 * _REOPEN_SECONDS_MAX)
        client, self._client = self._client, None
        if client is not None:
            _close(client)

    def _keep(self) -> None:
        pause, why = _CHECK_SECONDS, ""
        assert self._cache is not None
        if self._cache.device.type == "cuda":
            torch.cuda.set_device(self._cache.device)  # of this thread, which registers the tensors again
        while not self._stop.wait(pause):
            try:
                if self._client is None:
                    self._reopen()
                else:
                    self._client.check()
                pause = _CHECK_SECONDS
            except Exception as error:  # noqa: BLE001 - the thread must outlive whatever happens to the sidecar
                if self._client is not None:
                    log.warning("the Gantry sidecar is lost, prompts are computed here until it is back: %s", error)
                    lost, self._client = self._client, None
                    _close(lost)
                else:
                    pause = min(2 * pause, _REOPEN_SECONDS_MAX)
                    if str(error) != why:
                        why = str(error)
                        log.info("the Gantry sidecar is not back yet: %s", why)

    def _reopen(self) -> None:
        client = gantry.Client(self._run_dir, self.workload)
        kept: list[object] = []
        try:
            assert self._cache is not None
            if self._mapping is not None:
                kept.append(client.adopt(self._memory, self._mapping.numel(), address=self._mapping))
            kept += client.register_many(self._cache.specs)
        except BaseException:
            _close(client)
            raise
        self._kept = kept
        self.life += 1
        self._client = client
        log.info("the Gantry sidecar is back; the KV cache is registered again")


def _close(client: gantry.Client) -> None:
    try:
        client.close()
    except gantry.Error:
        pass
