"""The Python package, and the C library below it: views, and fences on a counter that another process writes."""

import gc
import os
import struct

import pytest

from python_client_parts import (BLOCK, MIB, Pair, arena, client, code_of, gantry, pair, run_script,  # noqa: F401
                                 wait_until)

HALF = BLOCK // 2


def views_at(client):
    return [view["id"] for view in client.request("GET", f"/v1/views?workload={client.workload}")["views"]]


def test_a_view_stands_for_both_sides(pair):
    view = pair.client.view("prefill", peer="a")
    assert (len(view), view.bytes_per_block, view.warnings[0].count("remote_write")) == (1, BLOCK, 1)
    assert view.details()["pairs"][0]["remote"] == f"a/prefill/k.0@{pair.source_buffer.generation}"
    status = pair.client.read(view, local_blocks=[2, 3], remote_blocks=[5, 4]).wait(5)
    assert (status.bytes, status.path, status.fence_us) == (2 * BLOCK, "shm", 0)
    assert pair.target[2 * BLOCK:3 * BLOCK] == pair.source[5 * BLOCK:6 * BLOCK]
    assert pair.target[3 * BLOCK:4 * BLOCK] == pair.source[4 * BLOCK:5 * BLOCK]
    assert not any(pair.target[:2 * BLOCK]) and not any(pair.target[4 * BLOCK:])
    assert pair.neighbours_are_untouched()


def test_slices_ratio_groups_and_layers(pair):
    _double = pair.client.register("k.1", pair.target, layout=gantry.Layout(2 * BLOCK))
    view = pair.client.view("prefill", peer="a", id="all", groups={
        0: gantry.ViewGroup([("k.0", "k.0")], gantry.Slice(local=(0, HALF), remote=(HALF, HALF))),
        3: gantry.ViewGroup([("k.1", "k.0")], block_ratio=(1, 2))})
    assert [group["bytes_per_block"] for group in view.details()["groups"]] == [HALF, BLOCK]
    pair.client.read(view, groups={3: gantry.Blocks([4], [7, 9], layers=(0, 0)),
                                   0: gantry.Blocks([1], [2])}).wait(5)
    assert pair.target[8 * BLOCK:9 * BLOCK] == pair.source[7 * BLOCK:8 * BLOCK]
    assert pair.target[9 * BLOCK:10 * BLOCK] == pair.source[9 * BLOCK:10 * BLOCK]
    assert pair.target[BLOCK:BLOCK + HALF] == pair.source[2 * BLOCK + HALF:3 * BLOCK]
    assert not any(pair.target[BLOCK + HALF:8 * BLOCK])
    assert code_of(pair.client.read, view, groups={0: gantry.Blocks([1], [2], layers=(0, 1))}) == "out_of_range"
    assert code_of(pair.client.read, view, groups={1: gantry.Blocks([1], [2])}) == "not_found"
    several = pair.client.view("prefill", peer="a", pairs=["k.0"], slices=[
        gantry.Slice((0, 8), (8, 8)), gantry.Slice((16, 8), (0, 8))])
    pair.client.read(several, local_blocks=[0], remote_blocks=[0], layers=(0, 0)).wait(5)
    assert pair.target[:8] == pair.source[8:16] and pair.target[16:24] == pair.source[:8]


def test_a_view_is_deleted_when_it_is_dropped(pair):
    view = pair.client.view("prefill", peer="a", id="mine")
    assert views_at(pair.client) == ["mine"]
    view.delete()
    view.delete()
    assert views_at(pair.client) == []
    assert code_of(pair.client.read, view, local_blocks=[1], remote_blocks=[1]) == "not_found"
    with pair.client.view("prefill", peer="a"):
        assert len(views_at(pair.client)) == 1
    pair.client.view("prefill", peer="a")
    gc.collect()
    assert views_at(pair.client) == []


def test_what_is_wrong_is_said_before_it_is_sent(pair):
    make, read = pair.client.view, pair.client.read
    assert code_of(make, "prefill", peer="a", pairs="all") == "invalid_argument"
    assert code_of(make, "prefill", peer="a", pairs=[]) == "invalid_argument"
    assert code_of(make, "prefill", peer="a", groups={}) == "invalid_argument"
    assert code_of(make, "prefill", peer="a", slices=gantry.Slice(local=(0, 0))) == "invalid_argument"
    assert code_of(make, "prefill", peer="a", block_ratio=(2, 3)) == "invalid_argument"
    assert code_of(make, "prefill", peer="a", pairs=["none"]) == "unregistered"
    assert code_of(make, "none", peer="a") == "unregistered"
    view = make("prefill", peer="a")
    assert code_of(read, view, "a/prefill/k.0", local_blocks=[1], remote_blocks=[1]) == "invalid_argument"
    assert code_of(read, view) == "invalid_argument"
    assert code_of(read, view, ranges=[(0, 0, 0, 0, 1)]) == "invalid_argument"
    assert code_of(read, view, local_blocks=[1], remote_blocks=[1], layers=(1, 0)) == "invalid_argument"
    assert code_of(read, pair.buffer, "a/prefill/k.0", local_blocks=[1], remote_blocks=[1],
                   layers=(0, 0)) == "invalid_argument"


