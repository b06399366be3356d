"""Checks of parts of the connector that need vLLM's Python and no engine: connector_parts.py NAME."""

import sys
from types import SimpleNamespace

import torch
from gantry_vllm.cache import cache_of, joined
from gantry_vllm.handshake import Handshake, differences
from gantry_vllm.metadata import Load, StepMetadata
from gantry_vllm.tensor_parallel import BlockShape, Topology, block_shape, slices_of
from gantry_vllm.vllm_versions import BlockTable, Loads
from vllm.v1.kv_cache_interface import (FullAttentionSpec, KVCacheTensor, MLAAttentionSpec, compute_layout_strides,
                                        create_kv_cache_views)
from vllm.v1.kv_cache_layout import KVCacheLayout

TOKENS, HEADS, ELEMENTS, BLOCKS = 16, 4, 64, 10
BLOCK_BYTES = TOKENS * HEADS * ELEMENTS * 4


def output_of(new=(), cached=(), resumed=(), finished=()):
    """As SchedulerOutput, with (request, blocks) in `new` and `cached`."""
    return SimpleNamespace(
        scheduled_new_reqs=[SimpleNamespace(req_id=name, block_ids=(blocks,)) for name, blocks in new],
        scheduled_cached_reqs=SimpleNamespace(req_ids=[name for name, _ in cached], resumed_req_ids=set(resumed),
                                              new_block_ids=[None if blocks is None else (blocks,) for _, blocks in cached]),
        finished_req_ids=set(finished))


def blocks_of_requests():
    table = BlockTable()
    table.follow(output_of(new=[("a", [3, 2]), ("b", [7])]))
    table.follow(output_of(cached=[("a", [9]), ("b", None)]))
    assert table.get_block_ids("a") == ([3, 2, 9],) and table.get_block_ids("b") == ([7],)
    table.follow(output_of(cached=[("a", [5, 6])], resumed=["a"], finished=["b"]))
    assert table.get_block_ids("a") == ([5, 6],) and table.get_block_ids("b") == ()


def blocks_of_failed_reads():
    loads, source = Loads(), (Handshake("peer", "unix:/peer", "workload"),)
    loads.begin(StepMetadata(load=[Load(name, name, source, blocks, blocks) for name, blocks in (("a", [1, 2]), ("b", [3]))]))
    loads.end({"b"}, set())
    assert loads.take_failed() == set()
    loads.end({"a"}, {"a"})
    assert loads.take_failed() == {1, 2} and loads.take_failed() == set()


def nhd():
    return torch.zeros(BLOCKS, TOKENS, HEADS, ELEMENTS).permute(0, 2, 1, 3)


def layouts_with_equal_blocks_differ():
    caches = [cache_of({"layer": tensor}, BLOCKS) for tensor in (nhd(), torch.zeros(BLOCKS, HEADS, TOKENS, ELEMENTS))]
    assert [cache.specs[0].layout.block_bytes for cache in caches] == [BLOCK_BYTES] * 2
    why, = differences(*({"layout": cache.layout} for cache in caches))
    assert "float32 [16, heads, 64]' here, " in why and "float32 [heads, 16, 64]' at the prefiller" in why


