"""Memory on a GPU for an example: one allocation of the driver's, with a copy of it in this process to fill and to compare.

An engine has its memory from its framework; the tensors of PyTorch, for one, are registered as they are. This needs no
framework, only the driver (libcuda.so.1). One thread.
"""

import ctypes


class GpuArena:
    """`arena[begin:end]` is the copy; `upload` and `download` move all of it. `view` is what `client.register` takes."""

    def __init__(self, size, ordinal):
        self._driver, self._copy = ctypes.CDLL("libcuda.so.1"), bytearray(size)
        self._call("cuInit", 0)
        device, context, address = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
        self._call("cuDeviceGet", ctypes.byref(device), ordinal)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._call("cuCtxPushCurrent_v2", context)
        self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        self._address, self._stream = address.value, ctypes.c_void_p()
        self._call("cuStreamCreate", ctypes.byref(self._stream), 1)

    def _call(self, name, *arguments):
        result = getattr(self._driver, name)(*arguments)
        if result != 0:
            raise OSError(f"the GPU's driver answers {result} to {name}")

    def __getitem__(self, place):
        return self._copy[place]

    def __setitem__(self, place, data):
        self._copy[place] = data

    def view(self, offset, length):
        return GpuView(self._address + offset, length)

    def upload(self):
        self._move("cuMemcpyHtoDAsync_v2", ctypes.c_uint64(self._address), self._buffer())

    def download(self):
        self._move("cuMemcpyDtoHAsync_v2", self._buffer(), ctypes.c_uint64(self._address))

    def _buffer(self):
        return (ctypes.c_char * len(self._copy)).from_buffer(self._copy)

    def _move(self, name, target, source):
        self._call(name, target, source, ctypes.c_size_t(len(self._copy)), self._stream)
        self._call("cuStreamSynchronize", self._stream)

    def close(self):
        self._call("cuMemFree_v2", ctypes.c_uint64(self._address))


class GpuView:
    """What Gantry needs of a tensor: where it is and how long."""

    def __init__(self, address, nbytes):
        self._address, self._nbytes = address, nbytes

    def data_ptr(self):
        return self._address

    def is_contiguous(self):
        return True

    def numel(self):
        return self._nbytes

    def element_size(self):
        return 1
