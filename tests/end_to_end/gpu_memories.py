"""GPU memory of which a test knows every byte: what was moved is where it should be, and nothing beside it has changed."""

import os

import pytest

from gpu_workloads import REAL

_ATTEMPTS = 64  # to have an address again


def difference(found, wanted):
    """Where two byte strings first differ, in words that fit a line; empty when they do not."""
    if found == wanted:
        return ""
    if len(found) != len(wanted):
        return f"{len(found)} bytes, and not {len(wanted)}"
    places = [at for at, (here, there) in enumerate(zip(found, wanted)) if here != there]
    return f"{len(places)} of {len(found)} bytes differ, in [{places[0]}, {places[-1]}]"


class GpuMemory:
    """One allocation of a workload on its GPU, filled with random bytes, and what should be in it."""

    def __init__(self, workload, name, size):
        self.prepare(workload, name, size)
        self.address = workload.do("allocate", name, size)
        self.renew()

    def prepare(self, workload, name, size):
        self.workload, self.name, self.size = workload, name, size
        fd = os.memfd_create(name, os.MFD_CLOEXEC)  # for what it is filled with, and what is found in it
        self.file = open(fd, "r+b")
        self.path = f"/proc/{os.getpid()}/fd/{fd}"

    def renew(self):
        """Other bytes, everywhere."""
        self.data = bytearray(os.urandom(self.size))
        self.file.seek(0)
        self.file.write(self.data)
        self.file.flush()
        self.workload.do("fill_from", self.name, self.path)

    def found(self):
        """What is in it now."""
        self.workload.do("look_into", self.name, self.size, self.path)
        self.file.seek(0)
        return self.file.read()

    def register(self, *specs):
        """(name, offset, length[, access[, block_bytes]])"""
        self.workload.do("register_gpu", self.name, *specs)

    def receives(self, to, source, start, length):
        """What a transfer does from `start` of another memory, as it was before."""
        self.data[to:to + length] = source.data[start:start + length]

    def check(self):
        """Every byte, those around the buffers too."""
        assert difference(self.found(), self.data) == "", self.name


def allocate_again(workload, name, size, address):
    """Memory at the address of some that was freed. A driver may decline, and then the test has not been made: it says so."""
    if workload.do("allocate_at", name, size, address, _ATTEMPTS):
        return
    assert REAL, "the fake uses an address again"
    pytest.skip(f"NOT TESTED: in {_ATTEMPTS} allocations of {size} bytes the driver did not use {address:#x} again")


class SameAddress(GpuMemory):
    """As GpuMemory, where a memory of the same workload was, which is freed for it."""

    def __init__(self, old):
        old.workload.do("free", old.name)
        self.prepare(old.workload, f"{old.name} again", old.size)
        self.address = old.address
        allocate_again(self.workload, self.name, self.size, self.address)
        self.renew()


def succeeded(answer, path="ipc"):
    """The view of a transfer that came to its end by this path."""
    status, view = answer
    assert (status, view.get("state"), view.get("path")) == (200, "succeeded", path), view
    return view
