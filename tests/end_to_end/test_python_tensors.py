"""Tensors of engines' caches: which bytes are registered, and which blocks they have, by shape and strides alone."""

import array
import random

import pytest

from python_client_parts import MIB, arena, client, code_of, gantry, pair  # noqa: F401

from gantry.address import address_of

ADDRESS = 0x7F0000000000
BLOCKS, LAYERS = 3, 6


class Tensor:
    """What a tensor of torch says of its memory; strides are counted in elements."""

    def __init__(self, shape, stride, address=ADDRESS, item=2, offset=0):
        self.shape = shape
        self.stride = lambda: stride
        self.storage_offset = lambda: offset
        self.data_ptr = lambda: address + offset * item  # as torch has it
        self.element_size = lambda: item


NHD = ((4096, 64, 256, 1), (BLOCKS, 4, 16, 64))
HND = ((4096, 1024, 64, 1), (BLOCKS, 4, 16, 64))


# A connector gets these tensors from vLLM: (stride, shape), bytes of a block, step of the blocks.
@pytest.mark.parametrize("strides_and_shape, block, step", [
    (NHD, 4096, 4096),
    (HND, 4096, 4096),
    (((24576, 4096, 256, 64, 1), (BLOCKS, LAYERS, 16, 4, 64)), 24576, 24576),
    (((24576, 6144, 1024, 64, 1), (BLOCKS, 4, LAYERS, 16, 64)), 24576, 24576),
    (((24576, 64, 256, 1), (BLOCKS, 4, 16, 64)), 4096, 24576),     # one layer of the third, NHD
    (((24576, 1024, 64, 1), (BLOCKS, 4, 16, 64)), 4096, 24576),    # one layer in [blocks, layers, heads, tokens]
    (((4096, 4096, 256, 1), (BLOCKS, 1, 16, 256)), 4096, 4096),
    (((4096, 7, 256, 1), (BLOCKS, 1, 16, 256)), 4096, 4096),       # the stride of one element means nothing
    (((9999, 1024, 64, 1), (1, 4, 16, 64)), 4096, 4096),
], ids=str)
def test_the_layouts_of_engines_have_their_blocks(strides_and_shape, block, step):
    stride, shape = strides_and_shape
    place = gantry.layout_of(Tensor(shape, stride, offset=8))
    assert place.address == ADDRESS + 16
    assert place.layout == gantry.Layout(2 * block, 2 * step, shape[0])
    assert place.length == 2 * ((shape[0] - 1) * step + block)
    assert place.dense == (step == block)


def test_one_dimension_and_permuted_blocks_are_dense_and_have_no_layout():
    assert gantry.layout_of(Tensor((10,), (1,))) == (ADDRESS, 20, None, True)
    assert gantry.layout_of(Tensor((4, 6), (1, 4))) == (ADDRESS, 48, None, True)
    assert gantry.layout_of(Tensor((), ())) == (ADDRESS, 2, None, True)
    assert gantry.layout_of(Tensor((0, 4), (4, 1))) == (ADDRESS, 0, None, True)


@pytest.mark.parametrize("shape, stride, trouble", [
    ((3, 4, 8), (64, 16, 1), "dimension 1 has a stride of 32 bytes, which leaves holes; 16 would be dense"),
    ((3, 4, 8), (64, 8, 2), "dimension 2 has a stride of 4 bytes, which leaves holes; 2 would be dense"),
    ((3, 4, 8), (0, 8, 1), "dimension 0 has a stride of 0 bytes, which shows the same bytes again; 64 would be dense"),
    ((3, 4, 8), (16, 8, 1), "dimension 0 has a stride of 32 bytes, which shows the same bytes again; 64 would be dense"),
    ((3, 4, 8), (32, 0, 1), "dimension 1 has a stride of 0 bytes, which shows the same bytes again; 2 would be dense"),
    ((3, 4, 8), (-32, 8, 1), "dimension 0 has a stride of -64 bytes, which goes backwards"),
    ((8,), (3,), "dimension 0 has a stride of 6 bytes, which leaves holes; 2 would be dense")], ids=str)
def test_what_is_refused_names_the_stride(shape, stride, trouble):
    with pytest.raises(gantry.Error) as caught:
        gantry.layout_of(Tensor(shape, stride))
    assert caught.value.code == "invalid_argument"
    assert caught.value.message.startswith(f"this Tensor of shape {list(shape)} is not dense: ")
    assert trouble in caught.value.message


