"""Which heads are read from which rank, for all sizes of both engines: on bytes, and with a real sidecar."""

import itertools
import os
import random
import sys

import pytest
from backends import ROOT

os.environ.setdefault("GANTRY_LIBRARY", os.path.join(os.environ.get("GANTRY_LIB_DIR", ROOT / "build/release/lib"), "libgantry.so"))
sys.path[:0] = [str(ROOT / "client/python"), str(ROOT / "connectors/vllm")]
import gantry  # noqa: E402
from conftest import end_to_end  # noqa: E402
from gantry_vllm.tensor_parallel import CONSUMERS, BlockShape, Topology, block_shape, slices_of, why_not  # noqa: E402

SIZES = [1, 2, 4, 8, 16]
HEADS = [1, 2, 4, 8, 16]
TOKENS, HEAD = 3, 5  # HEAD: bytes of one head and token
ORDERS = ["heads first", "tokens first"]


def shape_of(order, heads):
    return BlockShape(1, heads, TOKENS * HEAD) if order == "heads first" else BlockShape(TOKENS, heads, HEAD)


def block_of(order, model, heads):
    """The block of a rank that has these heads of the model: {head: [bytes of each token]}."""
    if order == "heads first":
        return b"".join(model[head][token] for head in heads for token in range(TOKENS))
    return b"".join(model[head][token] for token in range(TOKENS) for head in heads)


def model_of(heads, seed):
    rng = random.Random(seed)
    return {head: [rng.randbytes(HEAD) for _ in range(TOKENS)] for head in range(heads)}


def read_by_hand(target, local, source, remote, share):
    for (at, length), (there, same) in (slices_of(share, local, remote) or [((0, local.bytes), (0, remote.bytes))]):
        assert length == same
        target[at:at + length] = source[there:there + length]


@pytest.mark.parametrize("order", ORDERS)
def test_each_rank_gets_its_heads_whatever_the_sizes(order):
    for size, remote_size, heads in itertools.product(SIZES, SIZES, HEADS):
        model = model_of(heads, 1)
        sources = [block_of(order, model, Topology(rank, remote_size, heads).heads()) for rank in range(remote_size)]
        for rank in range(size):
            mine = Topology(rank, size, heads)
            local, remote = (shape_of(order, max(1, heads // each)) for each in (size, remote_size))
            target = bytearray(local.bytes)
            for share in mine.shares(remote_size):
                read_by_hand(target, local, sources[share.rank], remote, share)
            assert target == block_of(order, model, mine.heads()), (size, remote_size, heads, rank)


def test_each_hold_ends_when_all_its_readers_have_read_and_the_others_are_given_back_once():
    for size, remote_size, heads in itertools.product(SIZES, SIZES, HEADS):
        counted, given_back = [0] * remote_size, [0] * remote_size
        for rank in range(size):
            mine = Topology(rank, size, heads)
            for share in mine.shares(remote_size):
                counted[share.rank] += CONSUMERS // mine.readers(share.rank, remote_size)
            for unread in mine.unread(remote_size):
                given_back[unread] += 1
        for remote in range(remote_size):
            assert (counted[remote], given_back[remote]) in ((CONSUMERS, 0), (0, 1)), (size, remote_size, heads, remote)


def test_ranks_with_the_same_head_take_turns():
    """Eight ranks of two heads, read by eight: each reads another rank, and none is read by all."""
    sources = [[share.rank for share in Topology(rank, 8, 2).shares(8)] for rank in range(8)]
    assert sorted(itertools.chain(*sources)) == list(range(8))


@pytest.mark.parametrize("size, heads, why", [(3, 4, "4 heads of keys and values are not divided among 3 ranks"), (4, 6, "6 heads"),
                                              (2, 4, None), (8, 2, None), (1, 3, None)])
def test_heads_that_are_not_divided_are_said(size, heads, why):
    said = why_not(size, heads)
    assert said == why if why is None else said.startswith(why)


class Strided:
    """What block_shape takes of a tensor."""

    def __init__(self, shape, strides):
        self.shape, self._strides = shape, strides

    def dim(self):
        return len(self.shape)

    def stride(self):
        return self._strides

    def element_size(self):
        return 4


@pytest.mark.parametrize("strides, outer, head_bytes", [([4096, 1024, 64, 1], 1, 4096), ([4096, 64, 256, 1], 16, 256)],
                         ids=["HND", "NHD"])
def test_the_order_of_a_block_is_that_of_the_tensors_strides(strides, outer, head_bytes):
    assert block_shape(Strided([100, 4, 16, 64], strides)) == BlockShape(outer, 4, head_bytes)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("size, remote_size, heads", [(8, 4, 8), (4, 8, 8), (2, 8, 2), (2, 1, 4)])
def test_a_sidecar_moves_the_heads_of_each_rank(folder, order, size, remote_size, heads):
    """Three blocks of two layers; each rank is a workload, and each hold ends when all have read."""
    sidecar = end_to_end.SidecarProcess("ranks", folder)
    sidecar.start()
    blocks, layers = 3, 2
    models = [[model_of(heads, (layer, block).__hash__()) for block in range(blocks)] for layer in range(layers)]
    local, remote = (shape_of(order, max(1, heads // each)) for each in (size, remote_size))
    clients, kept = [], []

    def worker(name, shape):
        client = gantry.Client(sidecar.run_dir, name)
        arenas = [client.arena(blocks * shape.bytes) for _ in range(layers)]
        kept.extend(client.register(f"kv.{i}", memoryview(arena)[:blocks * shape.bytes], layout=gantry.Layout(shape.bytes))
                    for i, arena in enumerate(arenas))
        clients.append(client)
        return client, arenas

    try:
        owners = []
        for rank in range(remote_size):
            client, arenas = worker(f"p{rank}", remote)
            for layer, block in itertools.product(range(layers), range(blocks)):
                arenas[layer][block * remote.bytes:(block + 1) * remote.bytes] = block_of(
                    order, models[layer][block], Topology(rank, remote_size, heads).heads())
            owners.append(client)
            client.hold("r", gantry.HoldGroup([f"kv.{i}" for i in range(layers)], list(range(blocks))), 60,
                        expected_consumers=CONSUMERS)
        order_of_blocks = [2, 0, 1]
        for rank in range(size):
            assert len(sidecar.ask("GET", "/v1/holds")[1]["holds"]) >= 1
            mine = Topology(rank, size, heads)
            client, arenas = worker(f"d{rank}", local)
            for share in mine.shares(remote_size):
                view = client.view(f"p{share.rank}", pairs=["kv.*"], slices=slices_of(share, local, remote))
                client.read(view, local_blocks=list(range(blocks)), remote_blocks=order_of_blocks, hold="r",
                            hold_consumers=CONSUMERS // mine.readers(share.rank, remote_size)).wait(20)
            for layer, block in itertools.product(range(layers), range(blocks)):
                assert arenas[layer][block * local.bytes:(block + 1) * local.bytes] == block_of(
                    order, models[layer][order_of_blocks[block]], mine.heads())
        unread = {rank for rank in range(remote_size) if Topology(0, size, heads).readers(rank, remote_size) == 0}
        assert {hold["workload"] for hold in sidecar.ask("GET", "/v1/holds")[1]["holds"]} == {f"p{rank}" for rank in unread}
    finally:
        for client in clients:
            client.close()
        sidecar.stop()
