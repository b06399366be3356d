"""LMCache's L1 memory as something that Client.register() takes, and what /proc says of it."""

from __future__ import annotations

import ctypes
import os
from typing import Any, NamedTuple, Optional

_ADOPTED = "/memfd:gantry-private"  # the name that adoption gives its file


class Mapping(NamedTuple):
    """A line of /proc/self/maps. `shared`: its pages are a file's, so that registering replaces none of them."""

    shared: bool
    device: str
    inode: int
    path: str


def view_of(address: int, size: int) -> Any:
    """The tensor that LMCache allocated at this address, else the plain bytes.

    Private memory is adopted by the whole block of malloc, which a tensor knows and an address does not. LMCache keeps the
    tensors of its CPU build in a table of its own. Shared mappings are found by their address alone.
    """
    tensor = _tensor_at(address)
    if tensor is not None and tensor.numel() * tensor.element_size() == size:
        return tensor
    return memoryview((ctypes.c_char * size).from_address(address)).cast("B")


def mapping_at(address: int) -> Optional[Mapping]:
    """None: nothing is mapped there."""
    with open("/proc/self/maps") as lines:
        for line in lines:
            places, access, _, device, inode, *path = line.split(maxsplit=5)
            begin, end = (int(place, 16) for place in places.split("-"))
            if begin <= address < end:
                return Mapping(access[3] == "s", device, int(inode), path[0].strip() if path else "")
    return None


def adopted_file_at(address: int) -> Optional[int]:
    """A new descriptor of the file that adoption put there. None: the memory is not adopted, or no descriptor is left."""
    mapping = mapping_at(address)
    if mapping is None or not mapping.shared or not mapping.path.startswith(_ADOPTED):
        return None
    for name in os.listdir("/proc/self/fd"):
        try:
            if not _stands_for(os.stat(f"/proc/self/fd/{name}"), mapping):
                continue
            copy = os.dup(int(name))
        except OSError:  # closed meanwhile
            continue
        if _stands_for(os.fstat(copy), mapping):  # another thread may have put another file there
            return copy
        os.close(copy)
    return None


def _stands_for(found: os.stat_result, mapping: Mapping) -> bool:
    return found.st_ino == mapping.inode and f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}" == mapping.device


def _tensor_at(address: int) -> Any:
    try:
        from lmcache.v1.platform.torch_ops import mem_alloc

        return mem_alloc._tensor_registry.get(address)
    except (ImportError, AttributeError):  # the table is no interface of LMCache's
        return None