def layers_and_blocks():
    cache = cache_of({"first": nhd(), "second": nhd()}, BLOCKS)
    assert [spec.name for spec in cache.specs] == ["kv.0", "kv.1"] and cache.layout.startswith("2 of float32 ")
    whole = torch.zeros(BLOCKS, 6, TOKENS, HEADS, ELEMENTS)
    assert cache_of({"all": whole}, BLOCKS).specs[0].layout.block_bytes == 6 * BLOCK_BYTES
    views = cache_of({"first": whole[:, 0], "second": whole[:, 1]}, BLOCKS)
    assert {spec.layout[:2] for spec in views.specs} == {(BLOCK_BYTES, 6 * BLOCK_BYTES)}
    # The attention's blocks may be parts of the cache's.
    assert cache_of({"halves": nhd()}, BLOCKS // 2).specs[0].layout.block_bytes == 2 * BLOCK_BYTES
    # Layers of several groups lie over each other.
    over = nhd()
    assert len(cache_of({"full": over, "sliding": over}, BLOCKS).specs) == 1


def layers_of(layout, spec, count):
    """The tensors of so many layers in one allocation, as vLLM makes them."""
    names = [f"layer.{i}" for i in range(count)]
    raw = torch.zeros(count * BLOCKS * spec.page_size_bytes, dtype=torch.int8)
    layer, block, *_ = compute_layout_strides(spec, BLOCKS, count, layout)
    tensor = KVCacheTensor(size=raw.numel(), layers=names, layer_stride=layer, block_stride=block)
    return dict(zip(names, create_kv_cache_views(raw, spec, BLOCKS, layout, tensor)))


def layers_that_share_a_block():
    """As vLLM makes them in the layout BLHNC, and in others whose blocks are not one piece."""
    attention = FullAttentionSpec(block_size=TOKENS, num_kv_heads=HEADS, head_size=ELEMENTS // 2, dtype=torch.float32)
    for layout in (KVCacheLayout.BLHNC, KVCacheLayout.BLNHC):
        layers = layers_of(layout, attention, 6)
        whole, = joined(layers).values()
        assert whole.shape[:2] == (BLOCKS, 6)
        assert all((whole[:, i].data_ptr(), whole[:, i].stride()) == (each.data_ptr(), each.stride()) for i, each in enumerate(layers.values()))
        spec, = cache_of({"all": whole}, BLOCKS).specs
        assert spec.layout.block_bytes == 6 * BLOCK_BYTES
        less = {name: layers[name] for name in list(layers)[1:]}
        assert joined(less) is less
    for layout in (KVCacheLayout.LBHNC, KVCacheLayout.LBNHC, KVCacheLayout.BHLNC):
        layers = layers_of(layout, attention, 6)
        assert joined(layers) is layers, layout


LATENT = 576  # numbers of a token: latents of keys and values, and the part that is rotated


def moved_whole(tensor):
    """A cache of multi-head latent attention: each rank has all of it, and a read takes whole blocks of one of them."""
    size = TOKENS * LATENT * 2
    shape = block_shape(tensor)
    assert shape == BlockShape(1, 1, size), shape
    spec, = (cache := cache_of({"layer": tensor}, BLOCKS)).specs
    assert spec.layout.block_bytes == size and cache.layout.startswith("1 of bfloat16 ["), cache
    for mine, theirs in ((1, 1), (1, 2), (2, 1), (4, 2), (2, 8)):
        shares = [Topology(rank, mine, 1).shares(theirs) for rank in range(mine)]
        assert all((share.local_first, share.remote_first, share.count) == (0, 0, 1) for share, in shares), shares
        assert all(slices_of(share, shape, shape) is None for share, in shares)
        read = {share.rank for share, in shares}
        given_back = [rank for reader in range(mine) for rank in Topology(reader, mine, 1).unread(theirs)]
        assert sorted([*read, *given_back]) == list(range(theirs)), (mine, theirs)


def latent_attention():
    """[blocks, tokens, numbers], as vLLM up to 0.31 has it."""
    moved_whole(torch.zeros(BLOCKS, TOKENS, LATENT, dtype=torch.bfloat16))


def latent_attention_with_an_axis_of_heads():
    """As vLLM 0.32 makes it."""
    spec = MLAAttentionSpec(block_size=TOKENS, num_kv_heads=1, head_size=LATENT, dtype=torch.bfloat16)
    for layout in (KVCacheLayout.LBHNC, KVCacheLayout.LBNHC):
        layer, = layers_of(layout, spec, 1).values()
        assert layer.shape == (BLOCKS, 1, TOKENS, LATENT), layer.shape
        moved_whole(layer)


def caches_that_cannot_be_offered():
    whole = torch.zeros(6, BLOCKS, TOKENS, HEADS, ELEMENTS)
    for tensor in (whole, whole[:, :, ::2], whole.permute(1, 0, 2, 3, 4)):
        try:
            cache_of({"layer": tensor}, BLOCKS)
        except ValueError as why:
            assert "layer layer" in str(why), why
        else:
            raise AssertionError(f"shape {tuple(tensor.shape)} and strides {tensor.stride()} are taken")


CHECKS = {check.__name__: check for check in (blocks_of_requests, blocks_of_failed_reads, layouts_with_equal_blocks_differ,
                                              layers_and_blocks, layers_that_share_a_block, latent_attention,
                                              latent_attention_with_an_axis_of_heads, caches_that_cannot_be_offered)}

if __name__ == "__main__":
    CHECKS[sys.argv[1]]()
