"""Which rank of a prefiller has which heads of this rank's cache, and where they lie in a block."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Optional

import gantry

if TYPE_CHECKING:
    import torch
    from vllm.config import VllmConfig

# Readers of one rank that can share a hold: each counts its part, and any number up to 16 divides this one.
CONSUMERS = 720_720


@dataclass(frozen=True)
class BlockShape:
    """A block of one buffer as `outer` runs of `heads` heads of `head_bytes` each.

    outer is 1 where a block begins with its heads ([heads, tokens, size]), and the number of tokens where these come first
    ([tokens, heads, size]).
    """

    outer: int
    heads: int
    head_bytes: int

    @property
    def bytes(self) -> int:
        return self.outer * self.heads * self.head_bytes


def block_shape(tensor: "torch.Tensor") -> BlockShape:
    """Of one layer, [blocks, heads, tokens, size] in any order of the memory; another block is moved whole, as one head."""
    if tensor.dim() != 4:
        return BlockShape(1, 1, math.prod(tensor.shape[1:]) * tensor.element_size())
    heads, strides = tensor.shape[1], tensor.stride()
    outer = math.prod(count for count, stride in zip(tensor.shape[2:], strides[2:]) if stride > strides[1])
    inside = math.prod(tensor.shape[2:]) // outer
    return BlockShape(outer, heads, inside * tensor.element_size())


@dataclass(frozen=True)
class Share:
    """`count` heads that a rank of the prefiller has: there from remote_first on, here from local_first on."""

    rank: int
    local_first: int
    remote_first: int
    count: int


@dataclass(frozen=True)
class Topology:
    """This rank of an engine. `total_heads` is the model's; a model whose cache is one for all ranks (MLA) has 1."""

    rank: int
    size: int
    total_heads: int

    def heads(self) -> range:
        """Those of the model that this rank has."""
        return _heads_of(self.rank, self.size, self.total_heads)

    def shares(self, remote_size: int) -> list[Share]:
        """What this rank reads, and from whom: each of its heads once. Ranks with the same head take turns among readers."""
        mine = self.heads()
        found: list[Share] = []
        for head in mine:
            rank = _rank_with(head, remote_size, self.total_heads, self.rank)
            first = _heads_of(rank, remote_size, self.total_heads).start
            if found and found[-1].rank == rank:
                found[-1] = Share(rank, found[-1].local_first, found[-1].remote_first, found[-1].count + 1)
            else:
                found.append(Share(rank, head - mine.start, head - first, 1))
        return found

    def readers(self, remote_rank: int, remote_size: int) -> int:
        """How many ranks of this engine read from a rank of the prefiller."""
        return sum(any(share.rank == remote_rank for share in Topology(rank, self.size, self.total_heads).shares(remote_size))
                   for rank in range(self.size))

    def unread(self, remote_size: int) -> list[int]:
        """Ranks of the prefiller that no rank of this engine reads from, and whose blocks this one gives back."""
        return [rank for rank in self.gives_back(remote_size) if self.readers(rank, remote_size) == 0]

    def gives_back(self, remote_size: int) -> range:
        """Ranks of the prefiller that this one tells when nobody of this engine reads from them."""
        return range(self.rank, remote_size, self.size)


def topology_of(vllm_config: "VllmConfig") -> Topology:
    """In a worker."""
    from vllm.distributed import get_tensor_model_parallel_rank

    size = vllm_config.parallel_config.tensor_parallel_size
    return Topology(get_tensor_model_parallel_rank() if size > 1 else 0, size, total_heads(vllm_config))


def total_heads(vllm_config: "VllmConfig") -> int:
    """Of keys and values; ranks of a model with multi-head latent attention (MLA) all have the same cache."""
    model = vllm_config.model_config
    return 1 if model.use_mla else max(1, model.get_total_num_kv_heads())  # models of states alone have 0


def slices_of(share: Share, local: BlockShape, remote: BlockShape) -> Optional[list[gantry.Slice]]:
    """The bytes of a block that a share moves. None: whole blocks."""
    if share.count == local.heads == remote.heads:
        return None
    run = share.count * local.head_bytes
    return [gantry.Slice(((i * local.heads + share.local_first) * local.head_bytes, run),
                         ((i * remote.heads + share.remote_first) * local.head_bytes, run)) for i in range(local.outer)]


def why_not(size: int, total_heads: int) -> Optional[str]:
    """Why heads cannot be divided among so many ranks, as vLLM divides them."""
    if total_heads % size == 0 or size % total_heads == 0:
        return None
    return f"{total_heads} heads of keys and values are not divided among {size} ranks"


def _heads_of(rank: int, size: int, total: int) -> range:
    each = max(1, total // size)
    first = rank * total // size
    return range(first, first + each)


def _rank_with(head: int, size: int, total: int, reader: int) -> int:
    """The rank that has a head; where several have it, another one for the next reader."""
    if size <= total:
        return head // (total // size)
    copies = size // total
    return head * copies + reader % copies
