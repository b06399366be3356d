"""This worker's lease at the sidecar of its pod. It comes back by itself when the sidecar was restarted."""

from __future__ import annotations

import logging
import os
import threading
from typing import Optional, Union

import gantry

from .cache import Layer

log = logging.getLogger("vllm.gantry")

_CHECK_SECONDS = 0.2
_REOPEN_SECONDS_MAX = 5.0


class Session:
    """One thread looks after the lease: it opens a new client, adopts the cache's memory and registers the layers again.

    Every method may be called by every thread. `client` is None while there is no lease.
    """

    def __init__(self, run_dir: str, workload: str) -> None:
        self.workload = workload
        self._run_dir = run_dir
        self._client: Optional[gantry.Client] = gantry.Client(run_dir, workload)
        self.life = 1  # grows with each lease
        info = self._client.request("GET", "/v1/info")
        self.peer_name, self.peer_address = str(info["name"]), str(info.get("peer_address", ""))
        self._layers: list[Layer] = []
        self._memory = -1
        self._cache: Optional[gantry.Arena] = None  # of the first life; vLLM's tensors are in its mapping
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
        self._cache, self._kept = arena, [arena]
        return arena

    def register(self, layers: list[Layer], arena: gantry.Arena) -> None:
        """Offers the layers to peers and begins to look after the lease. Raises gantry.Error."""
        assert self._client is not None
        self._layers = layers
        self._kept += [arena, *_register(self._client, arena, layers)]
        self._keeper.start()

    def close(self) -> None:
        self._stop.set()
        if self._keeper.is_alive():
            self._keeper.join(_CHECK_SECONDS + 2 * _REOPEN_SECONDS_MAX)
        client, self._client = self._client, None
        if client is not None:
            _close(client)

    def _keep(self) -> None:
        pause = _CHECK_SECONDS
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
                    self._forget_life(lost)
                    del lost
                else:
                    pause = min(2 * pause, _REOPEN_SECONDS_MAX)

    def _forget_life(self, client: gantry.Client) -> None:
        """Its descriptors are given back now; a mapped arena that is dropped alone would keep its own."""
        kept, self._kept = self._kept, []
        for each in kept:
            if isinstance(each, gantry.MappedArena):
                try:
                    each.close(0)
                except gantry.Error:
                    pass  # its sidecar is gone
        _close(client)

    def _reopen(self) -> None:
        client = gantry.Client(self._run_dir, self.workload)
        try:
            arena = client.adopt(self._memory, address=self._cache)
            self._kept = [arena, *_register(client, arena, self._layers)]
        except BaseException:
            _close(client)
            raise
        self.life += 1
        self._client = client
        log.info("the Gantry sidecar is back; the KV cache is registered again")


def _register(client: gantry.Client, arena: Union[gantry.Arena, gantry.MappedArena], layers: list[Layer]) -> list[gantry.Buffer]:
    return client.register_many([
        gantry.BufferSpec(f"kv.{i}", arena.view(layer.offset, layer.length), layout=gantry.Layout(layer.block_bytes))
        for i, layer in enumerate(layers)])


def _close(client: gantry.Client) -> None:
    try:
        client.close()
    except gantry.Error:
        pass
