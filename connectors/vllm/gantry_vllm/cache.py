"""The KV cache as tensors that sidecars can map: on a GPU as vLLM allocated it, on the CPU in an arena."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Optional

import gantry
import torch
from torch.overrides import TorchFunctionMode

if TYPE_CHECKING:
    from collections.abc import Mapping


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
class Cache:
    """
    specs   one buffer for each tensor: a layer, or all layers together. The tensors stay where they are
    device  that of all tensors
    layout  how the elements of a block are ordered. A block has as many bytes in every order, so peers compare this text
    """

    specs: list[gantry.BufferSpec]
    device: torch.device
    layout: str


def cache_of(tensors: "Mapping[str, torch.Tensor]", blocks: int, writable: bool = False) -> Cache:
    """The buffers "kv.0", "kv.1", ... in the order of the tensors, each place once. Raises ValueError for a cache that cannot be offered.

    writable  peers may write into them too
    """
    access = ("remote_read", "remote_write") if writable else ("remote_read",)
    devices: set[torch.device] = set()
    layouts: Counter[str] = Counter()
    places: dict[int, tuple[torch.Tensor, gantry.Layout]] = {}
    for name, tensor in tensors.items():
        layout = _blocks_of(name, tensor, blocks)
        # Groups of layers lie over each other, and the blocks of a state may be smaller than those of keys and values.
        place = places.get(tensor.data_ptr())
        if place is None or place[1].block_bytes < layout.block_bytes:
            places[tensor.data_ptr()] = tensor, layout
        devices.add(tensor.device)
        layouts[_order_of(tensor)] += 1
    ends = 0
    for address in sorted(places):
        if address < ends:
            raise ValueError("GantryConnector supports layers that lie over each other where their blocks begin at the same places")
        ends = address + places[address][1].block_bytes
    specs = [gantry.BufferSpec(f"kv.{i}", tensor, access, layout) for i, (tensor, layout) in enumerate(places.values())]
    if len(devices) != 1:
        raise ValueError(f"GantryConnector supports KV caches on one device; this one is on {len(devices)}")
    return Cache(specs, devices.pop(), ", ".join(f"{count} of {layout}" for layout, count in layouts.items()))


def joined(tensors: "Mapping[str, torch.Tensor]") -> "Mapping[str, torch.Tensor]":
    """One tensor, [blocks, layers, ...], where a block of the cache has all layers one behind the other. Otherwise the same tensors."""
    if not tensors:
        return tensors
    layers = sorted(tensors.values(), key=torch.Tensor.data_ptr)
    first, elements = layers[0], math.prod(layers[0].shape[1:])
    alike = len({(layer.shape, layer.stride(), layer.dtype, layer.untyped_storage().data_ptr()) for layer in layers}) == 1
    steps = {after.data_ptr() - before.data_ptr() for before, after in zip(layers, layers[1:])}
    if not alike or steps != {elements * first.element_size()} or first.stride(0) != len(layers) * elements:
        return tensors
    return {"of all layers": first.as_strided((first.shape[0], len(layers), *first.shape[1:]),
                                              (first.stride(0), elements, *first.stride()[1:]))}


def _order_of(tensor: torch.Tensor) -> str:
    """The axes of a block of one layer, outermost first. How many heads there are is the rank's, and not said."""
    kind = str(tensor.dtype).removeprefix("torch.")
    if tensor.dim() != 4:
        return f"{kind} {list(tensor.shape[1:])} at {list(tensor.stride()[1:])}"
    axes = sorted(range(1, 4), key=tensor.stride().__getitem__, reverse=True)
    return f"{kind} [{', '.join('heads' if axis == 1 else str(tensor.shape[axis]) for axis in axes)}]"


def _blocks_of(name: str, tensor: torch.Tensor, blocks: int) -> gantry.Layout:
    """The blocks of a tensor whose first axis counts them, or counts equal parts of them that lie side by side."""
    try:
        place = gantry.layout_of(tensor)
    except gantry.Error as why:
        raise ValueError(f"layer {name} of the KV cache cannot be registered: {why}") from None
    layout, rows = place.layout, tensor.shape[0]
    if layout is not None and rows == blocks:
        return layout
    if layout is not None and place.dense and rows % blocks == 0 and layout.block_stride == layout.block_bytes:
        return gantry.Layout(place.length // blocks)
    raise ValueError(f"GantryConnector supports layers whose first axis are the blocks alone yet: layer {name} has shape "
                     f"{tuple(tensor.shape)} and strides {tensor.stride()}, the cache has {blocks} blocks")
