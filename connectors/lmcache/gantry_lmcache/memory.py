"""LMCache's L1 memory as something that Client.register() takes."""

from __future__ import annotations

import ctypes
from typing import Any


def view_of(address: int, size: int) -> Any:
    """The tensor that LMCache allocated at this address, else the plain bytes.

    Private memory is adopted by the whole block of malloc, which a tensor knows and an address does not. LMCache keeps the
    tensors of its CPU build in a table of its own. Shared mappings are found by their address alone.
    """
    tensor = _tensor_at(address)
    if tensor is not None and tensor.numel() * tensor.element_size() == size:
        return tensor
    return memoryview((ctypes.c_char * size).from_address(address)).cast("B")


def _tensor_at(address: int) -> Any:
    try:
        from lmcache.v1.platform.torch_ops import mem_alloc

        return mem_alloc._tensor_registry.get(address)
    except (ImportError, AttributeError):  # the table is no interface of LMCache's
        return None
