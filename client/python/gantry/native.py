"""libgantry.so through ctypes: finds it, declares its functions, turns its errors and Python's values over.

The only module that knows the C interface (client/include/) and reads the environment.
"""

from __future__ import annotations

import ctypes
import math
import operator
import os
from pathlib import Path
from typing import Any, Optional

from .errors import Error, error_with

FOREVER = 2**64 - 1
# Waits are cut into slices, so that Ctrl-C and other signals are handled in between.
WAIT_SLICE_MS = 250
_SECONDS_END = 1e15


class Piece(ctypes.Structure):
    _fields_ = [("address", ctypes.c_void_p), ("bytes", ctypes.c_uint64)]


class ClientOptions(ctypes.Structure):
    _fields_ = [("engine_id", ctypes.c_char_p), ("handoff_socket", ctypes.c_char_p), ("timeout_ms", ctypes.c_uint64)]


class Extent(ctypes.Structure):
    _fields_ = [("arena_data", ctypes.c_void_p), ("offset", ctypes.c_uint64), ("bytes", ctypes.c_uint64)]


class NativeBufferSpec(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("pieces", ctypes.POINTER(Piece)), ("piece_count", ctypes.c_size_t),
                ("access", ctypes.c_uint32), ("block_bytes", ctypes.c_uint64), ("block_stride", ctypes.c_uint64),
                ("blocks", ctypes.c_uint64)]


class NativeRange(ctypes.Structure):
    _fields_ = [("local_index", ctypes.c_uint32), ("remote_index", ctypes.c_uint32), ("local_offset", ctypes.c_uint64),
                ("remote_offset", ctypes.c_uint64), ("bytes", ctypes.c_uint64)]


class NativePair(ctypes.Structure):
    _fields_ = [("local", ctypes.c_char_p), ("remote", ctypes.c_char_p)]


class NativeSlice(ctypes.Structure):
    _fields_ = [("local_offset", ctypes.c_uint64), ("local_bytes", ctypes.c_uint64),
                ("remote_offset", ctypes.c_uint64), ("remote_bytes", ctypes.c_uint64)]


class NativeViewGroup(ctypes.Structure):
    _fields_ = [("group", ctypes.c_uint32), ("pairs", ctypes.POINTER(NativePair)), ("pair_count", ctypes.c_size_t),
                ("slices", ctypes.POINTER(NativeSlice)), ("slice_count", ctypes.c_size_t),
                ("local_ratio", ctypes.c_uint32), ("remote_ratio", ctypes.c_uint32)]


class NativeViewSpec(ctypes.Structure):
    _fields_ = [("id", ctypes.c_char_p), ("peer", ctypes.c_char_p), ("remote_workload", ctypes.c_char_p),
                ("groups", ctypes.POINTER(NativeViewGroup)), ("group_count", ctypes.c_size_t)]


class NativeBlockGroup(ctypes.Structure):
    _fields_ = [("group", ctypes.c_uint32),
                ("local_blocks", ctypes.POINTER(ctypes.c_uint64)), ("local_count", ctypes.c_size_t),
                ("remote_blocks", ctypes.POINTER(ctypes.c_uint64)), ("remote_count", ctypes.c_size_t),
                ("first_layer", ctypes.c_uint64), ("layer_count", ctypes.c_uint64)]


class NativeDeviceAddress(ctypes.Structure):
    _fields_ = [("number", ctypes.c_uint64)]


class NativeFence(ctypes.Structure):
    _fields_ = [("buffer", ctypes.c_void_p), ("offset", ctypes.c_uint64), ("value", ctypes.c_uint64)]


class NativeMessage(ctypes.Structure):
    _fields_ = [("to", ctypes.c_char_p), ("data", ctypes.c_char_p), ("bytes", ctypes.c_size_t),
                ("request_id", ctypes.c_char_p)]


class NativeHoldGroup(ctypes.Structure):
    _fields_ = [("buffers", ctypes.POINTER(ctypes.c_char_p)), ("buffer_count", ctypes.c_size_t),
                ("blocks", ctypes.POINTER(ctypes.c_uint64)), ("block_count", ctypes.c_size_t)]


