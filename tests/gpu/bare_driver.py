"""The calls of libcuda that the bare programs beside this make, each checked: what the driver does where no Gantry is between."""

import ctypes

UNIFIED = 4          # CU_MEMORYTYPE_UNIFIED
SOURCE_ORDER_STREAM = 1
MAP_LAZILY_FOR_PEERS = 1  # CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
DEVICE = 1           # CU_MEM_LOCATION_TYPE_DEVICE
PINNED = 1           # CU_MEM_ALLOCATION_TYPE_PINNED
READ_WRITE = 3       # CU_MEM_ACCESS_FLAGS_PROT_READWRITE
NOT_READY = 600


class Attributes(ctypes.Structure):
    """CUmemcpyAttributes, of cuda.h of CUDA 12.8."""

    _fields_ = [("source_order", ctypes.c_int), ("source_hint", ctypes.c_int * 2), ("destination_hint", ctypes.c_int * 2),
                ("flags", ctypes.c_uint)]


class Handle(ctypes.Structure):
    """CUipcMemHandle, of cuda.h."""

    _fields_ = [("bytes", ctypes.c_ubyte * 64)]


class Rows(ctypes.Structure):
    """CUDA_MEMCPY2D, of cuda.h."""

    _fields_ = [(f"{side}_{name}", kind) for side in ("from", "to") for name, kind in (
        ("x", ctypes.c_size_t), ("y", ctypes.c_size_t), ("type", ctypes.c_int), ("host", ctypes.c_void_p), ("device", ctypes.c_uint64),
        ("array", ctypes.c_void_p), ("pitch", ctypes.c_size_t))] + [("width", ctypes.c_size_t), ("height", ctypes.c_size_t)]


class Location(ctypes.Structure):
    """CUmemLocation, of cuda.h."""

    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class Wanted(ctypes.Structure):
    """CUmemAllocationProp, of cuda.h."""

    _fields_ = [("type", ctypes.c_int), ("handle_types", ctypes.c_int), ("location", Location), ("metadata", ctypes.c_void_p),
                ("flags", ctypes.c_ubyte * 8)]


class Access(ctypes.Structure):
    """CUmemAccessDesc, of cuda.h."""

    _fields_ = [("location", Location), ("flags", ctypes.c_int)]


class Driver:
    """The calls of libcuda that are needed, each checked."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        count = ctypes.c_int()
        self.call("cuDeviceGetCount", ctypes.byref(count))
        self.gpus = count.value
        self._batch, self._newer = self._find_batch()

    def call(self, name: str, *arguments) -> None:
        result = getattr(self._library, name)(*arguments)
        if result != 0:
            raise SystemExit(f"{name} failed: error {result} of the driver")

    def context(self, gpu: int) -> ctypes.c_void_p:
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(device), gpu)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxPushCurrent_v2", context)
        return context

    def allocate(self, size: int) -> int:
        """New memory of the current context's GPU."""
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address.value

    def allocate_on(self, gpu: int, size: int, own: int) -> int:
        """New memory of a GPU without a context there, for this one; whole 2 MiB."""
        address, piece, device = ctypes.c_uint64(), ctypes.c_uint64(), ctypes.c_int()
        self.call("cuDeviceGet", ctypes.byref(device), gpu)
        wanted = Wanted(type=PINNED, location=Location(DEVICE, device.value))
        self.call("cuMemCreate", ctypes.byref(piece), ctypes.c_size_t(size), ctypes.byref(wanted), ctypes.c_ulonglong(0))
        self.call("cuMemAddressReserve", ctypes.byref(address), ctypes.c_size_t(size), ctypes.c_size_t(0), ctypes.c_uint64(0),
                  ctypes.c_ulonglong(0))
        self.call("cuMemMap", address, ctypes.c_size_t(size), ctypes.c_size_t(0), piece, ctypes.c_ulonglong(0))
        self.call("cuDeviceGet", ctypes.byref(device), own)
        access = Access(Location(DEVICE, device.value), READ_WRITE)
        self.call("cuMemSetAccess", address, ctypes.c_size_t(size), ctypes.byref(access), ctypes.c_size_t(1))
        return address.value

    def share(self, size: int) -> bytes:
        """New memory of the current context's GPU, as another process finds it."""
        address, handle = ctypes.c_uint64(self.allocate(size)), Handle()
        self.call("cuIpcGetMemHandle", ctypes.byref(handle), address)
        return bytes(handle)

    def map(self, handle: bytes) -> int:
        address = ctypes.c_uint64()
        self.call("cuIpcOpenMemHandle_v2", ctypes.byref(address), Handle.from_buffer_copy(handle), MAP_LAZILY_FOR_PEERS)
        return address.value

    def _find_batch(self):
        """The newer one has no argument for the item that failed."""
        for version, newer in ((13000, True), (12080, False)):
            found, status = ctypes.c_void_p(), ctypes.c_int()
            result = self._library.cuGetProcAddress_v2(b"cuMemcpyBatchAsync", ctypes.byref(found), version, ctypes.c_uint64(0),
                                                       ctypes.byref(status))
            if result == 0 and found.value:
                return ctypes.CFUNCTYPE(ctypes.c_int)(found.value), newer
        raise SystemExit("the driver has no cuMemcpyBatchAsync: it is older than CUDA 12.8")

    def batch(self, lists, count: int, stream: ctypes.c_void_p) -> None:
        attributes, first, failed = Attributes(SOURCE_ORDER_STREAM), ctypes.c_size_t(0), ctypes.c_size_t()
        more = () if self._newer else (ctypes.byref(failed),)
        result = self._batch(*lists, ctypes.c_size_t(count), ctypes.byref(attributes), ctypes.byref(first), ctypes.c_size_t(1), *more,
                             stream)
        if result != 0:
            raise SystemExit(f"cuMemcpyBatchAsync failed: error {result} of the driver")

    def stream(self) -> ctypes.c_void_p:
        stream = ctypes.c_void_p()
        self.call("cuStreamCreate", ctypes.byref(stream), 1)
        return stream

    def event(self) -> ctypes.c_void_p:
        event = ctypes.c_void_p()
        self.call("cuEventCreate", ctypes.byref(event), 2)
        return event

    def copy_and_wait(self, to: int, source: int, size: int, stream: ctypes.c_void_p, event: ctypes.c_void_p) -> None:
        """One copy, asking all the time whether it is done."""
        self.call("cuMemcpyAsync", ctypes.c_uint64(to), ctypes.c_uint64(source), ctypes.c_size_t(size), stream)
        self.call("cuEventRecord", event, stream)
        while (result := self._library.cuEventQuery(event)) == NOT_READY:
            pass
        if result != 0:
            raise SystemExit(f"a copy failed: error {result} of the driver")

    def rows(self, copies, stream: ctypes.c_void_p) -> None:
        for copy in copies:
            self.call("cuMemcpy2DAsync_v2", ctypes.byref(copy), stream)
