"""Where the bytes of a Python object are. Numbers only: which arena or GPU they lie in is the library's to say."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple, Optional, Sequence

from .errors import Error
from .strides import Layout, cover_of


class _PyBuffer(ctypes.Structure):
    """CPython's Py_buffer."""

    _fields_ = [("buf", ctypes.c_void_p), ("obj", ctypes.py_object), ("len", ctypes.c_ssize_t),
                ("itemsize", ctypes.c_ssize_t), ("readonly", ctypes.c_int), ("ndim", ctypes.c_int),
                ("format", ctypes.c_char_p), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
                ("suboffsets", ctypes.c_void_p), ("internal", ctypes.c_void_p)]


class _DLTensor(ctypes.Structure):
    """DLPack's DLTensor, with which a DLManagedTensor begins."""

    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


_STRIDED = 0x18  # PyBUF_STRIDES: with shape and strides
_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = (ctypes.py_object, ctypes.POINTER(_PyBuffer), ctypes.c_int)
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes = (ctypes.POINTER(_PyBuffer),)
_release_buffer.restype = None
_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
_capsule_pointer.restype = ctypes.c_void_p

_DLPACK_HOST = 1  # kDLCPU
_NO_SYNCHRONISATION = -1  # what the array API standard has for __dlpack__(stream=)


class Place(NamedTuple):
    """Where a view is: `length` bytes from `address` on, on the host or on a GPU.

    layout  dimension 0 of a tensor as blocks, each dense and all at one step; None where it has no such blocks
    dense   False: bytes between the blocks are not the tensor's own, and are registered with it
    """

    address: int
    length: int
    layout: Optional[Layout] = None
    dense: bool = True


def _refused(view: Any, why: object) -> Error:
    return Error("invalid_argument", f"this {type(view).__name__} is not one contiguous run of bytes: {why}",
                 "register contiguous views, or several pieces in a list", "view")


def _placed(view: Any, address: int, shape: Sequence[int], strides: Optional[Sequence[int]], item: int) -> Place:
    """`address` is that of the first element, `strides` are bytes."""
    cover = cover_of(shape, strides, item, type(view).__name__)
    return Place(address, cover.length, cover.blocks, cover.dense)


def _of_array_interface(view: Any, interface: dict[str, Any]) -> Place:
    if interface.get("data") is None or interface.get("mask") is not None:
        raise _refused(view, "it has no data of its own, or a mask")
    item = int(interface["typestr"][2:])
    return _placed(view, interface["data"][0] or 0, interface["shape"], interface.get("strides"), item)


def _of_tensor(view: Any) -> Place:
    """Of what has data_ptr(): torch's tensors and storages, and those that copy them."""
    if hasattr(view, "shape") and callable(getattr(view, "stride", None)) and hasattr(view, "element_size"):
        # data_ptr() is that of the first element: storage_offset() is in it.
        item = view.element_size()
        return _placed(view, view.data_ptr(), tuple(view.shape), [step * item for step in view.stride()], item)
    if callable(getattr(view, "is_contiguous", None)) and not view.is_contiguous():
        raise _refused(view, "it has neither shape nor stride()")
    if hasattr(view, "numel") and hasattr(view, "element_size"):
        return Place(view.data_ptr(), view.numel() * view.element_size())
    return Place(view.data_ptr(), view.nbytes() if callable(view.nbytes) else view.nbytes)


def _of_dlpack(view: Any) -> Place:
    on_host = int(view.__dlpack_device__()[0]) == _DLPACK_HOST
    capsule = view.__dlpack__() if on_host else view.__dlpack__(stream=_NO_SYNCHRONISATION)
    tensor = _DLTensor.from_address(_capsule_pointer(capsule, b"dltensor"))
    bits = tensor.bits * tensor.lanes
    if bits % 8 != 0:
        raise Error("invalid_argument", f"an element of this {type(view).__name__} has {bits} bits, no whole bytes",
                    "register it as bytes", "view")
    shape = tensor.shape[:tensor.ndim] if tensor.ndim else []
    strides = [stride * (bits // 8) for stride in tensor.strides[:tensor.ndim]] if tensor.strides and tensor.ndim else None
    return _placed(view, (tensor.data or 0) + tensor.byte_offset, shape, strides, bits // 8)


def _of_buffer(view: Any) -> Optional[Place]:
    """None: it has no buffer protocol."""
    buffer = _PyBuffer()
    try:
        _get_buffer(view, ctypes.byref(buffer), _STRIDED)
    except (BufferError, ValueError) as error:  # ValueError: that of a closed mmap, and of numpy's types of its own
        raise _refused(view, error) from None
    except TypeError:
        return None
    try:
        numbers = ctypes.c_ssize_t * buffer.ndim
        shape, strides = ([*numbers.from_address(each)] if each and buffer.ndim else None
                          for each in (buffer.shape, buffer.strides))
        if shape is None:
            return Place(buffer.buf or 0, buffer.len)
        return _placed(view, buffer.buf or 0, shape, strides, buffer.itemsize)
    finally:
        _release_buffer(ctypes.byref(buffer))


def layout_of(view: Any) -> Place:
    """Where the bytes of a view are, and the blocks that its dimension 0 counts: what Client.register() goes by.

    A tensor is dense when its elements fill a run of bytes in some order of its dimensions, or its blocks are: then they
    follow each other at one step, as those of one layer do in memory where a block of all layers is one piece. Anything
    else is refused with Error "invalid_argument", which says which stride is the trouble. Makes no request.

    It is looked at in this order: the buffer protocol, __array_interface__, data_ptr() as torch's tensors have,
    __cuda_array_interface__, DLPack.
    """
    place = _of_buffer(view)
    if place is not None:
        return place
    interface = getattr(view, "__array_interface__", None)
    if interface is not None:
        return _of_array_interface(view, interface)
    if callable(getattr(view, "data_ptr", None)):
        return _of_tensor(view)
    interface = getattr(view, "__cuda_array_interface__", None)
    if interface is not None:
        return _of_array_interface(view, interface)
    if hasattr(view, "__dlpack__") and hasattr(view, "__dlpack_device__"):
        return _of_dlpack(view)
    raise Error("invalid_argument", f"an object of the type {type(view).__name__} has no memory that could be registered",
                "pass a memoryview or numpy array over an arena, or a tensor on the GPU", "view")


def address_of(view: Any) -> tuple[int, int]:
    """(address, bytes) of a view, with what lies between its blocks."""
    return layout_of(view)[:2]