class NativeHoldSpec(ctypes.Structure):
    _fields_ = [("groups", ctypes.POINTER(NativeHoldGroup)), ("group_count", ctypes.c_size_t),
                ("ttl_ms", ctypes.c_uint64), ("expected_consumers", ctypes.c_uint64)]


class TransferSpec(ctypes.Structure):
    _fields_ = [("id", ctypes.c_char_p), ("operation", ctypes.c_int),
                ("local", ctypes.POINTER(ctypes.c_void_p)), ("local_count", ctypes.c_size_t),
                ("remote", ctypes.POINTER(ctypes.c_char_p)), ("remote_count", ctypes.c_size_t),
                ("local_blocks", ctypes.POINTER(ctypes.c_uint64)), ("remote_blocks", ctypes.POINTER(ctypes.c_uint64)),
                ("block_count", ctypes.c_size_t),
                ("ranges", ctypes.POINTER(NativeRange)), ("range_count", ctypes.c_size_t),
                ("deadline_ms", ctypes.c_uint64), ("priority", ctypes.c_int),
                ("require_path", ctypes.c_char_p), ("user_data", ctypes.c_char_p),
                ("view", ctypes.c_void_p),
                ("groups", ctypes.POINTER(NativeBlockGroup)), ("group_count", ctypes.c_size_t),
                ("fence", ctypes.POINTER(NativeFence)),
                ("hold", ctypes.c_char_p), ("hold_consumers", ctypes.POINTER(ctypes.c_uint64)),
                ("notify", ctypes.POINTER(NativeMessage)), ("executor", ctypes.c_int)]


class NativeStatus(ctypes.Structure):
    _fields_ = [("state", ctypes.c_int), ("workers", ctypes.c_uint32),
                *((name, ctypes.c_uint64) for name in
                  ("bytes", "bytes_moved", "chunks", "chunks_moved", "descriptors_in", "descriptors_out",
                   "admit_us", "fence_us", "queue_us", "move_us", "copy_us", "total_us")),
                ("path", ctypes.c_char * 8), ("executor", ctypes.c_int)]


_HANDLE = ctypes.c_void_p
_TEXT = ctypes.c_char_p
_U64 = ctypes.c_uint64
_SIZE = ctypes.c_size_t
_OUT = ctypes.POINTER

