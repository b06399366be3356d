"""GPU memory through HIP's own calls, as a framework takes it. Needs nothing but the runtime."""

import ctypes

DEFAULT = 4  # hipMemcpyDefault


class HipDriver:
    """What a workload's framework does with HIP, on one GPU of this process; as gpu_driver.Driver."""

    def __init__(self, ordinal, library):
        self.library = ctypes.CDLL(library)
        self.call("hipInit", 0)
        self.ordinal, self.stream = ordinal, ctypes.c_void_p()
        self.call("hipSetDevice", ordinal)
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
        self.call("hipMemcpyAsync", ctypes.c_void_p(address), data, ctypes.c_size_t(len(data)), DEFAULT, self.stream)
        self.call("hipStreamSynchronize", self.stream)

    def read(self, address, size):
        data = ctypes.create_string_buffer(size)
        self.call("hipMemcpyAsync", data, ctypes.c_void_p(address), ctypes.c_size_t(size), DEFAULT, self.stream)
        self.call("hipStreamSynchronize", self.stream)
        return data.raw

    def uuid(self):
        raw = ctypes.create_string_buffer(16)
        self.call("hipDeviceGetUuid", raw, self.ordinal)
        return "GPU-" + raw.raw.decode()
