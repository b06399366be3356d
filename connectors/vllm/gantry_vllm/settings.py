"""The settings of the connector, and what it refuses at the start because it is not supported yet."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Optional

import gantry
from vllm.platforms import current_platform

from .groups import groups_of, left_to_the_decoder
from .places import check_places
from .vllm_versions import TAKES_FAILED_REQUESTS

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.kv_cache_interface import KVCacheConfig

_SECONDS_MAX = 3600  # of a hold
_EXECUTORS = ("self", "peer")


@dataclass(frozen=True)
class Settings:
    """`kv_connector_extra_config` of vLLM's --kv-transfer-config. Times are seconds.

    run_dir        the run directory of the pod's sidecar; otherwise $GANTRY_RUN_DIR, or /run/gantry
    peer_address   where other sidecars reach this one, "unix:PATH" or "HOST:PORT"; None: as the sidecar says
    peer_addresses networks and hosts at which prefillers may be, for example ["10.0.0.0/8", ".svc.cluster.local"]; None: private
                   addresses, and no name. Requests say addresses, and a sidecar shows its token where it calls
    model_id       stands for the model's name where the engines compare it: one model may have two paths
    require_path   the only paths that reads may take, for example ["ipc", "shm"]; None: any
    hold_ttl       the prompt's blocks are kept so long without a heartbeat of the decoder
    read_deadline  a read that has not ended by then fails, and the prompt is computed by the decoder
    executor       "self": this sidecar moves the bytes of reads; "peer": the prefiller's does, which may then write into this cache
    cross_layers   a block of all layers is one piece of memory, where vLLM and its backends can have that
    """

    run_dir: str = ""
    peer_address: Optional[str] = None
    peer_addresses: Optional[list[str]] = None
    model_id: Optional[str] = None
    require_path: Optional[list[str]] = None
    hold_ttl: float = 30.0
    read_deadline: float = 20.0
    executor: str = "self"
    cross_layers: bool = False

    @staticmethod
    def of(extra: dict[str, Any]) -> "Settings":
        known = {field.name for field in fields(Settings)}
        unknown = sorted(set(extra) - known)
        if unknown:
            raise ValueError(f"kv_connector_extra_config has {', '.join(unknown)}; GantryConnector knows "
                             f"{', '.join(sorted(known))}")
        values = dict(extra)
        values["run_dir"] = values.get("run_dir") or os.environ.get("GANTRY_RUN_DIR", "/run/gantry")
        settings = Settings(**values)
        settings._check()
        return settings

    def _check(self) -> None:
        for name in ("run_dir", "peer_address", "model_id"):
            text = getattr(self, name)
            if not isinstance(text, str) and (text is not None or name == "run_dir"):
                raise ValueError(f"{name} of kv_connector_extra_config is no text: {text!r}")
        if self.peer_address is not None and not re.fullmatch(r"unix:/.+|.+:\d{1,5}", self.peer_address):
            raise ValueError(f"peer_address of kv_connector_extra_config is neither unix:/PATH nor HOST:PORT: {self.peer_address!r}")
        for name in ("hold_ttl", "read_deadline"):
            seconds = getattr(self, name)
            if type(seconds) not in (int, float) or not 0 < seconds <= _SECONDS_MAX:
                raise ValueError(f"{name} of kv_connector_extra_config is not between 0 and {_SECONDS_MAX} seconds: {seconds!r}")
        if not isinstance(self.cross_layers, bool):
            raise ValueError(f"cross_layers of kv_connector_extra_config is neither true nor false: {self.cross_layers!r}")
        if self.executor not in _EXECUTORS:
            raise ValueError(f"executor of kv_connector_extra_config is neither {' nor '.join(_EXECUTORS)}: {self.executor!r}")
        check_places(self.peer_addresses)
        paths = self.require_path
        if paths is not None and (not isinstance(paths, list) or not paths or not set(map(str, paths)) <= set(gantry.PATHS)):
            raise ValueError(f"require_path of kv_connector_extra_config is no list of {', '.join(gantry.PATHS)}: {paths!r}")


def refuse_unsupported(vllm_config: "VllmConfig", kv_cache_config: "KVCacheConfig") -> None:
    """Raises ValueError with one sentence for a configuration that the connector would not serve rightly."""
    parallel = vllm_config.parallel_config
    for name, size in (("pipeline", parallel.pipeline_parallel_size),
                       ("decode context", parallel.decode_context_parallel_size)):
        if size != 1:
            raise ValueError(f"GantryConnector does not support {name} parallelism yet: its size is {size}")
    buffers, device = vllm_config.kv_transfer_config.kv_buffer_device, current_platform.device_type
    if buffers != device:
        raise ValueError(f"GantryConnector has no buffers of its own: kv_buffer_device is {buffers!r}, and the KV cache is on "
                         f"{device!r}. Leave kv_buffer_device out")
    groups = groups_of(kv_cache_config)
    if (len(groups) > 1 or left_to_the_decoder(groups)) and not TAKES_FAILED_REQUESTS:
        raise ValueError("GantryConnector supports hybrid models from vLLM 0.32 on: an older one ends when a read of theirs fails. "
                         "Start it with --disable-hybrid-kv-cache-manager")
    if getattr(vllm_config.cache_config, "use_replayssm", False):
        raise ValueError("GantryConnector does not support ReplaySSM yet: a part of its state is not in the KV cache")
    if vllm_config.speculative_config is not None:
        raise ValueError("GantryConnector does not support speculative decoding yet")
