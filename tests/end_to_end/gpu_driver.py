"""GPU memory through the driver's own calls, as a framework takes it. Needs nothing but the driver."""

import ctypes

_POSIX_FD, _PINNED, _ON_DEVICE, _READ_WRITE, _COPY_DEFAULT = 1, 1, 1, 3, 4  # of cuda.h and of hip_runtime_api.h


class _Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class _AllocationProp(ctypes.Structure):
    """Of CUDA, and of HIP from ROCm 6 on."""
    _fields_ = [("type", ctypes.c_int), ("handle_types", ctypes.c_int), ("location", _Location), ("win32", ctypes.c_void_p),
                ("flags", ctypes.c_ubyte * 8)]


class _HipAllocationProp5(ctypes.Structure):
    _fields_ = [("compression", ctypes.c_ubyte), ("location", _Location), ("handle_type", ctypes.c_int), ("type", ctypes.c_int),
                ("usage", ctypes.c_ushort), ("win32", ctypes.c_void_p)]


class _Access(ctypes.Structure):
    _fields_ = [("location", _Location), ("flags", ctypes.c_int)]


def Driver(ordinal, library="libcuda.so.1"):
    """Of the vendor whose library it is."""
    return (HipDriver if "hip" in library else CudaDriver)(ordinal, library)


