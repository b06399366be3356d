"""Bytes that two sidecars move over RDMA: each one where it belongs, and none beside it."""

import itertools
import os

import pytest

from rdma_scene import (BOTH, DEVICE, MiB, assert_moved, connect, folder, metric, new_memory, rdma_scene,
                        start_sidecar, start_workload, transfer)

KiB = 1 << 10
CANARY = 64
SIZES = (1, 7, 4095, 4096, 4097, 65_537, MiB, MiB + 1, 8 * MiB - 2 * CANARY - 4099)


def check_bytes(scene, operation, length, source_at, target_at):
    """One transfer of `length` bytes between odd places; what lies before and behind them must stay."""
    local_at, remote_at = (target_at, source_at) if operation == "read" else (source_at, target_at)
    from_, to = (scene.source, scene.target) if operation == "read" else (scene.target, scene.source)
    first, last = target_at - CANARY, target_at + length + CANARY
    canaries = os.urandom(CANARY), os.urandom(CANARY)
    to.map[first:last] = canaries[0] + bytes(length) + canaries[1]
    from_at = source_at
    sent = from_.map[from_at:from_at + length]
    assert_moved(transfer(scene.a, operation, "kv", "b/owner/kv", [[0, local_at, 0, remote_at, length]]))
    got = to.map[first:last]
    assert got[:CANARY] == canaries[0] and got[-CANARY:] == canaries[1], (operation, length, source_at, target_at)
    assert got[CANARY:-CANARY] == sent, (operation, length, source_at, target_at)


@pytest.mark.parametrize("flags", [(), ("--rdma-chunk-bytes", "16384", "--rdma-slice-bytes", "10001",
                                        "--rdma-work-requests", "5")], ids=["as the device tells", "small chunks"])
def test_every_size_at_odd_places_in_both_directions(rdma_scene, flags):
    scene = rdma_scene(size=8 * MiB, a_flags=flags, b_flags=flags)
    scene.target.fill()
    sizes = SIZES if not flags else SIZES[:7]
    places = itertools.cycle([(CANARY, 4099 + CANARY), (4097, CANARY + 1), (CANARY + 3, CANARY + 5)])
    for operation in ("read", "write"):
        for length, (source_at, target_at) in zip(sizes, places):
            check_bytes(scene, operation, length, source_at, target_at)
    assert metric(scene.a, 'gantry_path_selected_total{path="rdma"}') == 2 * len(sizes)


def test_blocks_of_many_layers_go_where_their_ids_say(start_sidecar, start_workload, new_memory):
    layers, blocks, block = 6, 16, 12 * KiB + 512
    small = ["--rdma-chunk-bytes", "65536"]
    a, b = start_sidecar("a", flags=small), start_sidecar("b", flags=small)
    source, target = new_memory(layers * blocks * block, filled=True), new_memory(layers * blocks * block)
    names = [f"layer{number}" for number in range(layers)]
    specs = [(name, number * blocks * block, blocks * block, BOTH, block) for number, name in enumerate(names)]
    start_workload(b, "owner").register(source, *specs)
    reader = start_workload(a, "reader")
    reader.register(target, *specs)
    connect(a, b)
    theirs, ours = [3, 4, 5, 0, 15, 9], [1, 2, 3, 14, 7, 0]

    def move(operation):
        body = {"workload": "reader", "op": operation, "local": names, "remote": [f"b/owner/{name}" for name in names],
                "local_blocks": ours, "remote_blocks": theirs, "require_path": ["rdma"]}
        assert_moved(a.ask("POST", "/v1/transfers?wait_ms=20000", body))

    def after(from_, to, from_blocks, to_blocks):
        expected = bytearray(to)
        for layer, (there, here) in itertools.product(range(layers), zip(from_blocks, to_blocks)):
            base = layer * blocks
            expected[(base + here) * block:(base + here + 1) * block] = \
                from_[(base + there) * block:(base + there + 1) * block]
        return bytes(expected)

    expected = after(source.map[:], target.map[:], theirs, ours)
    move("read")
    assert target.map[:] == expected
    target.fill()
    expected = after(target.map[:], source.map[:], ours, theirs)
    move("write")
    assert source.map[:] == expected


def test_the_devices_and_the_chunks_are_counted(rdma_scene):
    scene = rdma_scene(size=MiB, a_flags=["--rdma-chunk-bytes", "65536"], b_flags=["--rdma-chunk-bytes", "262144"])
    assert metric(scene.a, f'gantry_chunks{{device="{DEVICE}"}}') == 16
    assert metric(scene.b, f'gantry_chunks{{device="{DEVICE}"}}') == 4
    outcome = 'gantry_transfers_total{op="read",outcome="succeeded",path="rdma"}'
    bytes_moved = 'gantry_transfer_bytes_total{op="read",path="rdma"}'
    before = metric(scene.a, outcome), metric(scene.a, bytes_moved)
    view = scene.everything_works()
    assert (metric(scene.a, outcome), metric(scene.a, bytes_moved)) == (before[0] + 1, before[1] + MiB)
    assert view["chunks"] == view["chunks_moved"] == 16  # work requests, cut at this side's chunks
    scene.reader.do("unregister", "kv")
    assert metric(scene.a, f'gantry_chunks{{device="{DEVICE}"}}') == 0