WRITER = """
    import mmap, os, sys, time
    counter = mmap.mmap(os.open(sys.argv[1], os.O_RDWR), 4096)
    time.sleep(0.1)
    for value in range(1, 4):
        counter[8:16] = value.to_bytes(8, "little")
        time.sleep(0.02)
"""


def test_a_transfer_waits_for_its_fence(pair):
    clock = pair.client.arena(BLOCK)
    counter = pair.client.register("clock", clock)
    transfer = pair.client.read(pair.buffer, "a/prefill/k.0", local_blocks=[1], remote_blocks=[2],
                                fence=(counter, 8, 3))
    other = pair.client.read(pair.buffer, "a/prefill/k.0", local_blocks=[4], remote_blocks=[4], wait=5)
    assert other.poll().state == "succeeded" and transfer.poll().state == "queued"
    assert not any(pair.target[BLOCK:2 * BLOCK])
    run_script(WRITER, f"/proc/{os.getpid()}/fd/{clock.fileno()}")
    status = transfer.wait(5)
    assert 100_000 < status.fence_us < 5_000_000 and status.queue_us < 100_000
    assert pair.target[BLOCK:2 * BLOCK] == pair.source[2 * BLOCK:3 * BLOCK]


def test_a_fence_that_is_not_reached(pair):
    clock = pair.client.arena(BLOCK)
    counter = pair.client.register("clock", clock)
    clock[0:8] = struct.pack("<Q", 6)
    blocks = {"local_blocks": [1], "remote_blocks": [2]}
    pair.client.read(pair.buffer, "a/prefill/k.0", **blocks).wait(10)  # the peer is asked now, not within the short deadline
    with pytest.raises(gantry.Error) as caught:
        pair.client.read(pair.buffer, "a/prefill/k.0", **blocks, fence=(counter, 0, 7), deadline=0.1).wait(5)
    assert caught.value.code == "deadline_exceeded" and "is 6, not 7" in caught.value.message
    waiting = pair.client.read(pair.buffer, "a/prefill/k.0", **blocks, fence=(counter, 0, 7))
    assert waiting.cancel().state == "cancelled"
    waiting = pair.client.read(pair.buffer, "a/prefill/k.0", **blocks, fence=(counter, 0, 7))
    clock[0:8] = struct.pack("<Q", 1 << 63)
    assert waiting.wait(5).state == "succeeded"
    assert code_of(pair.client.read, pair.buffer, "a/prefill/k.0", **blocks, fence=(counter, 4, 7)) == "invalid_argument"
    assert code_of(pair.client.read, pair.buffer, "a/prefill/k.0", **blocks, fence=(counter, BLOCK, 7)) == "out_of_range"
    counter.unregister()
    assert code_of(pair.client.read, pair.buffer, "a/prefill/k.0", **blocks, fence=(counter, 0, 7)) == "unregistered"


def test_layers_follow_their_fences(start_sidecar):
    """A producer submits a write for each layer ahead of time; each goes out when its layer was computed."""
    pair = Pair(start_sidecar, source_access=("remote_read", "remote_write"))
    layers = 4
    rows = Pair.BLOCKS // layers
    clock = pair.client.arena(BLOCK)
    counter = pair.client.register("clock", clock)
    length = rows * BLOCK
    layout = gantry.Layout(BLOCK)
    kept = []
    for layer in range(layers):
        kept.append(pair.client.register(f"l.{layer}", pair.target[layer * length:(layer + 1) * length], layout=layout))
        kept.append(pair.source_client.register(f"l.{layer}", pair.source[layer * length:(layer + 1) * length],
                                                access=("remote_write",), layout=layout))
    view = pair.client.view("prefill", peer="a", pairs=["l.*"])
    writes = [pair.client.write(view, local_blocks=range(rows), remote_blocks=range(rows), layers=(layer, layer),
                                fence=(counter, 0, layer + 1)) for layer in range(layers)]
    for layer, write in enumerate(writes):
        assert not any(each.done for each in writes[layer:])
        pair.target[layer * length:(layer + 1) * length] = bytes([layer + 1]) * length
        clock[0:8] = struct.pack("<Q", layer + 1)
        assert write.wait(5).bytes == length
        assert pair.source[layer * length:(layer + 1) * length] == bytes([layer + 1]) * length
