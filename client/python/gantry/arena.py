"""Arenas: shared memory of this process that a sidecar can map."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import weakref
from typing import TYPE_CHECKING, Any, Optional

from . import native
from .address import address_of
from .errors import Error

if TYPE_CHECKING:
    from .client import Client

_MADV_POPULATE_WRITE = 23  # linux/mman.h, since 5.14


class Arena(mmap.mmap):
    """An mmap over a sealed memfd that the sidecar holds as well. Client.arena() and Client.adopt() make them.

    It is a bytes-like object: memoryview(arena), numpy.frombuffer(arena, ...), torch.frombuffer(arena, ...) and slices
    all show the same memory. Views keep it alive. Closing it unregisters every buffer in it first; the memory itself
    goes when the last view of it has gone.
    """

    _finalizer: weakref.finalize
    _handle: int
    _client: "Client"

    def __new__(cls, client: "Client", fd: int, length: int) -> "Arena":
        """Maps `length` bytes of `fd`, which stays the caller's, and hands it to the sidecar."""
        arena = super().__new__(cls, fd, length, access=_access_of(fd))
        try:
            arena.madvise(_MADV_POPULATE_WRITE)  # fills the page tables; the pages are there already
        except (OSError, ValueError):
            pass
        handle = ctypes.c_void_p()
        native.check(native.lib.gantry_arena_adopt(client._handle, fd, length, address_of(arena)[0],
                                                   ctypes.byref(handle)))
        arena._handle = handle.value
        arena._client = client
        arena._finalizer = weakref.finalize(arena, native.lib.gantry_arena_destroy, handle.value)
        return arena

    def __init__(self, client: "Client", fd: int, length: int) -> None:
        pass

    def view(self, offset: int, length: int) -> memoryview:
        """The bytes [offset, offset + length) as a writable memoryview of shape (length,)."""
        offset, length = native.unsigned(offset, "offset"), native.unsigned(length, "length")
        if offset + length > len(self):
            raise Error("out_of_range", f"[{offset}, +{length}) lies outside of an arena of {len(self)} bytes")
        return memoryview(self)[offset:offset + length]

    def fileno(self) -> int:
        """The descriptor of the memfd, which stays the arena's."""
        return native.lib.gantry_arena_fd(self._handle)

    def close(self, drain: float = 1.0) -> None:
        """Unregisters every buffer in it, waiting up to `drain` seconds for each to fall idle; twice is no error."""
        try:
            native.check(native.lib.gantry_arena_close(self._handle, native.milliseconds(drain, "drain")))
        finally:
            try:
                super().close()
            except BufferError:
                pass  # views are left; the last of them takes the mapping along

    def __enter__(self) -> "Arena":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return "<gantry.Arena closed>" if self.closed else f"<gantry.Arena of {len(self)} bytes>"


def _access_of(fd: int) -> int:
    try:
        writable = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDWR
    except OSError as error:
        raise Error("invalid_argument", f"the descriptor: {error.strerror}", field="fd") from None
    return mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ


def create(client: "Client", length: int, name: Optional[str] = None) -> Arena:
    fd = ctypes.c_int(-1)
    native.check(native.lib.gantry_memfd_create(native.text(name or "gantry-arena", "name"),
                                                native.unsigned(length, "length"), ctypes.byref(fd)))
    try:
        return Arena(client, fd.value, os.fstat(fd.value).st_size)
    finally:
        os.close(fd.value)


def adopt(client: "Client", fd: int, length: Optional[int]) -> Arena:
    try:
        size = os.fstat(fd).st_size
    except OSError as error:
        raise Error("invalid_argument", f"the descriptor: {error.strerror}", field="fd") from None
    wanted = size if length is None else native.unsigned(length, "length")
    if wanted > size:
        raise Error("fd_too_short", f"the arena was said to have {wanted} bytes, the memfd has {size}",
                    "ftruncate it before it is sealed", "length")
    if wanted == 0:
        raise Error("invalid_argument", "an arena has at least one byte", field="length")
    try:
        return Arena(client, fd, wanted)
    except (OSError, ValueError) as error:
        raise Error("not_exportable", f"the descriptor cannot be mapped: {error}",
                    "pass a memfd, or use Client.arena", "fd") from None
