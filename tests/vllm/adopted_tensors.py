"""Arrays of numpy and tensors of the CPU that are registered where they are: adopted_tensors.py RUN_DIR."""

import ctypes
import sys

import gantry
import numpy
import torch

MIB = 1 << 20
M_MMAP_THRESHOLD = -3


def read_back(client, name, length):
    with client.arena(length) as arena, client.register("copy", arena.view(0, length)) as local:
        client.read(local, f"engine/{name}", ranges=[(0, 0, 0, 0, length)], wait=20).wait(20)
        return bytes(arena[:length])


def arrays(client):
    array = numpy.arange(10 * MIB, dtype=numpy.int32)
    address = array.ctypes.data
    part = array[5:-7]
    with client.register("array", part, adopt=True):
        assert read_back(client, "array", part.nbytes) == part.tobytes()
        array *= 3
        assert read_back(client, "array", part.nbytes) == part.tobytes()
        assert len(client.resolve(array)) == 1  # adopted whole
        try:
            array.resize(20 * MIB)
            raise AssertionError("an array was resized while it is registered")
        except ValueError:
            pass
    assert array.ctypes.data == address and array[7] == 21 and array[-1] == (10 * MIB - 1) * 3
    array.resize(20 * MIB, refcheck=False)
    array[-1] = 5


def tensors(client):
    cache = torch.randn(256, 2, 64, 4, 128).to(torch.bfloat16)
    assert cache.untyped_storage().nbytes() >= 32 * MIB
    layers = [cache[:, i] for i in range(2)]  # blocks at a step
    before = cache.clone()
    buffers = client.register_layers("kv", layers, adopt=True, access=("remote_read", "remote_write"))
    assert torch.equal(cache, before)
    block = cache[0, 0].nbytes
    target = torch.zeros(256, *cache.shape[2:], dtype=torch.bfloat16)
    local = client.register("target", target, adopt=True, layout=gantry.Layout(block))
    client.read(local, "engine/kv.1", local_blocks=[0, 1], remote_blocks=[63, 5], wait=20).wait(20)
    assert torch.equal(target[0], cache[63, 1]) and torch.equal(target[1], cache[5, 1])
    cache[5, 1] += 1
    target[9] = -1
    client.read(local, "engine/kv.1", local_blocks=[1], remote_blocks=[5], wait=20).wait(20)
    assert torch.equal(target[1], cache[5, 1]) and not torch.equal(target[1], before[5, 1])
    client.write(local, "engine/kv.0", local_blocks=[9], remote_blocks=[3], wait=20).wait(20)
    assert torch.equal(cache[3, 0], target[9]) and torch.equal(cache[3, 1], before[3, 1])
    for buffer in [*buffers, local]:
        buffer.unregister()
    cache.add_(1)


def small_ones_are_refused(client):
    for small in (numpy.zeros(1000), torch.zeros(1000)):
        try:
            client.register("small", small, adopt=True)
            raise AssertionError("a block that shares its pages was adopted")
        except gantry.Error as error:
            assert error.code == "not_exportable" and "malloc.mmap_threshold" in error.hint, error


ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, MIB)  # malloc maps larger blocks by themselves
with gantry.Client(sys.argv[1], "engine") as client:
    for check in (arrays, tensors, small_ones_are_refused):
        check(client)
