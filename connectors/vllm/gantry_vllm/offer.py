"""The blocks of a prefiller, as a decoder's request names them.

A router passes on what the prefiller wrote. Values of another kind, of another engine or of another prompt are refused. The
writer of the parameters decides which of the held blocks are read, and in which order. That cannot be checked here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .groups import NULL_BLOCK, Blocks, Group, needed
from .handshake import KEY, Handshake, Workers, differences
from .places import Places
from .tensor_parallel import why_not

_TEXT_MAX = 512  # of each name and address
_BLOCK_MAX = 2**63 - 1
_WORKERS_MAX = 64
_HOLD_SECONDS = 30.0  # of a hold of which the parameters say nothing
_HOLD_SECONDS_MAX = 3600.0  # as sidecars have it


@dataclass(frozen=True)
class Offer:
    """A prompt's blocks at a prefiller."""

    remote_request_id: str
    sources: Workers
    blocks: Blocks


def sources_of(params: dict[str, Any], places: Places) -> tuple[str, Workers]:
    """(the prefiller's request, where it is). Raises ValueError, with what is wrong, for anything else."""
    theirs = params.get(KEY)
    if not isinstance(theirs, dict):
        raise ValueError(f"kv_transfer_params have no object {KEY!r}: they are not GantryConnector's")
    request = _text(params, "remote_request_id")
    workers = theirs.get("workers")
    if not isinstance(workers, list) or not 0 < len(workers) <= _WORKERS_MAX or not all(isinstance(each, dict) for each in workers):
        raise ValueError(f"{KEY}.workers is no list of 1 to {_WORKERS_MAX} objects")
    sources = tuple(map(handshake_of, workers))
    for source in sources:
        if why := places.why_not(source.address):
            raise ValueError(f"the prefiller {source.peer} is said to be at {source.address}: {why}. List its network or name in "
                             "peer_addresses of kv_connector_extra_config")
    return request, sources


def handshake_of(said: dict[str, Any]) -> Handshake:
    """Raises ValueError, with what is wrong, for what is none."""
    node = _text(said, "node_id") if said.get("node_id") else ""
    return Handshake(_text(said, "peer"), _text(said, "address"), _text(said, "workload"), node)


def hold_seconds(params: dict[str, Any]) -> float:
    """How long the prefiller keeps the blocks unless it is told to keep them longer."""
    theirs = params.get(KEY)
    seconds = theirs.get("hold_ttl") if isinstance(theirs, dict) else None
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds <= _HOLD_SECONDS_MAX:
        return _HOLD_SECONDS
    return float(seconds)


def offer_of(params: dict[str, Any], places: Places, factors: dict[str, Any], groups: list[Group], prompt: str, tokens: int,
             computed: int) -> Offer:
    """The offer of a prompt's blocks, at least those that are not computed here. `prompt` is its digest.

    Raises ValueError, with what is wrong, where they cannot be used here.
    """
    request, sources = sources_of(params, places)
    theirs = params[KEY].get("compatibility")
    if not isinstance(theirs, dict):
        raise ValueError(f"{KEY}.compatibility is no object")
    if why := differences(factors, theirs):
        raise ValueError("; ".join(why))
    if params[KEY].get("prompt") != prompt:
        raise ValueError("they are of another prompt: its tokens or its LoRA adapter differ")
    size = params.get("tp_size", len(sources))
    if type(size) is not int or size != len(sources):
        raise ValueError(f"tp_size is {size!r}, and {KEY}.workers lists {len(sources)}")
    if undivided := why_not(len(sources), factors["kv_heads"]):
        raise ValueError(undivided)
    lists = params.get("remote_block_ids")
    if not isinstance(lists, list) or len(lists) != len(groups) or not all(isinstance(each, list) for each in lists):
        raise ValueError(f"remote_block_ids is not a list of {len(groups)} lists of blocks, one for each group of layers")
    if any(type(block) is not int or not 0 <= block <= _BLOCK_MAX for each in lists for block in each):
        raise ValueError("remote_block_ids has what is no block id")
    for group, each in zip(groups, lists):
        if len(each) < group.count(tokens):
            raise ValueError(f"the prompt has {group.count(tokens)} blocks, and the prefiller offers {len(each)}")
    blocks = tuple(lists)
    if NULL_BLOCK in needed(groups, blocks, tokens, computed):
        raise ValueError("a window or a state of the prefiller has moved past a block that is needed here")
    return Offer(request, sources, blocks)


def _text(params: dict[str, Any], name: str) -> str:
    text = params.get(name)
    if not isinstance(text, str) or not 0 < len(text) <= _TEXT_MAX or not text.isprintable():
        raise ValueError(f"{name} is no text of 1 to {_TEXT_MAX} printable characters")
    return text

