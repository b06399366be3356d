"""A buffer that is taken back from a peer that stands still while its device goes on: all else of that peer goes on, too."""

import signal

import pytest

from rdma_scene import (MiB, SLOW, assert_moved, folder, new_memory, rdma_scene, resources, send, settled, start_sidecar,
                        start_workload, transfer, view_of)

from test_draining import buffer_of, delete

SIZE = 8 * MiB
RANGES = [[0, start, 0, start, MiB] for start in range(0, SIZE, MiB)]


def caught_in_the_middle(scene):
    """Sidecar a stands still while it writes to both buffers; the ids of the transfers."""
    for _ in range(10):
        started = [transfer(scene.a, "write", name, f"b/owner/{name}", RANGES, wait_ms=0)[1]["id"] for name in ("kv", "more")]
        while any(view["state"] == "queued" or view["bytes_moved"] == 0 for view in (view_of(scene.a, "reader", one) for one in started)):
            pass
        if all(view_of(scene.a, "reader", one)["state"] == "running" for one in started):
            send([scene.a.process.pid], signal.SIGSTOP)
            return started
    raise AssertionError("transfers end too soon: make them larger")


@pytest.mark.parametrize("how", ["unregister", "suspend"])
def test_its_other_transfers_succeed_and_no_byte_of_the_buffer_moves(rdma_scene, new_memory, how):
    scene = rdma_scene(size=SIZE, over_tcp=True, a_flags=SLOW)
    ours, theirs = new_memory(SIZE, filled=True), new_memory(SIZE)
    scene.reader.register(ours, ("more", 0, SIZE))
    scene.owner.register(theirs, ("more", 0, SIZE))
    for name in ("kv", "more"):
        assert_moved(transfer(scene.a, "read", name, f"b/owner/{name}", RANGES))
    scene.target.fill()
    ours.fill()
    since = scene.a.ask("GET", "/v1/peers/b")[1]["since_unix_ms"]
    kv = buffer_of(scene.b, "owner")["id"]
    to_kv, to_more = caught_in_the_middle(scene)
    try:
        if how == "unregister":
            status, answer = delete(scene.b, kv, 1_500)
        else:
            status, answer = scene.b.ask("POST", "/v1/buffers:suspend", {"workload": "owner", "buffers": ["kv"], "drain_ms": 1_500})
        assert status == 200, answer
        assert [(peer["name"], peer["path"], peer["outcome"]) for peer in answer["peers"]] == [("a", "tcp", "refused")], answer
        assert resources()["mr"] == 3, "those of the reader's two buffers, and of the other one here"
        left = bytes(scene.source.map)
    finally:
        send([scene.a.process.pid], signal.SIGCONT)
    view = settled(scene, to_more)
    assert view["state"] == "succeeded", view
    assert not theirs.differs_from(ours)
    view = settled(scene, to_kv)
    assert view["state"] == "failed" and view["error"]["code"] in ("stale_generation", "unregistered", "draining"), view
    assert bytes(scene.source.map) == left, "it was written to after it was taken back"
    peer = scene.a.ask("GET", "/v1/peers/b")[1]
    assert (peer["state"], peer["since_unix_ms"]) == ("up", since), "the session is what it was"
    if how == "suspend":
        scene.owner.do("resume")
        scene.everything_works("write")
