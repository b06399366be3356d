"""This worker's lease at the sidecar of its pod. It comes back by itself when the sidecar was restarted."""

from __future__ import annotations

import logging
import os
from typing import Any, Optional, Union

import gantry
import torch

from .cache import Cache
from .stats import Recorder

log = logging.getLogger("vllm.gantry")

_WILDCARDS = ("0.0.0.0", "[::]")


class Session:
    """A kept client that registers the same tensors again. Every method may be called by every thread."""

    def __init__(self, run_dir: str, workload: str, recorder: Recorder) -> None:
        self.workload = workload
        self._recorder = recorder
        self._cache: Optional[Cache] = None
        self._mapping: Optional[torch.Tensor] = None  # all of the arena that the tensors lie in, in every life
        self._memory = -1
        self._adopted: Optional[Union[gantry.Arena, gantry.MappedArena]] = None  # of this life, unless it is the first
        self._first: list[gantry.Buffer] = []  # of the first life
        self._info: dict[str, Any] = {}  # of the sidecar as it was started last
        self._kept = gantry.KeptClient(run_dir, workload, self._prepare, changed=self._changed)
        info = self._info
        self.peer_name, self.node_id = str(info["name"]), str(info.get("node_id", ""))
        self.peer_address = _reachable(str(info.get("tcp_address", ""))) or str(info.get("peer_address", ""))

    @property
    def client(self) -> Optional[gantry.Client]:
        """None while there is no lease."""
        return self._kept.client

    @property
    def current(self) -> tuple[Optional[gantry.Client], int]:
        """(the client, its life)"""
        return self._kept.current

    def make_arena(self, length: int) -> gantry.Arena:
        arena = self._connected().arena(length, "vllm-kv-cache")
        self._memory = os.dup(arena.fileno())
        self._mapping = torch.frombuffer(arena, dtype=torch.int8)
        return arena

    def register(self, cache: Cache) -> None:
        """Offers the cache to peers. Raises gantry.Error."""
        self._first = self._connected().register_many(cache.specs)
        self._cache = cache

    def close(self) -> None:
        try:
            self._kept.close()
        except gantry.Error as error:
            log.debug("the lease is ended without an answer: %s", error)

    def _connected(self) -> gantry.Client:
        client = self._kept.client
        if client is None:
            raise gantry.Error("sidecar_lost", "the Gantry sidecar went away while the engine started", "start the engine again")
        return client

    def _prepare(self, client: gantry.Client) -> list[gantry.Buffer]:
        """In the first life there is nothing to register yet: vLLM makes the tensors."""
        self._info = _info_of(client, said=str(self._info.get("version", "")))
        if self._cache is None:
            return []
        if self._cache.device.type == "cuda":
            torch.cuda.set_device(self._cache.device)  # of this thread
        if self._mapping is not None:
            self._adopted = client.adopt(self._memory, self._mapping.numel(), address=self._mapping)
        return client.register_many(self._cache.specs)

    def _changed(self, client: Optional[gantry.Client]) -> None:
        if client is None:
            log.warning("the Gantry sidecar is lost. No prompt is offered until it is back. Where one would be read, %s",
                        self._recorder.outcome)
            self._let_go()
            return
        self._recorder.count(num_reconnects=1)
        log.info("the Gantry sidecar is back; the KV cache is registered again")

    def _let_go(self) -> None:
        """Gives the descriptor back that the lost life adopted, now and not when the last view of that life goes."""
        adopted, self._adopted = self._adopted, None
        try:
            if adopted is not None:
                adopted.close(0)
        except gantry.Error as error:
            log.debug("an arena of a lost life: %s", error)


def _info_of(client: gantry.Client, said: str) -> dict[str, Any]:
    """Returns what the sidecar says of itself. Raises gantry.Error for one of a version that this connector does not understand.

    `said` is the version of which a line was logged before.
    """
    try:
        info = client.request("GET", "/v1/info")
    except ValueError:
        info = None
    if not isinstance(info, dict) or not isinstance(info.get("name"), str):
        version = info.get("version") if isinstance(info, dict) else None
        raise gantry.Error("version_mismatch", f"the sidecar, of version {version}, does not say its name where this connector looks for it",
                           "use a connector of the sidecar's version")
    if info.get("version") not in (gantry.library_version(), said):
        log.warning("the sidecar %s has version %s, and the libgantry of this engine %s: use the same version of both",
                    info["name"], info.get("version"), gantry.library_version())
    return info


def _reachable(address: str) -> str:
    """An address at which a sidecar listens, as other pods see it: a sidecar has the addresses of the engine's pod."""
    host, _, port = address.rpartition(":")
    if host not in _WILDCARDS:
        return address
    from vllm.utils.network_utils import get_ip

    own = get_ip()
    return f"[{own}]:{port}" if ":" in own else f"{own}:{port}"
