"""Lists of block ids, as the library takes them."""

from __future__ import annotations

import ctypes
import sys
from array import array
from typing import Any

from .errors import Error

_TOP_BYTE = 7 if sys.byteorder == "little" else 0


def numbers(values: Any, field: str) -> "array[int]":
    """Block ids as 64-bit numbers; a contiguous array of 64-bit integers is copied whole."""
    try:
        view = memoryview(values)
        if view.format in ("Q", "q", "L", "l") and view.itemsize == 8 and view.ndim == 1:
            raw = view.tobytes()
            copied = array(view.format)
            copied.frombytes(raw)
            if not raw[_TOP_BYTE::8].isascii():  # of a number that is negative, or larger than what is one
                raise _no_block(copied, field)
            return copied
    except TypeError:
        pass
    try:
        return array("Q", values)
    except (OverflowError, TypeError, ValueError) as error:
        raise Error("invalid_argument", f"block ids are whole numbers from 0 on: {error}", field=field) from None


def pointer(ids: "array[int]") -> Any:
    """The library takes an empty list for one that was named, and NULL for none."""
    return (ctypes.c_uint64 * len(ids)).from_buffer(ids) if len(ids) else (ctypes.c_uint64 * 1)()


def _no_block(ids: "array[int]", field: str) -> Error:
    index, number = next((i, number) for i, number in enumerate(ids) if not 0 <= number < 2**63)
    return Error("invalid_argument", f"block id {number} is not between 0 and 2^63 - 1", field=f"{field}/{index}")
