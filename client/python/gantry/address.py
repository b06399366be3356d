"""Where the bytes of a Python object are. Numbers only: which arena or GPU they lie in is the library's to say."""

from __future__ import annotations

import ctypes
from typing import Any, Optional, Sequence

from .errors import Error


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


_CONTIGUOUS = 0  # PyBUF_SIMPLE: one run of bytes, or BufferError
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


def _not_contiguous(view: Any, why: object = "it has holes, or its axes are permuted") -> Error:
    return Error("invalid_argument", f"this {type(view).__name__} is not one contiguous run of bytes: {why}",
                 "register contiguous views, or several pieces in a list", "view")


def _bytes_of(view: Any, shape: Sequence[int], strides: Optional[Sequence[int]], item: int) -> int:
    """Bytes of an array whose strides are in the unit of `item`; raises for one with holes."""
    length = item
    for extent, stride in zip(reversed(shape), reversed(strides) if strides is not None else [None] * len(shape)):
        if stride is not None and extent > 1 and stride != length:
            raise _not_contiguous(view)
        length *= extent
    return length


def _of_array_interface(view: Any, interface: dict) -> tuple[int, int]:
    if interface.get("data") is None or interface.get("mask") is not None:
        raise _not_contiguous(view)
    item = int(interface["typestr"][2:])
    return interface["data"][0] or 0, _bytes_of(view, interface["shape"], interface.get("strides"), item)


def _of_tensor(view: Any) -> tuple[int, int]:
    """Of what has data_ptr(): torch's tensors and storages, and those that copy them."""
    if callable(getattr(view, "is_contiguous", None)) and not view.is_contiguous():
        raise _not_contiguous(view)
    if hasattr(view, "numel") and hasattr(view, "element_size"):
        return view.data_ptr(), view.numel() * view.element_size()
    length = view.nbytes() if callable(view.nbytes) else view.nbytes
    return view.data_ptr(), length


def _of_dlpack(view: Any) -> tuple[int, int]:
    on_host = int(view.__dlpack_device__()[0]) == _DLPACK_HOST
    capsule = view.__dlpack__() if on_host else view.__dlpack__(stream=_NO_SYNCHRONISATION)
    tensor = _DLTensor.from_address(_capsule_pointer(capsule, b"dltensor"))
    bits = tensor.bits * tensor.lanes
    if bits % 8 != 0:
        raise Error("invalid_argument", f"an element of this {type(view).__name__} has {bits} bits, no whole bytes",
                    "register it as bytes", "view")
    shape = tensor.shape[:tensor.ndim] if tensor.ndim else []
    strides = [stride * (bits // 8) for stride in tensor.strides[:tensor.ndim]] if tensor.strides and tensor.ndim else None
    return (tensor.data or 0) + tensor.byte_offset, _bytes_of(view, shape, strides, bits // 8)


def address_of(view: Any) -> tuple[int, int]:
    """(address, bytes) of what lies in the host's memory or on a GPU, which is looked at in this order: the buffer
    protocol, __array_interface__, data_ptr() as torch's tensors have, __cuda_array_interface__, DLPack.
    """
    buffer = _PyBuffer()
    try:
        _get_buffer(view, ctypes.byref(buffer), _CONTIGUOUS)
    except (BufferError, ValueError) as error:  # ValueError: numpy's, and that of a closed mmap
        raise _not_contiguous(view, error) from None
    except TypeError:
        pass
    else:
        place = (buffer.buf or 0, buffer.len)
        _release_buffer(ctypes.byref(buffer))
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
