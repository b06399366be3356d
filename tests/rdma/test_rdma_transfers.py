"""Bytes that two sidecars move over RDMA: each one where it belongs, and none beside it."""

import itertools
import os

import pytest

from rdma_scene import (MiB, assert_moved, folder, metric, new_memory, rdma_scene, start_sidecar, start_workload,
                        transfer)

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