class CudaDriver:
    """What a workload's framework does with the driver, on one GPU of this process."""

    def __init__(self, ordinal, library):
        self.library = ctypes.CDLL(library)
        self.call("cuInit", 0)
        self.device, self.context, self.stream = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(self.device), ordinal)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), self.device)
        self.call("cuCtxPushCurrent_v2", self.context)
        self.call("cuStreamCreate", ctypes.byref(self.stream), 1)

    def call(self, name, *arguments):
        result = getattr(self.library, name)(*arguments)
        assert result == 0, f"{name}: {result}"

    def allocate(self, size):
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address.value

    def free(self, address):
        self.call("cuMemFree_v2", ctypes.c_uint64(address))

    def write(self, address, data):
        self.call("cuMemcpyHtoDAsync_v2", ctypes.c_uint64(address), data, ctypes.c_size_t(len(data)), self.stream)
        self.call("cuStreamSynchronize", self.stream)

    def uuid(self):
        raw = ctypes.create_string_buffer(16)
        self.call("cuDeviceGetUuid_v2", raw, self.device)
        text = raw.raw.hex()
        return "GPU-" + "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))

    def free_bytes(self):
        """Of the GPU, whoever uses it."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value

    def handle(self, address):
        handle = ctypes.create_string_buffer(64)
        self.call("cuIpcGetMemHandle", handle, ctypes.c_uint64(address))
        return handle.raw

    def read(self, address, size):
        data = ctypes.create_string_buffer(size)
        self.call("cuMemcpyDtoHAsync_v2", data, ctypes.c_uint64(address), ctypes.c_size_t(size), self.stream)
        self.call("cuStreamSynchronize", self.stream)
        return data.raw

    def run_on_host(self, function, stream):
        """By the stream, when it gets there; so does what follows."""
        self.call("cuLaunchHostFunc", stream, function, None)

    def set_later(self, address, value, size, stream):
        self.call("cuMemsetD8Async", ctypes.c_uint64(address), ctypes.c_ubyte(value), ctypes.c_size_t(size), stream)

    def synchronize(self, stream):
        self.call("cuStreamSynchronize", stream)

    def is_pinned(self, address):
        """As memory of the host that GPUs reach (CU_POINTER_ATTRIBUTE_MEMORY_TYPE is CU_MEMORYTYPE_HOST)."""
        attribute, kind = ctypes.c_int(2), ctypes.c_uint()
        self.call("cuPointerGetAttributes", 1, ctypes.byref(attribute),
                  ctypes.byref(ctypes.cast(ctypes.pointer(kind), ctypes.c_void_p)), ctypes.c_uint64(address))
        return kind.value == 1

    def reserve(self, size):
        base = ctypes.c_uint64()
        self.call("cuMemAddressReserve", ctypes.byref(base), ctypes.c_size_t(size), ctypes.c_size_t(0), ctypes.c_uint64(0),
                  ctypes.c_uint64(0))
        return base.value

    def map_piece(self, address, size, ordinal=None):
        """New memory at an address of a reservation, of this GPU or of another one, for this one."""
        here, place, size = _Location(_ON_DEVICE, self.device.value), ctypes.c_uint64(address), ctypes.c_size_t(size)
        device = ctypes.c_int(self.device.value)
        if ordinal is not None:
            self.call("cuDeviceGet", ctypes.byref(device), ordinal)
        wanted, piece = _AllocationProp(_PINNED, _POSIX_FD, _Location(_ON_DEVICE, device.value)), ctypes.c_uint64()
        self.call("cuMemCreate", ctypes.byref(piece), size, ctypes.byref(wanted), ctypes.c_uint64(0))
        self.call("cuMemMap", place, size, ctypes.c_size_t(0), piece, ctypes.c_uint64(0))
        self.call("cuMemRelease", piece)  # the mapping keeps it
        self.call("cuMemSetAccess", place, size, ctypes.byref(_Access(here, _READ_WRITE)), ctypes.c_size_t(1))

    def unmap_piece(self, address, size):
        self.call("cuMemUnmap", ctypes.c_uint64(address), ctypes.c_size_t(size))


class HipDriver:
    """The same with AMD's runtime."""

    def __init__(self, ordinal, library):
        self.library = ctypes.CDLL(library)
        self.device, self.stream, version = ctypes.c_int(ordinal), ctypes.c_void_p(), ctypes.c_int()
        self.call("hipInit", 0)
        self.call("hipRuntimeGetVersion", ctypes.byref(version))
        self.version = version.value
        self.call("hipSetDevice", self.device)
        self.call("hipStreamCreateWithFlags", ctypes.byref(self.stream), 1)

    def call(self, name, *arguments):
        result = getattr(self.library, name)(*arguments)
        assert result == 0, f"{name}: {result}"

    def last_error(self):
        return self.library.hipGetLastError()

    def allocate(self, size):
        address = ctypes.c_void_p()
        self.call("hipMalloc", ctypes.byref(address), ctypes.c_size_t(size))
        return address.value

    def free(self, address):
        self.call("hipFree", ctypes.c_void_p(address))

    def write(self, address, data):
        self._copy(ctypes.c_void_p(address), data, len(data))

    def read(self, address, size):
        data = ctypes.create_string_buffer(size)
        self._copy(data, ctypes.c_void_p(address), size)
        return data.raw

    def _copy(self, to, start, size):
        self.call("hipMemcpyAsync", to, start, ctypes.c_size_t(size), _COPY_DEFAULT, self.stream)
        self.call("hipStreamSynchronize", self.stream)

    def uuid(self):
        digits = ctypes.create_string_buffer(16)
        self.call("hipDeviceGetUuid", digits, self.device)
        return "GPU-" + digits.raw.decode().lower()

    def free_bytes(self):
        """Of the GPU, whoever uses it."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.call("hipMemGetInfo", ctypes.byref(free), ctypes.byref(total))
        return free.value

    def handle(self, address):
        handle = ctypes.create_string_buffer(64)
        self.call("hipIpcGetMemHandle", handle, ctypes.c_void_p(address))
        return handle.raw

    def run_on_host(self, function, stream):
        """By the stream, when it gets there; so does what follows."""
        self.call("hipLaunchHostFunc", stream, function, None)

    def set_later(self, address, value, size, stream):
        self.call("hipMemsetAsync", ctypes.c_void_p(address), ctypes.c_int(value), ctypes.c_size_t(size), stream)

    def synchronize(self, stream):
        self.call("hipStreamSynchronize", stream)

    def is_pinned(self, address):
        """As memory of the host that GPUs reach (HIP_POINTER_ATTRIBUTE_MEMORY_TYPE is hipMemoryTypeHost), of which any other is unknown."""
        kind = ctypes.c_uint()
        asked = self.library.hipPointerGetAttribute(ctypes.byref(kind), 2, ctypes.c_void_p(address))
        return asked == 0 and kind.value == (0 if self.version < 60000000 else 1)

    def reserve(self, size):
        base = ctypes.c_void_p()
        self.call("hipMemAddressReserve", ctypes.byref(base), ctypes.c_size_t(size), ctypes.c_size_t(0), None,
                  ctypes.c_uint64(0))
        return base.value

    def map_piece(self, address, size):
        """New memory at an address of a reservation."""
        here, place, size = _Location(_ON_DEVICE, self.device.value), ctypes.c_void_p(address), ctypes.c_size_t(size)
        wanted = (_HipAllocationProp5(0, here, _POSIX_FD, _PINNED) if self.version < 60000000 else
                  _AllocationProp(_PINNED, _POSIX_FD, here))
        piece = ctypes.c_void_p()
        self.call("hipMemCreate", ctypes.byref(piece), size, ctypes.byref(wanted), ctypes.c_uint64(0))
        self.call("hipMemMap", place, size, ctypes.c_size_t(0), piece, ctypes.c_uint64(0))
        self.call("hipMemRelease", piece)  # the mapping keeps it
        self.call("hipMemSetAccess", place, size, ctypes.byref(_Access(here, _READ_WRITE)), ctypes.c_size_t(1))

    def unmap_piece(self, address, size):
        self.call("hipMemUnmap", ctypes.c_void_p(address), ctypes.c_size_t(size))


class Tensor:
    """Bytes on a GPU as frameworks show them."""

    def __init__(self, address, nbytes):
        self.address, self.nbytes = address, nbytes

    def data_ptr(self):
        return self.address

    def is_contiguous(self):
        return True

    def numel(self):
        return self.nbytes

    def element_size(self):
        return 1
