"""GPU memory through the driver's own calls, as a framework takes it. Needs nothing but the driver."""

import ctypes


class Driver:
    """What a workload's framework does with the driver, on one GPU of this process."""

    def __init__(self, ordinal, library="libcuda.so.1"):
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
