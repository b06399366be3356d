"""Groups of layers that share one list of blocks: full attention, sliding windows, chunks, and states (Mamba)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Optional

if TYPE_CHECKING:
    from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheSpec, MambaSpec

NULL_BLOCK = 0  # stands in lists of blocks where a window has none any more

Blocks = tuple[list[int], ...]  # for each group; block i of a list has the tokens from i * block_size on


@dataclass(frozen=True)
class Group:
    """
    window  how many tokens a token sees, itself one of them; 0: all before it
    chunk   a token sees those of its own chunk of so many; 0: there are none
    state   what the state of all tokens consists of, which lies in the last of their blocks; "": the layers have keys and values
    """

    block_size: int
    window: int = 0
    chunk: int = 0
    state: str = ""

    def first_needed(self, tokens: int) -> int:
        """The first block that is needed once so many tokens are there.

        vLLM computes the last of them again, unless the group leaves one token to the decoder.
        """
        if self.state:
            return max(0, self.count(tokens) - 1)
        if self.chunk:
            return tokens // self.chunk * self.chunk // self.block_size
        return max(0, tokens - self.window) // self.block_size if self.window else 0

    def count(self, tokens: int) -> int:
        return -(-tokens // self.block_size)

    def factors(self) -> list[Any]:
        """What both engines must share."""
        return [self.block_size, self.window] + ([self.chunk, self.state] if self.chunk or self.state else [])


def left_to_the_decoder(groups: list[Group]) -> int:
    """How many tokens at a prompt's end the prefiller does not compute.

    A state cannot go back by a token, and vLLM frees a chunk with its last one. The decoder samples after that token.
    """
    return 1 if any(group.state or group.chunk for group in groups) else 0


def groups_of(kv_cache_config: "KVCacheConfig") -> list[Group]:
    """Raises ValueError with one sentence for a cache that the connector would not move rightly."""
    return [_group_of(group.kv_cache_spec) for group in kv_cache_config.kv_cache_groups]


def _group_of(spec: "KVCacheSpec") -> Group:
    from vllm.v1.kv_cache_interface import (ChunkedLocalAttentionSpec, FullAttentionSpec, MambaSpec, SlidingWindowSpec,
                                            UniformTypeKVCacheSpecs)

    each = list(spec.kv_cache_specs.values()) if isinstance(spec, UniformTypeKVCacheSpecs) else [spec]
    groups = set()
    for one in each:
        if isinstance(one, FullAttentionSpec):
            groups.add(Group(spec.block_size))
        elif isinstance(one, SlidingWindowSpec):
            groups.add(Group(spec.block_size, window=one.sliding_window))
        elif isinstance(one, ChunkedLocalAttentionSpec):
            groups.add(Group(spec.block_size, chunk=one.attention_chunk_size))
        elif isinstance(one, MambaSpec) and one.num_speculative_blocks == 0:
            groups.add(Group(spec.block_size, state=_state_of(one)))
        else:
            groups.clear()
            break
    if len(groups) != 1:
        kinds = ", ".join(sorted({type(one).__name__ for one in each}))
        raise ValueError("GantryConnector supports full attention, sliding windows, chunks and states (Mamba) without speculative "
                         f"decoding, one kind in each group of layers: the layers of this model are {kinds}")
    return groups.pop()


def _state_of(spec: "MambaSpec") -> str:
    kinds = ", ".join(f"{str(dtype).removeprefix('torch.')} {list(shape)}" for shape, dtype in zip(spec.shapes, spec.dtypes))
    return f"{getattr(spec.mamba_type, 'name', spec.mamba_type)} in mode {spec.mamba_cache_mode}: {kinds}"


def needed(groups: list[Group], blocks: Blocks, tokens: int, computed: int = 0) -> list[int]:
    """The ids of the blocks that a prompt of so many tokens needs, but for those that are `computed` already: group by group.

    Layers of several groups lie over each other, and a block is one group's at a time. So a block of all buffers is moved,
    whichever group it is of.
    """
    return [id for group, ids in zip(groups, blocks)
            for id in ids[max(group.first_needed(tokens), computed // group.block_size):group.count(tokens)]]


def still_there(held: Blocks, now: Blocks) -> Optional[Blocks]:
    """What of a hold's blocks is the request's at its end: a window that moved on has freed its first ones. None: others are."""
    if any(len(mine) > len(theirs) or any(b not in (a, NULL_BLOCK) for a, b in zip(mine, theirs))
           for mine, theirs in zip(held, now)):
        return None
    return tuple(theirs[:len(mine)] for mine, theirs in zip(held, now))