# Functions that answer with an error: their arguments.
_FALLIBLE = {
    "gantry_client_open": (_TEXT, _TEXT, _OUT(ClientOptions), _OUT(_HANDLE)),
    "gantry_client_close": (_HANDLE,),
    "gantry_client_close_within": (_HANDLE, _U64),
    "gantry_client_check": (_HANDLE,),
    "gantry_client_request": (_HANDLE, _TEXT, _TEXT, _TEXT, _U64, _OUT(_HANDLE)),
    "gantry_client_resolve": (_HANDLE, _HANDLE, _U64, _OUT(Extent), _SIZE, _OUT(_SIZE)),
    "gantry_memfd_create": (_TEXT, _U64, _OUT(ctypes.c_int)),
    "gantry_arena_adopt": (_HANDLE, ctypes.c_int, _U64, _HANDLE, _OUT(_HANDLE)),
    "gantry_arena_adopt_private": (_HANDLE, _HANDLE, _U64, ctypes.c_uint32, _OUT(_HANDLE)),
    "gantry_arena_close": (_HANDLE, _U64),
    "gantry_arena_pin": (_HANDLE, ctypes.c_int, _OUT(NativeDeviceAddress)),
    "gantry_arena_unpin": (_HANDLE,),
    "gantry_buffers_register": (_HANDLE, _OUT(NativeBufferSpec), _SIZE, _OUT(_HANDLE)),
    "gantry_buffers_register_verified": (_HANDLE, _OUT(NativeBufferSpec), _SIZE, _OUT(_HANDLE)),
    "gantry_buffer_unregister_report": (_HANDLE, _U64, _OUT(_HANDLE)),
    "gantry_buffers_suspend": (_HANDLE, _OUT(_HANDLE), _SIZE, _U64),
    "gantry_buffers_resume": (_HANDLE, _OUT(_HANDLE), _SIZE),
    "gantry_view_create": (_HANDLE, _OUT(NativeViewSpec), _OUT(_HANDLE)),
    "gantry_view_delete": (_HANDLE,),
    "gantry_notify": (_HANDLE, _TEXT, _OUT(NativeMessage), _U64, _OUT(_HANDLE)),
    "gantry_hold_put": (_HANDLE, _TEXT, _OUT(NativeHoldSpec), _OUT(_U64)),
    "gantry_hold_extend": (_HANDLE, _TEXT, _U64, _OUT(_U64)),
    "gantry_hold_release": (_HANDLE, _TEXT, _OUT(ctypes.c_int)),
    "gantry_timeline_create": (_HANDLE, ctypes.c_int, _OUT(_HANDLE)),
    "gantry_timeline_signal": (_HANDLE, _OUT(NativeFence)),
    "gantry_timeline_signal_stream": (_HANDLE, _HANDLE, _OUT(NativeFence)),
    "gantry_timeline_wait": (_HANDLE, _OUT(NativeFence), _U64),
    "gantry_transfer_submit": (_HANDLE, _OUT(TransferSpec), _U64, _OUT(_HANDLE)),
    "gantry_transfer_wait": (_HANDLE, _U64, _OUT(NativeStatus)),
    "gantry_transfer_cancel": (_HANDLE, _U64, _OUT(NativeStatus)),
}
# The others: what they return and their arguments.
_PLAIN: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "gantry_version": (_TEXT, ()),
    "gantry_path_name": (_TEXT, (_SIZE,)),
    "gantry_free": (None, (_HANDLE,)),
    "gantry_error_code": (_TEXT, (_HANDLE,)),
    "gantry_error_message": (_TEXT, (_HANDLE,)),
    "gantry_error_hint": (_TEXT, (_HANDLE,)),
    "gantry_error_field": (_TEXT, (_HANDLE,)),
    "gantry_error_destroy": (None, (_HANDLE,)),
    "gantry_client_destroy": (None, (_HANDLE,)),
    "gantry_client_generation": (_TEXT, (_HANDLE,)),
    "gantry_arena_fd": (ctypes.c_int, (_HANDLE,)),
    "gantry_arena_destroy": (None, (_HANDLE,)),
    "gantry_buffer_id": (_TEXT, (_HANDLE,)),
    "gantry_buffer_generation": (_TEXT, (_HANDLE,)),
    "gantry_buffer_bytes": (_U64, (_HANDLE,)),
    "gantry_buffer_is_registered": (ctypes.c_int, (_HANDLE,)),
    "gantry_buffer_destroy": (None, (_HANDLE,)),
    "gantry_view_id": (_TEXT, (_HANDLE,)),
    "gantry_view_pair_count": (_U64, (_HANDLE,)),
    "gantry_view_bytes_per_block": (_U64, (_HANDLE,)),
    "gantry_view_json": (_HANDLE, (_HANDLE,)),
    "gantry_view_destroy": (None, (_HANDLE,)),
    "gantry_timeline_buffer": (_HANDLE, (_HANDLE,)),
    "gantry_timeline_destroy": (None, (_HANDLE,)),
    "gantry_transfer_id": (_TEXT, (_HANDLE,)),
    "gantry_transfer_json": (_HANDLE, (_HANDLE,)),
    "gantry_transfer_destroy": (None, (_HANDLE,)),
}


def _candidates() -> list[Path]:
    here = Path(__file__).resolve()
    named = os.environ.get("GANTRY_LIBRARY")
    if named:
        return [Path(named)]
    in_checkout = [here.parents[3] / "build" / "release" / "lib" / "libgantry.so"] if len(here.parents) > 3 else []
    return [here.with_name("libgantry.so"), *in_checkout]


