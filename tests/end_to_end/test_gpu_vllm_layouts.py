"""KV caches as vLLM lays them out on a GPU, by PyTorch alone, registered as its connector does: blocks are read, all bytes compared."""

import importlib.util
import sys

import pytest

from conftest import ROOT
from gpu_workloads import REAL, gpus, start_gpu_workload
from workloads import _Commands, connect

LAYERS, TOKENS, HEADS, ELEMENTS = 6, 16, 4, 64  # of a layer; tokens, heads and elements (of K and V) of a block
BLOCK = TOKENS * HEADS * ELEMENTS
SECONDS = 120  # for PyTorch to be imported, where the disk is cold

pytestmark = pytest.mark.skipif(not REAL or importlib.util.find_spec("torch") is None,
                                reason="needs a real GPU and PyTorch: the strides and allocations are its own")


def tensors_of(layout, blocks, seed, device):
    """(all bytes, as vLLM allocates them; the tensors that its connector is given), other ones for another seed."""
    import torch

    generator = torch.Generator().manual_seed(seed)

    def memory(layers):
        made = torch.randint(-2**31, 2**31 - 1, (layers * blocks * BLOCK,), dtype=torch.int32, generator=generator)
        return made.to(device)

    if layout == "cross NHD":
        whole = memory(LAYERS)
        return [whole], [whole.view(blocks, LAYERS, TOKENS, HEADS, ELEMENTS)]
    if layout == "cross HND":
        whole = memory(LAYERS)
        return [whole], [whole.view(blocks, HEADS, LAYERS, TOKENS, ELEMENTS)]
    whole = [memory(1) for _ in range(LAYERS)]
    if layout == "HND":
        return whole, [each.view(blocks, HEADS, TOKENS, ELEMENTS) for each in whole]
    return whole, [each.view(blocks, TOKENS, HEADS, ELEMENTS).permute(0, 2, 1, 3) for each in whole]


class CacheCommands(_Commands):
    """The workload's side of the pipe."""

    def make(self, layout, blocks, seed):
        """Returns what the connector says of the layout."""
        import torch

        sys.path.insert(0, str(ROOT / "connectors" / "vllm"))
        from gantry_vllm.cache import cache_of

        self.shape, self.seed = (layout, blocks), seed
        self.whole, tensors = tensors_of(layout, blocks, seed, "cuda")
        torch.cuda.synchronize()
        cache = cache_of({f"layer {number}": tensor for number, tensor in enumerate(tensors)}, blocks)
        self.made = self.client.register_many(cache.specs)
        return cache.layout

    def read_blocks(self, peer, workload, local, remote):
        view = self.client.view(workload, peer=peer, pairs=["kv.*"])
        status = self.client.read(view, local_blocks=local, remote_blocks=remote, deadline=20.0).wait(30)
        return status.state, status.path, status.bytes

    def wrong(self, seed, local, remote):
        """How many elements differ from: mine, with the blocks `remote` of the cache of that seed at `local`."""
        import torch

        whole, mine = tensors_of(*self.shape, self.seed, "cpu")
        _, theirs = tensors_of(*self.shape, seed, "cpu")
        for into, out in zip(mine, theirs):
            into[local] = out[remote]
        torch.cuda.synchronize()
        return [int((expected != found.cpu()).sum()) for expected, found in zip(whole, self.whole)]


@pytest.mark.parametrize("blocks", [40, 1024], ids=["allocations-shared", "allocations-of-their-own"])
@pytest.mark.parametrize("layout", ["NHD", "HND", "cross NHD", "cross HND"])
def test_blocks_of_vllms_layouts(gpus, start_sidecar, start_gpu_workload, layout, blocks):
    a, b = (start_sidecar(name, workers=2) for name in "ab")
    connect(a, b)
    reader = start_gpu_workload(a, "reader", commands=CacheCommands)
    owner = start_gpu_workload(b, "owner", commands=CacheCommands)
    for workload, seed in ((reader, 1), (owner, 2)):
        workload.post("make", layout, blocks, seed)
    assert reader.result(SECONDS) == owner.result(SECONDS)
    local, remote = [0, 7, 8, 9, blocks - 1, 3], [5, 4, 3, 2, 0, blocks - 1]
    state, path, moved = reader.do("read_blocks", "b", "owner", local, remote)
    assert (state, path, moved) == ("succeeded", "ipc", len(local) * LAYERS * BLOCK * 4)
    assert not any(reader.do("wrong", 2, local, remote, seconds=SECONDS))
    assert not any(owner.do("wrong", 1, [], [], seconds=SECONDS))
