"""Which path is taken where there are RDMA devices, and what is said of those that are not."""

import json

import pytest

from rdma_scene import (Authority, IN_GUEST, MiB, RdmaScene, TCP, assert_moved, folder, meet, metric, new_memory, rdma_scene, reasons,
                        start_sidecar, start_workload, transfer)

KiB = 1 << 10


def test_between_nodes_rdma_is_taken_by_itself(rdma_scene):
    scene = rdma_scene(size=256 * KiB, over_tcp=True)
    peer = reasons(scene.a.ask("GET", "/v1/peers/b")[1]["paths"])
    assert peer["rdma"] is None and peer["tcp"] is None and "over TCP" in peer["shm"], peer
    view = assert_moved(scene.move(require=()))
    told = reasons(view["paths"])
    assert told["rdma"] is None and told["tcp"] is None and told["shm"], told
    assert not scene.target.differs_from(scene.source)


def test_on_one_node_shared_memory_goes_before(rdma_scene):
    scene = rdma_scene(size=256 * KiB)
    told = reasons(assert_moved(scene.move(require=()), "shm")["paths"])
    assert told["shm"] is None and told["rdma"] is None, told


@pytest.mark.parametrize("side", ["a", "b"])
def test_a_side_without_rdma_says_so_and_tcp_is_taken(rdma_scene, side):
    scene = rdma_scene(size=256 * KiB, over_tcp=True, **{f"{side}_flags": ["--no-rdma"]})
    without = scene.a if side == "a" else scene.b
    own = reasons(without.ask("GET", "/v1/status")[1]["paths"])
    assert "--no-rdma" in own["rdma"], own
    peer = scene.a.ask("GET", "/v1/peers/b")[1]
    assert reasons(peer["paths"])["rdma"] == ("not on this side: " if side == "a" else "") + "--no-rdma turns it off", peer
    assert peer["path"] == "tcp", peer
    fallbacks = metric(scene.a, 'gantry_path_fallbacks_total{from="rdma",reason="peer",to="tcp"}')
    told = reasons(assert_moved(scene.move(require=()), "tcp")["paths"])
    assert told["rdma"] == ("" if side == "a" else "the peer says: ") + "--no-rdma turns it off", told
    assert metric(scene.a, 'gantry_path_fallbacks_total{from="rdma",reason="peer",to="tcp"}') == fallbacks + (side == "b")
    assert not scene.target.differs_from(scene.source)
    status, problem = scene.move()
    assert (status, problem["code"]) == (409, "path_unavailable"), problem
    assert "rdma: " in problem["detail"], problem


def test_memory_that_was_handed_over_read_only_is_moved_whatever_the_kernel_pins(rdma_scene):
    scene = rdma_scene(size=256 * KiB, over_tcp=True)
    scene.owner.register_read_only(scene.source, ("sealed", 0, scene.size, ("remote_read",)))
    status, view = transfer(scene.a, "read", "kv", "b/owner/sealed", [[0, 0, 0, 0, scene.size]], require=())
    assert (status, view["state"]) == (200, "succeeded"), view
    assert not scene.target.differs_from(scene.source)
    told = reasons(view["paths"])["rdma"]
    assert told is None or "handed over read-only" in told, view  # Linux before 6.2


def test_who_may_only_read_gets_no_keys_that_grant_more(start_sidecar, start_workload, new_memory, folder):
    authority = Authority(folder, "authority")
    (folder / "rules").write_text("spiffe://test/a  *  read\n")
    scene = RdmaScene(start_sidecar, start_workload, new_memory, size=256 * KiB, over_tcp=True,
                      a_flags=authority.issue("a", "URI:spiffe://test/a,IP:127.0.0.1"),
                      b_flags=authority.issue("b", "IP:127.0.0.1") + ["--peer-rules", str(folder / "rules")])
    told = reasons(assert_moved(scene.move(require=()), "tcp")["paths"])
    assert "grant more than this peer may" in told["rdma"], told
    assert scene.move("write", require=())[0] == 403
    # One that grants reading alone has keys that the peer may have.
    scene.owner.register(scene.source, ("read-only", 0, scene.size, ("remote_read",)))
    assert_moved(transfer(scene.a, "read", "kv", "b/owner/read-only", [[0, 0, 0, 0, scene.size]], require=()))
    assert not scene.target.differs_from(scene.source)


def test_a_device_that_is_not_there_is_not_started_without(start_sidecar):
    sidecar = start_sidecar("a", wait=False, flags=["--rdma-devices", "nowhere0"])
    assert sidecar.process.wait(20) == 1
    assert "--rdma-devices" in sidecar.log and "nowhere0" in sidecar.log, sidecar.log


def test_a_chunk_limit_below_a_page_is_refused_by_its_name(start_sidecar):
    sidecar = start_sidecar("a", wait=False, flags=["--rdma-chunk-bytes", "4095"])
    assert sidecar.process.wait(20) == 1
    assert "--rdma-chunk-bytes: the configured largest memory region of 4095 bytes" in sidecar.log, sidecar.log


def test_work_requests_are_no_longer_than_ports_take(rdma_scene):
    asked = 1 << 30
    scene = rdma_scene(size=16 * MiB, over_tcp=True, a_flags=["--rdma-slice-bytes", str(asked)])
    lines = [json.loads(line) for line in scene.a.log.splitlines() if line.startswith("{")]
    taken = min(line["message_bytes_max"] for line in lines if line["message"] == "an RDMA device is used")
    said = [line for line in lines if "smaller than --rdma-slice-bytes" in line["message"]]
    assert [(line["bytes"], line["asked_for"]) for line in said] == ([(taken, asked)] if taken < asked else []), said
    assert assert_moved(scene.move())["chunks"] == -(-scene.size // min(asked, taken))
    assert not scene.target.differs_from(scene.source)


def test_packets_are_no_longer_than_asked_for_and_writes_inline_as_long_as_can_be(rdma_scene):
    scene = rdma_scene(size=256 * KiB, over_tcp=True, a_flags=["--rdma-mtu", "512", "--rdma-inline-bytes", "1024"])
    devices = {}
    for sidecar in (scene.a, scene.b):
        lines = [json.loads(line) for line in sidecar.log.splitlines() if line.startswith("{")]
        devices[sidecar] = [line["mtu"] for line in lines if line["message"] == "an RDMA device is used"]
    assert set(devices[scene.a]) == {512} and min(devices[scene.b]) > 512, devices
    scene.target.fill()
    short = 16  # what soft-RoCE takes inline
    ranges = [[0, start, 0, start, short] for start in range(0, scene.size, 2 * short)]
    assert assert_moved(transfer(scene.a, "write", "kv", "b/owner/kv", ranges))["bytes_moved"] == scene.size // 2
    assert_moved(transfer(scene.a, "write", "kv", "b/owner/kv", [[0, start + short, 0, start + short, short] for _, start, *_ in ranges]))
    assert not scene.source.differs_from(scene.target)
    said = [json.loads(line) for line in scene.a.log.splitlines() if "shorter writes inline" in line]
    assert all(line["asked_for"] == 1024 and line["bytes"] < 1024 for line in said), said
    if IN_GUEST:  # other devices may take that much
        assert [line["bytes"] for line in said] == [short] * len(devices[scene.a]), said
