"""KV caches as vLLM lays them out on a GPU, by PyTorch alone, registered as its connector does: blocks are read, all bytes compared."""

import importlib.util
import sys

import pytest

from conftest import ROOT
from gpu_workloads import REAL, gpu_count, gpus, start_gpu_workload
from vllm_layouts import GROUPS, ONE_GROUP, bytes_of, tensors_of
from workloads import _Commands, connect

SECONDS = 120  # for PyTorch to be imported, where the disk is cold

pytestmark = pytest.mark.skipif(not REAL or importlib.util.find_spec("torch") is None,
                                reason="needs a real GPU and PyTorch: the strides and allocations are its own")


class CacheCommands(_Commands):
    """The workload's side of the pipe."""

    def make(self, layout, blocks, seed, ordinal):
        """On this GPU. Returns what the connector says of the layout."""
        import torch

        sys.path.insert(0, str(ROOT / "connectors" / "vllm"))
        from gantry_vllm.cache import cache_of

        self.shape, self.seed = (layout, blocks), seed
        self.whole, tensors = tensors_of(layout, blocks, seed, f"cuda:{ordinal}")
        torch.cuda.synchronize(ordinal)
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
        torch.cuda.synchronize(self.whole[0].device)
        return [int((expected != found.cpu()).sum()) for expected, found in zip(whole, self.whole)]


def blocks_are_read(start_sidecar, start_gpu_workload, layout, blocks, owners_gpu=0):
    a, b = (start_sidecar(name, workers=2) for name in "ab")
    connect(a, b)
    reader = start_gpu_workload(a, "reader", commands=CacheCommands)
    owner = start_gpu_workload(b, "owner", commands=CacheCommands)
    for workload, seed, gpu in ((reader, 1, 0), (owner, 2, owners_gpu)):
        workload.post("make", layout, blocks, seed, gpu)
    assert reader.result(SECONDS) == owner.result(SECONDS)
    local, remote = [0, 7, 8, 9, blocks - 1, 3], [5, 4, 3, 2, 0, blocks - 1]
    state, path, moved = reader.do("read_blocks", "b", "owner", local, remote)
    assert (state, path, moved) == ("succeeded", "ipc", len(local) * bytes_of(layout))
    assert not any(reader.do("wrong", 2, local, remote, seconds=SECONDS))
    assert not any(owner.do("wrong", 1, [], [], seconds=SECONDS))


@pytest.mark.parametrize("blocks", [40, 1024], ids=["allocations-shared", "allocations-of-their-own"])
@pytest.mark.parametrize("layout", ONE_GROUP)
def test_blocks_of_vllms_layouts(gpus, start_sidecar, start_gpu_workload, layout, blocks):
    blocks_are_read(start_sidecar, start_gpu_workload, layout, blocks)


@pytest.mark.parametrize("layout", GROUPS)
def test_blocks_of_layouts_of_several_groups(gpus, start_sidecar, start_gpu_workload, layout):
    blocks_are_read(start_sidecar, start_gpu_workload, layout, 40)


@pytest.mark.skipif(REAL and gpu_count() < 2, reason="needs two GPUs, and this machine has one")
@pytest.mark.parametrize("layout", ONE_GROUP + GROUPS)
def test_blocks_of_layouts_of_another_gpu(gpus, start_sidecar, start_gpu_workload, layout):
    blocks_are_read(start_sidecar, start_gpu_workload, layout, 40, owners_gpu=1)
