"""What the decoder has to know of the prefiller. It travels in `kv_transfer_params`, so that no side channel is needed."""

from __future__ import annotations

import hashlib
import json
from array import array
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Optional

import vllm
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorHandshakeMetadata

from .groups import Group
from .tensor_parallel import total_heads

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.request import Request

PROTOCOL = 3  # of this connector's parameters and messages
KEY = "gantry"  # in kv_transfer_params
_HOLD_ID_BYTES_MAX = 512


@dataclass(frozen=True)
class Handshake:
    """Where one worker's cache is: the workload of a sidecar, and the address at which other sidecars reach that."""

    peer: str
    address: str
    workload: str
    node_id: str = ""  # of the prefiller's node

    def params(self) -> dict[str, str]:
        return asdict(self)


@dataclass(frozen=True)
class WorkerCache(KVConnectorHandshakeMetadata):
    """What the worker tells the scheduler once, when its cache is registered: where it is, and how its blocks are laid out."""

    source: Handshake
    layout: str


Workers = tuple[Handshake, ...]  # of an engine, by their ranks


def compatibility(vllm_config: "VllmConfig", groups: list[Group], model_id: Optional[str] = None) -> dict[str, Any]:
    """The values that both engines must share for a block of one to be a block of the other; the worker adds the layout.

    Weights are not compared: `model_id`, or the model's name with its revision, stands for them.
    """
    model, cache = vllm_config.model_config, vllm_config.cache_config
    return {
        "protocol": PROTOCOL,
        "vllm": vllm.__version__,
        "model": model_id or model.model,
        "revision": None if model_id else model.revision,
        "dtype": str(model.dtype),
        "cache_dtype": str(cache.cache_dtype),
        "block_size": cache.block_size,
        "layers": model.get_total_num_hidden_layers(),
        "kv_heads": total_heads(vllm_config),
        "head_size": model.get_head_size(),
        "groups": [group.factors() for group in groups],
        # Heads are found at any number of ranks, and parts of a state are not.
        **({"tensor_parallel_size": vllm_config.parallel_config.tensor_parallel_size} if any(group.state for group in groups) else {}),
    }


def compatibility_hash(factors: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(factors, sort_keys=True).encode()).hexdigest()[:16]


def differences(mine: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    """One text for each factor that differs, with both values."""
    return [f"{name}: {mine.get(name)!r} here, {theirs.get(name)!r} at the prefiller"
            for name in sorted(set(mine) | set(theirs)) if mine.get(name) != theirs.get(name)]


def prompt_digest(request: "Request", first: Optional[int] = None) -> str:
    """The digest of a prompt's tokens, or of the first so many, and its LoRA adapter.

    Images and embeddings are left out: vLLM's names of images depend on the path of the model, or on a counter.
    """
    tokens = (request.prompt_token_ids or [])[:first]
    lora = request.lora_request.lora_name if request.lora_request is not None else ""
    digest = hashlib.sha256(f"{len(tokens)} {lora!r}".encode())
    digest.update(array("q", tokens).tobytes())
    return digest.hexdigest()[:16]


def hold_id(request_id: str) -> str:
    """The id of the hold on a request's blocks: the request's own, unless that is longer than one of a hold may be."""
    encoded = request_id.encode()
    return request_id if len(encoded) <= _HOLD_ID_BYTES_MAX else "vllm-" + hashlib.sha256(encoded).hexdigest()
