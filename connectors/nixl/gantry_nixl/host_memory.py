"""Host memory that a sidecar can map."""

from __future__ import annotations

import fcntl
import mmap
import os

_F_ADD_SEALS, _F_SEAL_SHRINK, _F_SEAL_GROW = 1033, 0x2, 0x4


def host_memory(size: int, name: str = "gantry-nixl") -> mmap.mmap:
    """Returns shared memory of `size` bytes, with every page present, sealed against other sizes.

    It has the buffer protocol: numpy.frombuffer(memory), torch.frombuffer(memory, dtype=...). Register it with NIXL as DRAM. It keeps
    its own descriptor, by which the backend finds it, until it is closed or collected. A child of fork shares it.
    """
    if size <= 0:
        raise ValueError(f"host memory of {size} bytes")
    fd = os.memfd_create(name, os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    try:
        os.posix_fallocate(fd, 0, size)
        fcntl.fcntl(fd, _F_ADD_SEALS, _F_SEAL_SHRINK | _F_SEAL_GROW)
        return mmap.mmap(fd, size)
    finally:
        os.close(fd)
