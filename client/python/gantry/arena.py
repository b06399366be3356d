"""Arenas: shared memory of this process that a sidecar can map."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Optional

from . import native
from .address import address_of
from .errors import Error
from .timeline import ordinal_of

if TYPE_CHECKING:
    from .client import Client

_BLOCK_BYTES = 512  # the unit of st_blocks
_MADV_POPULATE_WRITE = 23  # linux/mman.h, since 5.14
_kept: list[memoryview] = []  # of arenas that a GPU's driver has not let go of: they stay mapped for good


@dataclass(frozen=True)
class DeviceAddress:
    """Where a GPU finds a byte: for its kernels and its driver, and no address of the host, from which it does not follow."""

    number: int


class ArenaHandle:
    """What arenas have in common, whoever mapped them."""

    _handle: int

    def pin(self, device: Any) -> DeviceAddress:
        """Pins it for a GPU of this process (a number, or a torch.device) until unpin() or close(); again is no error.

        That GPU's kernels and streams reach it at the address that is returned; every GPU copies to and from it as pinned
        memory. Raises Error "path_unavailable" where this process uses no GPU, "conflict" when it is pinned already, for
        another GPU or by somebody else, and "fd_read_only".
        """
        address = native.NativeDeviceAddress()
        native.check(native.lib.gantry_arena_pin(self._handle, ordinal_of(device), ctypes.byref(address)))
        return DeviceAddress(address.number)

    def unpin(self) -> None:
        """Ends pin(), when no work of a GPU uses it any more. Doing it twice is no error.

        Raises Error "device_error" when the driver does not let go of it: it is still pinned then.
        """
        native.check(native.lib.gantry_arena_unpin(self._handle))

    def fileno(self) -> int:
        """The descriptor of the memfd, which stays the arena's."""
        return int(native.lib.gantry_arena_fd(self._handle))


class Arena(ArenaHandle, mmap.mmap):
    """An mmap over a sealed memfd that the sidecar holds as well. Client.arena() and Client.adopt() make them.

    It is a bytes-like object: memoryview(arena), numpy.frombuffer(arena, ...), torch.frombuffer(arena, ...) and slices
    all show the same memory. Views keep it alive. Closing it unregisters every buffer in it first; the memory itself
    goes when the last view of it has gone.
    """

    _finalizer: "weakref.finalize[[int, list[bool]], Arena]"
    _pinned: list[bool]
    _client: "Client"

    def __new__(cls, client: "Client", fd: int, length: int) -> "Arena":
        """Maps `length` bytes of `fd`, which stays the caller's, and hands it to the sidecar."""
        arena = super().__new__(cls, fd, length, access=_access_of(fd))
        # Fills the page tables, and takes no pages: those of a sparse file may fit nowhere.
        if os.fstat(fd).st_blocks * _BLOCK_BYTES >= length:
            try:
                arena.madvise(_MADV_POPULATE_WRITE)
            except (OSError, ValueError):
                pass
        handle = ctypes.c_void_p()
        native.check(native.lib.gantry_arena_adopt(client._handle, fd, length, address_of(arena)[0],
                                                   ctypes.byref(handle)))
        arena._handle = native.made(handle)
        arena._client = client
        arena._pinned = []
        arena._finalizer = weakref.finalize(arena, _destroy, arena._handle, arena._pinned)
        return arena

    def __init__(self, client: "Client", fd: int, length: int) -> None:
        pass

    def view(self, offset: int, length: int) -> memoryview:
        """The bytes [offset, offset + length) as a writable memoryview of shape (length,)."""
        offset, length = native.unsigned(offset, "offset"), native.unsigned(length, "length")
        if offset + length > len(self):
            raise Error("out_of_range", f"[{offset}, +{length}) lies outside of an arena of {len(self)} bytes")
        return memoryview(self)[offset:offset + length]

    def close(self, drain: float = 1.0) -> None:
        """Unregisters every buffer in it, waiting up to `drain` seconds for each to fall idle; twice is no error.

        Unpins it: the GPU's work on it must be done, and neither this nor its collection waits for that. Where the driver
        does not let go of it, it is not closed, and stays mapped when it is collected, too.
        """
        try:
            native.check(native.lib.gantry_arena_close(self._handle, native.milliseconds(drain, "drain")))
        finally:
            if is_unpinned(self._handle):
                try:
                    super().close()
                except BufferError:
                    pass  # views are left; the last of them takes the mapping along

    def __del__(self) -> None:
        # Before the memory goes: mmap unmaps it, and only then has finalizers run.
        finalizer = getattr(self, "_finalizer", None)
        if finalizer is not None:
            finalizer()
            if self._pinned:
                _kept.append(memoryview(self))

    def __enter__(self) -> "Arena":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return "<gantry.Arena closed>" if self.closed else f"<gantry.Arena of {len(self)} bytes>"


def is_unpinned(handle: int) -> bool:
    error = native.error_of(native.lib.gantry_arena_unpin(handle))
    return error is None or error.code == "permission_denied"  # a child of fork has a mapping of its own, without pins


def _destroy(handle: int, pinned: list[bool]) -> None:
    """Leaves word in `pinned` where the memory must stay."""
    if not is_unpinned(handle):
        pinned.append(True)
    native.lib.gantry_arena_destroy(handle)


def _access_of(fd: int) -> int:
    try:
        writable = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDWR
    except OSError as error:
        raise Error("invalid_argument", f"descriptor {fd}: {error.strerror}", field="fd") from None
    return mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ


def create(client: "Client", length: int, name: Optional[str] = None) -> Arena:
    fd = ctypes.c_int(-1)
    native.check(native.lib.gantry_memfd_create(native.text("gantry-arena" if name is None else name, "name"),
                                                native.unsigned(length, "length"), ctypes.byref(fd)))
    try:
        return Arena(client, fd.value, os.fstat(fd.value).st_size)
    finally:
        os.close(fd.value)


def length_of(fd: int, length: Optional[int]) -> int:
    """How many bytes of the memfd an arena has; `length` None: all."""
    try:
        size = os.fstat(fd).st_size
    except OSError as error:
        raise Error("invalid_argument", f"descriptor {fd}: {error.strerror}", field="fd") from None
    wanted = size if length is None else native.unsigned(length, "length")
    if wanted > size:
        raise Error("fd_too_short", f"the arena was said to have {wanted} bytes, the memfd has {size}",
                    "ftruncate it before it is sealed", "length")
    if wanted == 0:
        raise Error("invalid_argument", f"an arena has at least one byte; descriptor {fd} has {size}",
                    "" if size else "pass a memfd that was given its size by ftruncate", "length" if size else "fd")
    return wanted


def adopt(client: "Client", fd: int, length: Optional[int]) -> Arena:
    wanted = length_of(fd, length)
    try:
        return Arena(client, fd, wanted)
    except (OSError, ValueError) as error:
        if getattr(error, "errno", None) == errno.ENOMEM:
            raise Error("resource_exhausted", f"there is no memory to map the descriptor: {error}",
                        "of huge pages, reserve as many as it has (vm.nr_hugepages)", "fd") from None
        raise Error("not_exportable", f"the descriptor cannot be mapped: {error}",
                    "pass a memfd, or use Client.arena", "fd") from None
