"""Groups of layers that share one list of blocks: full attention, and sliding windows beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Optional

if TYPE_CHECKING:
    from vllm.v1.kv_cache_interface import KVCacheConfig

NULL_BLOCK = 0  # stands in lists of blocks where a window has none any more

Blocks = tuple[list[int], ...]  # for each group; block i of a list has the tokens from i * block_size on


@dataclass(frozen=True)
class Group:
    """`window`: how many tokens a token sees, itself one of them; 0: all before it."""

    block_size: int
    window: int

    def first_needed(self, tokens: int) -> int:
        """The first block that is needed once so many tokens are there: vLLM computes the last of them again."""
        return max(0, tokens - self.window) // self.block_size if self.window else 0

    def count(self, tokens: int) -> int:
        return -(-tokens // self.block_size)


def groups_of(kv_cache_config: "KVCacheConfig") -> list[Group]:
    """Raises ValueError with one sentence for a cache that the connector would not move rightly."""
    from vllm.v1.kv_cache_interface import FullAttentionSpec, SlidingWindowSpec, UniformTypeKVCacheSpecs

    groups = []
    for group in kv_cache_config.kv_cache_groups:
        spec = group.kv_cache_spec
        each = set(spec.kv_cache_specs.values()) if isinstance(spec, UniformTypeKVCacheSpecs) else {spec}
        windows = {one.sliding_window if isinstance(one, SlidingWindowSpec) else 0 for one in each}
        known = all(isinstance(one, (FullAttentionSpec, SlidingWindowSpec)) for one in each)
        if not known or len(windows) != 1:
            kinds = ", ".join(sorted({type(one).__name__ for one in each}))
            raise ValueError(f"GantryConnector supports full attention and sliding windows yet: the layers of this model are {kinds}")
        groups.append(Group(spec.block_size, windows.pop()))
    return groups


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
