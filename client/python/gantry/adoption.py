"""Private memory (numpy arrays, tensors of the CPU, bytearrays) that becomes an arena where it is."""

from __future__ import annotations

import ctypes
import mmap
import weakref
from typing import TYPE_CHECKING, Any, Iterator, NamedTuple, Optional

from . import native
from .address import Place, layout_of
from .errors import Error

if TYPE_CHECKING:
    from .client import Client


class Adoption:
    """A hold on adopted memory. Without holds the sidecar lets go of it; the pages stay where they are."""

    def __init__(self, view: Any, handle: int) -> None:
        self._finalizer = weakref.finalize(self, native.lib.gantry_arena_destroy, handle)
        self._export = _export_of(view)

    def release(self) -> None:
        """Twice is no error."""
        self._finalizer()
        self._export = None


def _export_of(view: Any) -> Optional[memoryview]:
    """While it is there, a bytearray, array or mmap is neither resized nor closed. None: a tensor, which has no such state."""
    try:
        return memoryview(view)
    except (TypeError, ValueError, BufferError):
        return None


class Block(NamedTuple):
    """Memory that can be adopted."""

    address: int
    length: int
    flags: int


_OWN_MAPPING = 1  # GANTRY_OWN_MAPPING


def _block_around(view: Any) -> tuple[Optional[Block], int]:
    """The array, storage or object that the view is a part of (None: it is not known), and the flags of its parts."""
    if callable(getattr(view, "untyped_storage", None)):  # torch
        storage = view.untyped_storage()
        return Block(storage.data_ptr(), storage.nbytes(), 0), 0
    root = view
    while (parent := root.obj if isinstance(root, memoryview) else getattr(root, "base", None)) is not None:
        root = parent
    flags = _OWN_MAPPING if isinstance(root, mmap.mmap) else 0
    try:
        return Block(*layout_of(root)[:2], flags), flags
    except Error:
        return None, flags


def _candidates(view: Any) -> Iterator[Block]:
    """Blocks that can be adopted for a view, the whole one first: other views of it are in the same arena then."""
    place: Place = layout_of(view)
    around, flags = _block_around(view)
    if around is not None and around[0] <= place.address and place.address + place.length <= around[0] + around[1]:
        yield around
    if around is None or around[:2] != place[:2]:
        yield Block(*place[:2], flags)


def adopt(client: "Client", view: Any) -> Optional[Adoption]:
    """None: the memory needs no adoption, since it is in an arena or on a GPU."""
    first: Optional[Error] = None
    for block in _candidates(view):
        handle = ctypes.c_void_p()
        error = native.error_of(native.lib.gantry_arena_adopt_private(client._handle, *block, ctypes.byref(handle)))
        if error is None:
            if not handle.value:
                return None
            adoption = Adoption(view, handle.value)
            client._adoptions.add(adoption)
            return adoption
        first = first or error
    assert first is not None
    try:
        raise first
    finally:
        del first, error
