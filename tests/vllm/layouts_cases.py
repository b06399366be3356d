"""The layouts that tests of GPUs make by PyTorch alone are those of vLLM's own allocation."""

import sys
import unittest

import torch
from backends import ROOT
from gantry_vllm.cache import cache_of
from refusal_cases import vllm_config
from vllm.v1.core.kv_cache_utils import get_kv_cache_config_from_groups, get_kv_cache_groups
from vllm.v1.kv_cache_interface import ChunkedLocalAttentionSpec, FullAttentionSpec, MambaSpec
from vllm.v1.kv_cache_layout import KVCacheLayout
from vllm.v1.worker.utils import allocate_kv_cache

sys.path.insert(0, str(ROOT / "tests" / "end_to_end"))
from vllm_layouts import ELEMENTS, GROUPS, HEADS, PAGE, STATE, TOKENS, bytes_of, tensors_of  # noqa: E402

BLOCKS = 40
# vLLM's names of the orders of axes: layer, block, head, token.
ORDERS = {"NHD": "LBNHC", "HND": "LBHNC", "cross NHD": "BLNHC", "alone": "LBNHC"}


def keys(kind=FullAttentionSpec, **more):
    return kind(block_size=TOKENS, num_kv_heads=HEADS, head_size=ELEMENTS // 2, dtype=torch.float32, **more)


def state(page):
    return MambaSpec(block_size=TOKENS, shapes=((3, 41), (4, 8, 8)), dtypes=(torch.float32, torch.float32), mamba_cache_mode="align",
                     page_size_padded=page)


def chunk():
    return keys(ChunkedLocalAttentionSpec, attention_chunk_size=4 * TOKENS)


MODELS = {"states": lambda: [state(PAGE), state(PAGE), keys()] * 2, "alone": lambda: [state(None)] * 2,
          "chunks": lambda: [chunk(), chunk(), chunk(), keys()]}


def allocated(layout):
    """Returns the tensors that vLLM gives its connector."""
    model, order = layout.split(maxsplit=1)
    config = vllm_config()
    config.cache_config.kv_cache_layout = ORDERS[order]
    specs = {f"layer.{i}": spec for i, spec in enumerate(MODELS["alone" if order == "alone" else model]())}
    cache = get_kv_cache_config_from_groups(config, get_kv_cache_groups(config, specs), BLOCKS * bytes_of(layout))
    assert cache.num_blocks == BLOCKS
    made = allocate_kv_cache(cache, torch.device("cpu"), KVCacheLayout[ORDERS[order]])
    return list(made.values())


def places(tensors):
    """Where each tensor's elements lie in the allocation, in bytes."""
    first = min(tensor.data_ptr() for tensor in tensors)
    return sorted((tensor.data_ptr() - first, tuple(tensor.shape), tuple(step * tensor.element_size() for step in tensor.stride()),
                   tensor.element_size()) for tensor in tensors)


class Layouts(unittest.TestCase):

    def test_layouts_of_several_groups(self):
        for layout in GROUPS:
            with self.subTest(layout):
                whole, tensors = tensors_of(layout, BLOCKS, 1, "cpu")
                self.assertEqual(places(tensors), places(allocated(layout)))
                self.assertEqual(whole[0].numel() * 4, BLOCKS * bytes_of(layout))

    def test_a_block_is_registered_once_for_all_groups(self):
        for layout in GROUPS:
            with self.subTest(layout):
                specs = cache_of({str(i): tensor for i, tensor in enumerate(allocated(layout))}, BLOCKS).specs
                self.assertEqual(sum(spec.layout.block_bytes for spec in specs), bytes_of(layout))
