"""Virtual GPU memory of a workload: a range of addresses with pieces of memory in it, as PyTorch's expandable segments are."""

import ctypes

from gpu_workloads import GpuCommands

PINNED, POSIX_FD, ON_DEVICE, READ_WRITE = 1, 1, 1, 3  # cuda.h


class _Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class _AllocationProp(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("handle_types", ctypes.c_int), ("location", _Location), ("win32", ctypes.c_void_p),
                ("flags", ctypes.c_ubyte * 8)]


class _Access(ctypes.Structure):
    _fields_ = [("location", _Location), ("flags", ctypes.c_int)]


class PieceCommands(GpuCommands):
    """What it allocates is made of pieces when their sizes are told."""

    def __init__(self, run_dir, name):
        super().__init__(run_dir, name)
        self.pieces = {}  # sizes, by name

    def allocate_pieces(self, name, sizes):
        base = ctypes.c_uint64()
        self.driver.call("cuMemAddressReserve", ctypes.byref(base), ctypes.c_size_t(sum(sizes)), ctypes.c_size_t(0),
                         ctypes.c_uint64(0), ctypes.c_uint64(0))
        self.allocations[name], self.pieces[name] = base.value, list(sizes)
        for index in range(len(sizes)):
            self._map(name, index)
        return base.value

    def map_anew(self, name, index):
        """Other memory at the same addresses."""
        self.unmap(name, index)
        self._map(name, index)

    def unmap(self, name, index):
        self.driver.call("cuMemUnmap", self._address(name, index), ctypes.c_size_t(self.pieces[name][index]))

    def _address(self, name, index):
        return ctypes.c_uint64(self.allocations[name] + sum(self.pieces[name][:index]))

    def _map(self, name, index):
        place, size = self._address(name, index), ctypes.c_size_t(self.pieces[name][index])
        device = _Location(ON_DEVICE, self.driver.device.value)
        wanted, piece = _AllocationProp(PINNED, POSIX_FD, device), ctypes.c_uint64()
        self.driver.call("cuMemCreate", ctypes.byref(piece), size, ctypes.byref(wanted), ctypes.c_uint64(0))
        self.driver.call("cuMemMap", place, size, ctypes.c_size_t(0), piece, ctypes.c_uint64(0))
        self.driver.call("cuMemRelease", piece)  # the mapping keeps it
        self.driver.call("cuMemSetAccess", place, size, ctypes.byref(_Access(device, READ_WRITE)), ctypes.c_size_t(1))
