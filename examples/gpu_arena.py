"""Memory on a GPU for an example: one allocation of the driver's, with a copy of it in this process to fill and to compare.

An engine has its memory from its framework; the tensors of PyTorch, for one, are registered as they are. This needs no
framework, only the vendor's library: libcuda.so.1, or libamdhip64.so of ROCm. One thread.
"""

import ctypes


class CudaDriver:
    """The few calls of NVIDIA's driver that an arena needs, on one GPU."""

    LIBRARIES = ("libcuda.so.1",)

    def __init__(self, library):
        self._library = ctypes.CDLL(library)

    def count(self):
        """Of the GPUs that this process sees; 0 also where the driver does not work."""
        count = ctypes.c_int()
        works = self._library.cuInit(0) == 0 and self._library.cuDeviceGetCount(ctypes.byref(count)) == 0
        return count.value if works else 0

    def use(self, ordinal):
        device, context, self._stream = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuDeviceGet", ctypes.byref(device), ordinal)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._call("cuCtxPushCurrent_v2", context)
        self._call("cuStreamCreate", ctypes.byref(self._stream), 1)

    def allocate(self, size):
        address = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address.value

    def free(self, address):
        self._call("cuMemFree_v2", ctypes.c_uint64(address))

    def upload(self, address, data):
        self._call("cuMemcpyHtoDAsync_v2", ctypes.c_uint64(address), data, ctypes.c_size_t(len(data)), self._stream)
        self._call("cuStreamSynchronize", self._stream)

    def download(self, data, address):
        self._call("cuMemcpyDtoHAsync_v2", data, ctypes.c_uint64(address), ctypes.c_size_t(len(data)), self._stream)
        self._call("cuStreamSynchronize", self._stream)

    def _call(self, name, *arguments):
        result = getattr(self._library, name)(*arguments)
        if result != 0:
            raise OSError(f"the GPU's driver answers {result} to {name}")


class HipDriver(CudaDriver):
    """The same of AMD's runtime."""

    LIBRARIES = ("libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so")
    _COPY_DEFAULT = 4  # hipMemcpyDefault: the addresses say the direction

    def count(self):
        count = ctypes.c_int()
        works = self._library.hipInit(0) == 0 and self._library.hipGetDeviceCount(ctypes.byref(count)) == 0
        return count.value if works else 0

    def use(self, ordinal):
        self._stream = ctypes.c_void_p()
        self._call("hipSetDevice", ordinal)
        self._call("hipStreamCreateWithFlags", ctypes.byref(self._stream), 1)

    def allocate(self, size):
        address = ctypes.c_void_p()
        self._call("hipMalloc", ctypes.byref(address), ctypes.c_size_t(size))
        return address.value

    def free(self, address):
        self._call("hipFree", ctypes.c_void_p(address))

    def upload(self, address, data):
        self._copy(ctypes.c_void_p(address), data, len(data))

    def download(self, data, address):
        self._copy(data, ctypes.c_void_p(address), len(data))

    def _copy(self, target, source, size):
        self._call("hipMemcpyAsync", target, source, ctypes.c_size_t(size), self._COPY_DEFAULT, self._stream)
        self._call("hipStreamSynchronize", self._stream)


def load_driver():
    """That of the first vendor whose library sees a GPU; OSError, with what was missing, where none does."""
    missing = []
    for driver in (CudaDriver, HipDriver):
        for library in driver.LIBRARIES:
            try:
                loaded = driver(library)
            except OSError as error:
                missing.append(str(error))
                continue
            if loaded.count() > 0:
                return loaded
            missing.append(f"{library} sees no GPU")
            break  # what is older sees none either
    raise OSError("this process has no GPU: " + "; ".join(missing))


class GpuArena:
    """`arena[begin:end]` is the copy; `upload` and `download` move all of it. `view` is what `client.register` takes."""

    def __init__(self, size, ordinal):
        self._driver, self._copy = load_driver(), bytearray(size)
        self._driver.use(ordinal)
        self._address = self._driver.allocate(size)

    def __getitem__(self, place):
        return self._copy[place]

    def __setitem__(self, place, data):
        self._copy[place] = data

    def view(self, offset, length):
        return GpuView(self._address + offset, length)

    def upload(self):
        self._driver.upload(self._address, self._buffer())

    def download(self):
        self._driver.download(self._buffer(), self._address)

    def _buffer(self):
        return (ctypes.c_char * len(self._copy)).from_buffer(self._copy)

    def close(self):
        self._driver.free(self._address)


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