def test_arrays_of_the_buffer_protocol_may_be_strided():
    memory = memoryview(bytearray(64))
    assert gantry.layout_of(memory.cast("B", (4, 16))).layout == gantry.Layout(16, 16, 4)
    assert code_of(gantry.layout_of, memory[::2]) == "invalid_argument"
    assert code_of(gantry.layout_of, memory[::-1]) == "invalid_argument"
    assert address_of(array.array("d", [0.0] * 4))[1] == 32


def listed(client, name):
    return next(one for one in client.request("GET", f"/v1/buffers?workload={client.workload}")["buffers"]
                if one["name"] == name)


def test_a_tensor_at_a_step_brings_its_layout(client, arena):
    strided = Tensor((4, 8, 16), (1024, 16, 1), address_of(arena)[0] + 4096, offset=8)
    buffer = client.register("a", strided)
    assert len(buffer) == 3 * 2048 + 256
    assert listed(client, "a")["layout"] == {"block_bytes": 256, "block_stride": 2048, "blocks": 4}
    assert client.resolve(strided) == [(address_of(arena)[0], 4112, 3 * 2048 + 256)]
    assert buffer.unregister() == []
    _said = client.register("b", strided, layout=gantry.Layout(256, blocks=2))
    assert listed(client, "b")["layout"] == {"block_bytes": 256, "block_stride": 2048, "blocks": 2}
    for layout in (gantry.Layout(128), gantry.Layout(256, 256), gantry.Layout(256, 4096)):
        with pytest.raises(gantry.Error) as caught:
            client.register("c", strided, layout=layout)
        assert "blocks of 256 bytes at a step of 2048" in caught.value.message
    assert code_of(client.register, "c", strided, layout=gantry.Layout(256, blocks=5)) in ("invalid_argument", "out_of_range")
    assert code_of(client.register, "c", [strided, arena.view(0, 16)]) == "invalid_argument"


def test_only_the_layers_of_a_cache_get_a_layout_unasked(client, arena):
    dense = Tensor((4, 8, 16), (128, 16, 1), address_of(arena)[0])
    _plain, _layers = client.register("plain", dense), client.register_layers("kv", [dense, arena.view(0, 64)])
    assert listed(client, "plain").get("layout") is None
    assert listed(client, "kv.0")["layout"] == {"block_bytes": 256, "block_stride": 256, "blocks": 4}
    assert listed(client, "kv.1").get("layout") is None


def layers_in(mapping, form):
    """Six layers of four blocks of 2 x 4 x 8 elements of two bytes, as each kind of cache has them in one mapping."""
    at, block = address_of(mapping)[0], 128
    if form == "one tensor for each layer, NHD":
        return [Tensor((4, 2, 4, 8), (64, 8, 16, 1), at + layer * 4 * block) for layer in range(LAYERS)]
    if form == "one tensor for each layer, HND":
        return [Tensor((4, 2, 4, 8), (64, 32, 8, 1), at + layer * 4 * block) for layer in range(LAYERS)]
    if form == "layers of a cross-layer cache":
        return [Tensor((4, 2, 4, 8), (64 * LAYERS, 8, 16, 1), at + layer * block) for layer in range(LAYERS)]
    return [Tensor((4, LAYERS, 4, 2, 8), (64 * LAYERS, 64, 16, 8, 1), at)]  # one cross-layer tensor


@pytest.mark.parametrize("form", ["one tensor for each layer, NHD", "one tensor for each layer, HND",
                                  "layers of a cross-layer cache", "one cross-layer tensor"])
def test_a_cache_of_each_form_is_read_by_blocks(pair, form):
    sources = pair.source_client.register_layers("kv", layers_in(pair.source_arena, form))
    locals_ = pair.client.register_layers("kv", layers_in(pair.target_arena, form))
    before = bytes(random.Random(5).randbytes(4 * 128 * LAYERS))
    pair.source_arena[:len(before)] = before
    pair.client.read(pair.client.view("prefill", peer="a", pairs=["kv.*"]), local_blocks=[3, 0], remote_blocks=[1, 2]).wait(5)
    step = 128 if "one tensor for each" in form else 128 * LAYERS
    for layer in range(LAYERS):
        at = layer * (512 if step == 128 else 128)
        for local, remote in ((3, 1), (0, 2)):
            got = bytes(pair.target_arena[at + local * step:at + local * step + 128])
            assert got == before[at + remote * step:at + remote * step + 128]
        for untouched in (1, 2):
            assert not any(pair.target_arena[at + untouched * step:at + untouched * step + 128])
    assert len(sources) == len(locals_)
