"""The KV cache in memory that sidecars can map: vLLM's one allocation is answered from an arena."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Optional

import torch
from torch.overrides import TorchFunctionMode

if TYPE_CHECKING:
    import gantry


class ArenaAllocation(TorchFunctionMode):
    """While it is entered, the first torch.zeros(n, dtype=int8) on the CPU is memory of an arena of n bytes.

    vLLM allocates the whole cache by one such call and makes the layers as views of it.
    """

    def __init__(self, make_arena: Callable[[int], "gantry.Arena"]) -> None:
        super().__init__()
        self._make_arena = make_arena
        self.arena: Optional["gantry.Arena"] = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.zeros and self.arena is None and _is_cache(args, kwargs):
            self.arena = self._make_arena(args[0])
            return torch.frombuffer(self.arena, dtype=torch.int8, count=args[0])
        return func(*args, **kwargs)


def _is_cache(args: Any, kwargs: Any) -> bool:
    device = torch.device(kwargs.get("device") or "cpu")
    return len(args) == 1 and isinstance(args[0], int) and kwargs.get("dtype") is torch.int8 and device.type == "cpu"


@dataclass(frozen=True)
class Layer:
    """One layer of the cache: `length` bytes at `offset` in the arena, in blocks of `block_bytes`."""

    offset: int
    length: int
    block_bytes: int


def layers_of(kv_caches: dict[str, torch.Tensor], arena: Optional["gantry.Arena"], blocks: int) -> list[Layer]:
    """Where the layers lie, in their order, each place once. Raises ValueError for a cache that cannot be offered to peers yet."""
    if arena is None:
        raise ValueError("the KV cache was not allocated from an arena; GantryConnector supports vLLM's CPU backend alone yet")
    start = torch.frombuffer(arena, dtype=torch.int8).data_ptr()
    found = []
    for name, tensor in kv_caches.items():
        length = tensor.numel() * tensor.element_size()
        offset = tensor.data_ptr() - start
        if not tensor.is_contiguous() or tensor.shape[0] != blocks:
            raise ValueError(f"GantryConnector supports layers whose first axis are the blocks alone yet: layer {name} has "
                             f"shape {tuple(tensor.shape)} and strides {tensor.stride()}, the cache has {blocks} blocks")
        if offset < 0 or offset + length > len(arena):
            raise ValueError(f"layer {name} lies outside of the arena of the cache")
        layer = Layer(offset, length, length // blocks)
        if layer not in found:  # groups of layers lie over each other
            found.append(layer)
    return found
