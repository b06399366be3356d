"""GPU memory of which a test knows every byte: what was moved is where it should be, and nothing beside it has changed."""

import os


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
        self.workload, self.name, self.size = workload, name, size
        self.address = workload.do("allocate", name, size)
        self.renew()

    def renew(self):
        """Other bytes, everywhere."""
        self.data = bytearray(os.urandom(self.size))
        self.workload.do("fill", self.name, 0, bytes(self.data))

    def register(self, *specs):
        """(name, offset, length[, access[, block_bytes]])"""
        self.workload.do("register_gpu", self.name, *specs)

    def receives(self, to, source, start, length):
        """What a transfer does from `start` of another memory, as it was before."""
        self.data[to:to + length] = source.data[start:start + length]

    def check(self):
        """Every byte, those around the buffers too."""
        assert difference(self.workload.do("look", self.name, 0, self.size), bytes(self.data)) == "", self.name

    def forget(self):
        """Takes over what is in it, of which only a part may have been moved."""
        self.data = bytearray(self.workload.do("look", self.name, 0, self.size))


def succeeded(answer, path="ipc"):
    """The view of a transfer that came to its end by this path."""
    status, view = answer
    assert (status, view.get("state"), view.get("path")) == (200, "succeeded", path), view
    return view