def _load() -> ctypes.CDLL:
    for path in _candidates():
        if path.exists():
            loaded = ctypes.CDLL(str(path))
            break
    else:
        raise ImportError("libgantry.so is not found; looked at " + ", ".join(map(str, _candidates())) +
                          ". Build it (cmake --preset release && cmake --build --preset release --target gantry), "
                          "or name it in GANTRY_LIBRARY")
    try:
        for name, arguments in _FALLIBLE.items():
            function = getattr(loaded, name)
            function.restype, function.argtypes = _HANDLE, arguments
        for name, (result, arguments) in _PLAIN.items():
            function = getattr(loaded, name)
            function.restype, function.argtypes = result, arguments
    except AttributeError:
        raise ImportError(f"{path} has no {name}: it is of another version than this package. Take the libgantry.so of the "
                          "package's version, or leave GANTRY_LIBRARY unset to use the package's own") from None
    return loaded


lib = _load()


def library_version() -> str:
    """The version of libgantry.so that is loaded."""
    version: bytes = lib.gantry_version()
    return version.decode()


def path_names() -> tuple[str, ...]:
    """The paths that libgantry.so knows, in the order in which transfers try them."""
    names: list[str] = []
    while (name := lib.gantry_path_name(len(names))) is not None:
        names.append(name.decode())
    return tuple(names)


def error_of(native: Optional[int]) -> Optional[Error]:
    """The exception for a gantry_error*, which is freed; None for success.

    A function that raises it must not keep it in a variable: the exception names the function's frame, and the two would keep
    all that the callers have until Python looks for cycles. `try: raise error` with `finally: del error` does it.
    """
    return _taken(native) if native else None


def _taken(native: int) -> Error:
    read = (lib.gantry_error_code, lib.gantry_error_message, lib.gantry_error_hint, lib.gantry_error_field)
    code, message, hint, field = (part(native).decode("utf-8", "replace") for part in read)
    lib.gantry_error_destroy(native)
    return error_with(code, message, hint, field)


def check(native: Optional[int]) -> None:
    """Raises the error that a function of the library returned."""
    if native:
        raise _taken(native)


def made(handle: ctypes.c_void_p) -> int:
    """The object that a function of the library has made."""
    assert handle.value is not None
    return handle.value


def take_text(address: Optional[int]) -> str:
    """A `char*` of the library as str; frees it."""
    if not address:
        raise MemoryError
    text = ctypes.string_at(address).decode("utf-8", "replace")
    lib.gantry_free(address)
    return text


def text(value: Any, field: str) -> bytes:
    """A str (or path) as the library takes it."""
    encoded = os.fspath(value).encode() if not isinstance(value, bytes) else value
    if b"\0" in encoded:
        raise Error("invalid_argument", "the text has a NUL character", field=field)
    return encoded


def unsigned(value: Any, field: str, bits: int = 63, least: int = 0) -> int:
    """A number that ctypes would otherwise wrap around in silence. `least` 1: the library takes 0 for "not said"."""
    number = operator.index(value)
    if not least <= number < 2**bits:
        raise Error("invalid_argument", f"{number} is not between {least} and 2^{bits} - 1", field=field)
    return number


def milliseconds(seconds: Optional[float], field: str = "timeout") -> int:
    """A time to wait as the library takes it, rounded up; None waits forever."""
    if seconds is None or seconds == float("inf"):
        return FOREVER
    if not 0 <= seconds < _SECONDS_END:
        raise Error("invalid_argument", f"{seconds} s is no time to wait: it is 0 or longer, or None", field=field)
    return math.ceil(round(seconds * 1000, 6))


def lifetime_ms(seconds: float, field: str) -> int:
    """The time after which something ends, rounded up. Never 0, which the library takes for "not said"."""
    if not 0 < seconds < _SECONDS_END:
        raise Error("invalid_argument", f"{field} is {seconds} s and has to be longer than 0 and finite", field=field)
    return max(1, math.ceil(round(seconds * 1000, 6)))


def deadline_ms(seconds: Optional[float]) -> int:
    """The time that is left for a piece of work. None is 0 for the library: the default."""
    if seconds is None:
        return 0
    if seconds <= 0:
        raise Error("deadline_exceeded", f"the deadline is over before the request: {seconds} s are left; nothing was sent",
                    "pass the seconds that are left, or None for the default", "deadline")
    return lifetime_ms(seconds, "deadline")
