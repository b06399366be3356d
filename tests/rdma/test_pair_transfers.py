"""Bytes between two devices, whatever the cable between them loses."""

import os

import pytest

from rdma_scene import (IN_GUEST, MiB, assert_moved, folder, metric, new_memory, rdma_scene, start_sidecar, start_workload,
                        transfer)

DEVICES = sorted(os.listdir("/sys/class/infiniband"))[:2] if IN_GUEST else []
pytestmark = pytest.mark.skipif(len(DEVICES) < 2, reason="wants the guest's pair: real devices are cabled otherwise")
SIZE = 4 * MiB


@pytest.mark.parametrize("both", [False, True], ids=["one to one", "two to two, crosswise"])
def test_every_byte_arrives_in_both_directions(rdma_scene, both):
    ours, theirs = (DEVICES, DEVICES[::-1]) if both else (DEVICES[:1], DEVICES[1:])
    scene = rdma_scene(size=SIZE, over_tcp=True, a_flags=["--rdma-devices", ",".join(ours)],
                       b_flags=["--rdma-devices", ",".join(theirs), "--rdma-chunk-bytes", "262144"])
    for device in theirs:
        assert metric(scene.b, f'gantry_chunks{{device="{device}"}}') == SIZE // 262144
    for operation in ("read", "write"):
        scene.everything_works(operation)
    # Odd places, and nothing beside them.
    scene.target.clear()
    assert_moved(transfer(scene.a, "read", "kv", "b/owner/kv", [[0, 1027, 0, 3, 2 * MiB + 5]]))
    assert scene.target.map[1027:1027 + 2 * MiB + 5] == scene.source.map[3:3 + 2 * MiB + 5]
    assert not any(scene.target.map[:1027]) and not any(scene.target.map[1027 + 2 * MiB + 5:])
