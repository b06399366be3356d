"""Arenas that the caller has mapped: a memfd stays where it is while sidecars come and go."""

from __future__ import annotations

import ctypes
import operator
import weakref
from typing import TYPE_CHECKING, Any, Optional

from . import native
from .address import layout_of
from .arena import ArenaHandle, is_unpinned, length_of
from .errors import Error

if TYPE_CHECKING:
    from .client import Client


class MappedArena(ArenaHandle):
    """The caller's own mapping of a memfd, in which buffers are found. Client.adopt(fd, address=) makes it.

    The mapping stays the caller's: it is to be there until close(), or until the client is closed. Dropping this object
    ends nothing, as tensors over the mapping do not keep it.
    """

    def __init__(self, client: "Client", fd: int, length: int, address: int, shown: Any) -> None:
        handle = ctypes.c_void_p()
        native.check(native.lib.gantry_arena_adopt(client._handle, fd, length, address, ctypes.byref(handle)))
        self._client = client
        self._handle = native.made(handle)
        self._shown = shown  # the object that the mapping was given by
        self._length = length
        self.address = address
        self.closed = False
        self._finalizer = weakref.finalize(client, native.lib.gantry_arena_destroy, self._handle)
        self._finalizer.atexit = False

    def __len__(self) -> int:
        """Bytes."""
        return self._length

    def view(self, offset: int, length: int) -> memoryview:
        """The bytes [offset, offset + length) of the caller's mapping as a memoryview, which does not keep it mapped."""
        offset, length = native.unsigned(offset, "offset"), native.unsigned(length, "length")
        if offset + length > len(self):
            raise Error("out_of_range", f"[{offset}, +{length}) lies outside of an arena of {len(self)} bytes")
        return memoryview((ctypes.c_char * length).from_address(self.address + offset)).cast("B")

    def close(self, drain: float = 1.0) -> None:
        """Unregisters every buffer in it, as Arena.close() does. Afterwards the caller may unmap it; twice is no error."""
        try:
            native.check(native.lib.gantry_arena_close(self._handle, native.milliseconds(drain, "drain")))
        finally:
            if is_unpinned(self._handle):
                self.closed = True
                self._shown = None

    def __del__(self) -> None:
        if getattr(self, "closed", False):
            self._finalizer()

    def __enter__(self) -> "MappedArena":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<gantry.MappedArena of {len(self)} bytes at {self.address:#x}{', closed' if self.closed else ''}>"


def adopt(client: "Client", fd: int, length: Optional[int], address: Any) -> MappedArena:
    wanted = length_of(fd, length)
    try:
        at, room = operator.index(address), wanted
    except TypeError:
        place = layout_of(address)
        at, room = place.address, place.length
    if room < wanted:
        raise Error("invalid_argument", f"the mapping has {room} bytes, and the arena {wanted}",
                    "map all of the memfd, or pass the length that is mapped", "address")
    if not 0 < at < 2**64:
        raise Error("invalid_argument", f"{at} is no address", "pass where byte 0 of the memfd is mapped", "address")
    return MappedArena(client, fd, wanted, at, address)
