"""Tensors on a GPU: PyTorch's own, or, without it, such as its caching allocator makes of the driver's memory.

Both kinds of memory answer to the same calls: empty(), bytes_of(), put() and get(). PyTorch is imported where it is used, by
the workload's process, because the allocator reads its settings then.
"""

import os

from gpu_driver import Tensor
from gpu_workloads import GpuCommands
from workloads import BOTH, MiB, gantry

ROUND = 512  # the allocator hands out multiples of it
SMALL_MAX, LARGE_MIN = MiB, 10 * MiB  # of requests; beyond, one has a segment of its own
SMALL_SEGMENT, LARGE_SEGMENT, OWN_SEGMENT_ROUND = 2 * MiB, 20 * MiB, 2 * MiB
EXPANDABLE_RANGE = 1 << 30  # addresses; PyTorch reserves more than the GPU has memory


def rounded(size, to=ROUND):
    return -(-size // to) * to


class StandInTensor(Tensor):
    """Rows of equal size in one run of bytes; indexing gives the first axis, a slice of a tensor of one axis some bytes."""

    def __init__(self, address, *shape):
        self.shape = shape
        size = 1
        for extent in shape:
            size *= extent
        super().__init__(address, size)

    def __getitem__(self, key):
        if isinstance(key, slice):
            start, stop, _ = key.indices(self.shape[0])
            return StandInTensor(self.address + start, stop - start)
        return StandInTensor(self.address + key * (self.nbytes // self.shape[0]), *self.shape[1:])

    @property
    def __cuda_array_interface__(self):
        return {"version": 3, "typestr": "|u1", "shape": self.shape, "strides": None, "data": (self.address, False)}


class StandInMemory:
    """Bytes in the order in which they were asked for, small and large ones apart, in segments of the caching allocator's sizes.
    Of an expandable segment these are the pieces."""

    def __init__(self, driver, expandable):
        self.driver, self.expandable = driver, expandable
        self.free = {}  # by the size of segments: (where the free rest of the last begins, where it ends)

    def empty(self, *shape):
        size = StandInTensor(0, *shape).nbytes
        wanted = rounded(size)
        segment = (SMALL_SEGMENT if wanted <= SMALL_MAX else
                   LARGE_SEGMENT if wanted < LARGE_MIN or self.expandable else rounded(wanted, OWN_SEGMENT_ROUND))
        start, end = self.free.get(segment, (0, 0))
        if end - start < wanted:
            start, end = self._grow(segment, start, end, wanted)
        self.free[segment] = (start + wanted, end)
        return StandInTensor(start, *shape)

    def _grow(self, segment, start, end, wanted):
        if not self.expandable:
            start = self.driver.allocate(segment)
            return start, start + segment
        if end == 0:
            start = end = self.driver.reserve(EXPANDABLE_RANGE)
        while end - start < wanted:
            self.driver.map_piece(end, segment)
            end += segment
        return start, end

    def segments_are_expandable(self):
        return self.expandable

    def put(self, tensor, data):
        self.driver.write(tensor.address, data)

    def get(self, tensor):
        return self.driver.read(tensor.address, tensor.nbytes)


class TorchMemory:
    """PyTorch's tensors of bytes on one GPU."""

    def __init__(self, ordinal, expandable):
        # The name until PyTorch 2.9, and the one since.
        for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
            os.environ.pop(name, None)
            if expandable:
                os.environ[name] = "expandable_segments:True"
        import torch
        self.torch, self.device = torch, torch.device("cuda", ordinal)

    def empty(self, *shape):
        return self.torch.empty(shape, dtype=self.torch.uint8, device=self.device)

    def segments_are_expandable(self):
        said = {segment["is_expandable"] for segment in self.torch.cuda.memory_snapshot()}
        assert len(said) == 1, said
        return said == {True}

    def put(self, tensor, data):
        tensor.view(-1).copy_(self.torch.frombuffer(bytearray(data), dtype=self.torch.uint8))
        self.torch.cuda.synchronize(self.device)

    def get(self, tensor):
        data = bytearray(tensor.numel())
        self.torch.frombuffer(data, dtype=self.torch.uint8).copy_(tensor.view(-1))
        return bytes(data)


class TensorCommands(GpuCommands):
    """A workload whose memory is tensors, which it keeps by name; views of them are registered."""

    def use_tensors(self, ordinal, of_torch, expandable):
        if of_torch:
            self.memory = TorchMemory(ordinal, expandable)
        else:
            self.use_gpu(ordinal)
            self.memory = StandInMemory(self.driver, expandable)
        self.tensors = {}

    def make(self, name, *shape):
        self.tensors[name] = self.memory.empty(*shape)
        return self.tensors[name].data_ptr()

    def expandable(self):
        return self.memory.segments_are_expandable()

    def put_from(self, names, path):
        """The bytes of several, one after the other, of a file."""
        with open(path, "rb") as file:
            for name in names:
                self.memory.put(self.tensors[name], file.read(self.tensors[name].numel()))

    def get_into(self, names, path):
        with open(path, "wb") as file:
            for name in names:
                file.write(self.memory.get(self.tensors[name]))

    def register_tensor(self, buffer, name):
        self.buffers[buffer] = self.client.register(buffer, self.tensors[name], access=BOTH)
        return self._places(self.tensors[name])

    def register_part(self, buffer, name, start, stop):
        part = self.tensors[name][start:stop]
        self.buffers[buffer] = self.client.register(buffer, part, access=BOTH)
        return self._places(part)

    def register_rows(self, buffer, name, first, last, block_bytes):
        """The rows of a cache, each a layer, as one call."""
        layers = [self.tensors[name][row] for row in range(first, last)]
        made = self.client.register_layers(buffer, layers, access=BOTH,
                                           layout=gantry.Layout(block_bytes))
        self.buffers |= {one.name: one for one in made}

    def _places(self, view):
        """(where the allocation begins, offset in it, bytes) of each that a view lies in."""
        return self.client.resolve(view)
