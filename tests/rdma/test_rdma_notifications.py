"""Notifications of writes over RDMA: whoever is told finds the bytes. With devices that are late: RdmaNotificationTest."""

import base64
import struct

from rdma_scene import folder, MiB, new_memory, rdma_scene, start_sidecar, start_workload
from test_notifications import Reader, encoded

ROUNDS = 50


def test_whoever_is_notified_finds_the_bytes(rdma_scene):
    """The receiver looks at all that was written as soon as it is told."""
    scene = rdma_scene(size=MiB)
    receiver = Reader(scene.b, "owner")
    for i in range(ROUNDS):
        mark = struct.pack("<Q", i + 1)
        scene.target.map[:] = mark * (MiB // len(mark))
        status, view = scene.move("write", wait_ms=0, notify={"to": "owner", "message": encoded(mark)})
        assert status in (200, 202), view
        assert base64.b64decode(receiver.next("notification")["notification"]["message"]) == mark
        assert not scene.source.differs_from(scene.target), i
