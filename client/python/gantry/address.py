"""Where the bytes of a Python object are. Numbers only: which arena they lie in is the library's to say."""

from __future__ import annotations

import ctypes
from typing import Any

from .errors import Error


class _PyBuffer(ctypes.Structure):
    """CPython's Py_buffer."""

    _fields_ = [("buf", ctypes.c_void_p), ("obj", ctypes.py_object), ("len", ctypes.c_ssize_t),
                ("itemsize", ctypes.c_ssize_t), ("readonly", ctypes.c_int), ("ndim", ctypes.c_int),
                ("format", ctypes.c_char_p), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
                ("suboffsets", ctypes.c_void_p), ("internal", ctypes.c_void_p)]


_CONTIGUOUS = 0  # PyBUF_SIMPLE: one run of bytes, or BufferError
_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = (ctypes.py_object, ctypes.POINTER(_PyBuffer), ctypes.c_int)
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes = (ctypes.POINTER(_PyBuffer),)
_release_buffer.restype = None


def _not_contiguous(view: Any, why: object = "it has holes") -> Error:
    return Error("invalid_argument", f"this {type(view).__name__} is not one contiguous run of bytes: {why}",
                 "register contiguous views, or several pieces in a list", "view")


def _of_array_interface(view: Any, interface: dict) -> tuple[int, int]:
    if interface.get("strides") is not None or interface.get("data") is None:
        raise _not_contiguous(view)
    length = int(interface["typestr"][2:])
    for extent in interface["shape"]:
        length *= extent
    return interface["data"][0], length


def address_of(view: Any) -> tuple[int, int]:
    """(address, bytes) of anything with the buffer protocol, __array_interface__, or data_ptr() as a CPU tensor has."""
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
        if not view.is_contiguous():
            raise _not_contiguous(view)
        return view.data_ptr(), view.numel() * view.element_size()
    raise Error("invalid_argument", f"a {type(view).__name__} has no memory that could be registered",
                "pass a memoryview, a numpy array or a CPU tensor over an arena", "view")
