"""Which bytes the elements of a tensor cover, by its shape and strides: one dense run, or blocks at one step."""

from __future__ import annotations

from typing import NamedTuple, Optional, Sequence

from .errors import Error


class Layout(NamedTuple):
    """Block i is the bytes [i * block_stride, i * block_stride + block_bytes) of the buffer.

    block_stride None: block_bytes. blocks None: as many as the buffer holds.
    """

    block_bytes: int
    block_stride: Optional[int] = None
    blocks: Optional[int] = None


class Cover(NamedTuple):
    """The bytes from the first element to the end of the last one.

    blocks  dimension 0 as blocks: each is dense, and they follow each other at one step. None where they do not
    dense   whether every byte belongs to an element
    """

    length: int
    blocks: Optional[Layout]
    dense: bool


class _Trouble(NamedTuple):
    dimension: int
    wanted: int  # the stride in bytes that would be dense


def cover_of(shape: Sequence[int], strides: Optional[Sequence[int]], item: int, noun: str) -> Cover:
    """Of elements of `item` bytes with strides in bytes, from the first element on. None: in the order of C.

    Raises Error "invalid_argument", which says which stride is the trouble, unless the elements are dense in some order
    of the dimensions, or dimension 0 counts dense blocks at one step. A dimension of size 1 has any stride.
    """
    if strides is None:
        strides = _strides_of_c(shape, item)
    if 0 in shape:
        return Cover(0, None, True)
    everything = range(len(shape))
    block_bytes, trouble = _dense_bytes(shape, strides, item, everything[1:])
    steps = len(shape) > 1 and trouble is None and (shape[0] == 1 or strides[0] >= block_bytes)
    blocks = Layout(block_bytes, block_bytes if shape[0] == 1 else strides[0], shape[0]) if steps else None
    length, holes = _dense_bytes(shape, strides, item, everything)
    if holes is None:
        return Cover(length, blocks, True)
    if blocks is not None:
        return Cover((shape[0] - 1) * strides[0] + block_bytes, blocks, False)
    dimension, wanted = trouble or _Trouble(0, block_bytes)
    raise _refusal(shape, strides, dimension, wanted, noun)


def _strides_of_c(shape: Sequence[int], item: int) -> list[int]:
    strides = []
    for extent in reversed(shape):
        strides.append(item)
        item *= extent
    return strides[::-1]


def _dense_bytes(shape: Sequence[int], strides: Sequence[int], item: int,
                 dimensions: Sequence[int]) -> tuple[int, Optional[_Trouble]]:
    """What the dimensions cover together, from the innermost outwards, and the first that leaves holes or overlaps."""
    length = item
    for dimension in sorted((each for each in dimensions if shape[each] > 1), key=lambda each: strides[each]):
        if strides[dimension] != length:
            return length, _Trouble(dimension, length)
        length *= shape[dimension]
    return length, None


def _refusal(shape: Sequence[int], strides: Sequence[int], dimension: int, wanted: int, noun: str) -> Error:
    stride = strides[dimension]
    trouble = ("goes backwards" if stride < 0 else "shows the same bytes again" if stride < wanted else "leaves holes")
    return Error("invalid_argument",
                 f"this {noun} of shape {list(shape)} is not dense: dimension {dimension} has a stride of {stride} bytes, "
                 f"which {trouble}; {wanted} would be dense",
                 "register dense tensors, tensors whose dimension 0 counts dense blocks at one step, or several pieces "
                 "in a list", "view")
