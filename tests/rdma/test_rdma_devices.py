"""Devices whose port goes down while bytes move: one of two, and the only one. Those that are removed: test_rdma_removals.py."""

import fcntl
import ipaddress
import socket
import struct
import subprocess
from pathlib import Path

import pytest

from rdma_scene import (END_SECONDS, MiB, SLOW, assert_moved, folder, metric, needs_guest, new_memory, rdma_scene, reasons, settled,
                        start_sidecar, start_workload, wait_for)

pytestmark = needs_guest
SIZE = 16 * MiB


def run(*command):
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=20)


def take_down(interface):
    """At once: before a program for it has started, the transfer in whose middle it should happen may be over."""
    get_flags, set_flags, up, request = 0x8913, 0x8914, 1, "16sH14x"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        told = fcntl.ioctl(any_socket, get_flags, struct.pack(request, interface.encode(), 0))
        fcntl.ioctl(any_socket, set_flags, struct.pack(request, interface.encode(), struct.unpack(request, told)[1] & ~up))


@pytest.fixture
def second_device():
    """Soft-RoCE on an interface of its own. Before the sidecars in a test's arguments: it ends after them."""
    run("ip", "link", "add", "second", "mtu", "9000", "type", "dummy")
    run("ip", "address", "add", "10.99.9.1/24", "dev", "second")
    run("ip", "link", "set", "second", "up")
    run("rdma", "link", "add", "rxe9", "type", "rxe", "netdev", "second")
    yield "second"
    for tool, name, folder in (("rdma", "rxe9", "infiniband"), ("ip", "second", "net")):
        if Path(f"/sys/class/{folder}/{name}").exists():
            run(tool, "link", "delete", name)


@pytest.fixture
def second_address():
    """Another subnet on the interface of rxe0, and the number of its GID. Before the sidecars, likewise."""
    run("ip", "address", "add", "10.99.7.1/24", "dev", "rdma0")
    yield wait_for(lambda: gid_of("10.99.7.1"), 10, "its GID")
    run("ip", "address", "del", "10.99.7.1/24", "dev", "rdma0")


def gid_of(address):
    """The number of the GID of rxe0 that is this IPv4 address; 0 is link-local."""
    mapped = ipaddress.IPv6Address(f"::ffff:{address}")
    for entry in Path("/sys/class/infiniband/rxe0/ports/1/gids").iterdir():
        if ipaddress.IPv6Address(entry.read_text().strip()) == mapped:
            return int(entry.name)
    return 0


def of(sidecar, what, device, **labels):
    """gantry_rdma_WHAT of a device."""
    named = ",".join(f'{name}="{value}"' for name, value in sorted({"device": device, **labels}.items()))
    return metric(sidecar, f"gantry_rdma_{what}{{{named}}}")


def bytes_read(sidecar):
    return sum(of(sidecar, "bytes_total", device, op="read") for device in ("rxe0", "rxe9"))


def test_one_of_two_devices_goes_and_the_transfer_goes_on(second_device, rdma_scene):
    scene = rdma_scene(size=SIZE, a_flags=SLOW)
    assert metric(scene.a, 'gantry_chunks{device="rxe0"}') == metric(scene.a, 'gantry_chunks{device="rxe9"}') == 1
    # Soft ones are at no place: none is nearer than the other.
    assert '"RDMA devices were chosen for memory","of":"the host","devices":"rxe0, rxe9"' in scene.a.log, scene.a.log
    scene.everything_works()
    assert bytes_read(scene.a) == SIZE and bytes_read(scene.b) == 0
    for device in ("rxe0", "rxe9"):
        assert of(scene.a, "bytes_total", device, op="read") > 0 and of(scene.a, "port_active", device) == 1
        assert of(scene.a, "work_requests_inflight", device) == 0
        assert of(scene.a, "work_requests_inflight_max", device) == 4 * of(scene.a, "queue_pairs", device) == 4
    assert metric(scene.b, 'gantry_rdma_connections{side="target"}') == 1
    scene.target.clear()
    transfer = scene.hold()
    take_down(second_device)
    view = settled(scene, transfer)
    assert view["state"] == "succeeded", view
    assert not scene.target.differs_from(scene.source)
    retried = metric(scene.a, 'gantry_transfer_chunks_total{op="read",outcome="retried",path="rdma"}')
    assert sum(of(scene.a, "work_requests_retried_total", device) for device in ("rxe0", "rxe9")) == retried > 0
    assert [of(scene.a, "port_active", device) for device in ("rxe0", "rxe9")] == [1, 0]
    assert of(scene.a, "work_requests_inflight", "rxe9") == of(scene.a, "work_requests_inflight_max", "rxe9") == 0
    assert bytes_read(scene.a) >= 2 * SIZE
    assert "a port went down" in scene.a.log
    scene.everything_works("write")
    run("ip", "link", "set", second_device, "up")
    wait_for(lambda: of(scene.a, "port_active", "rxe9") == 1, 10, "the port again")
    before = of(scene.a, "bytes_total", "rxe9", op="read")
    wait_for(lambda: scene.everything_works() and of(scene.a, "bytes_total", "rxe9", op="read") > before, END_SECONDS,
             "bytes over the device that came back")
    assert of(scene.a, "work_requests_inflight_max", "rxe9") == 4


def test_without_any_port_tcp_is_taken_until_there_is_one_again(rdma_scene):
    scene = rdma_scene(size=SIZE, over_tcp=True, a_flags=SLOW)
    transfer = scene.hold("write")
    take_down("rdma0")
    try:
        view = settled(scene, transfer)
        assert view["state"] == "failed" and view["error"]["code"], view
        wait_for(lambda: "active port" in (reasons(scene.move(require=())[1]["paths"])["rdma"] or ""), 10)
        told = reasons(assert_moved(scene.move(require=()), "tcp")["paths"])
        assert "active port" in told["rdma"], told
        assert not scene.target.differs_from(scene.source)
    finally:
        run("ip", "link", "set", "rdma0", "up")
    wait_for(lambda: scene.move()[1].get("path") == "rdma", 10, "rdma again")
    scene.everything_works()


def test_queue_pairs_have_the_address_of_the_peers_subnet(second_address, rdma_scene):
    """b's device is known by its second address: a's end takes it too, which has begun with the first."""
    scene = rdma_scene(size=MiB, b_flags=["--rdma-gid-index", str(second_address)])
    scene.everything_works()
    scene.everything_works("write")
    said = [line for line in scene.a.log.splitlines() if "have another GID than the device's first" in line]
    assert len(said) == 1, scene.a.log
    for part in ('"peer_gid":"10.99.7.1"', f'"gid_index":{second_address},', "in the peer's subnet", '"first":"10.99.0.1"'):
        assert part in said[0], said[0]
