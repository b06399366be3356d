"""A device that is deleted, and the interface below one, while sidecars have it open: the command waits in the kernel until
they have ended, and everything else goes on."""

import subprocess

import pytest

from rdma_scene import (MiB, SLOW, folder, needs_guest, new_memory, rdma_scene, rdma_tool, resources, settled, start_sidecar,
                        start_workload, wait_for)
from test_rdma_devices import of, run, second_device

pytestmark = needs_guest
SIZE = 16 * MiB
END_SECONDS = 10  # of a removal that nobody is in the way of


@pytest.fixture
def start_removal():
    """start_removal(command…). After the device and before the sidecars in a test's arguments: these have to end first."""
    started = []

    def start(*command):
        started.append(subprocess.Popen(command))
        return started[-1]

    yield start
    for removal in started:
        removal.wait(END_SECONDS)


def device_names():
    return {link["ifname"] for link in rdma_tool("link")}


def devices_of(sidecar):
    return [device["name"] for device in sidecar.ask("GET", "/v1/status")[1]["rdma_devices"]]


def moved_by_second(scene, operation):
    return of(scene.a, "bytes_total", "rxe9", op=operation)


def restart(scene, which):
    """Sidecar a or b, and with it the workload whose lease ended."""
    if which == "a":
        scene.a = scene.start_sidecar("a")
        scene.reader.kill()
        scene.start_reader()
    else:
        scene.b = scene.start_sidecar("b")
        scene.owner.kill()
        scene.start_owner()
    wait_for(lambda: scene.meet()["state"] == "up", 10)


def test_a_deleted_device_serves_those_who_have_it_until_they_end(second_device, start_removal, rdma_scene):
    scene = rdma_scene(size=SIZE, a_flags=SLOW)
    transfer = scene.hold()
    removal = start_removal("rdma", "link", "delete", "rxe9")
    wait_for(lambda: device_names() == {"rxe0"}, 10, "no second device to be seen")
    assert settled(scene, transfer)["state"] == "succeeded"
    assert not scene.target.differs_from(scene.source)
    scene.everything_works("write")
    assert moved_by_second(scene, "write") > 0
    assert resources()["mr"] == 2, "the kernel's account answers, of the other device"
    # What its port says is still heard.
    run("ip", "link", "set", second_device, "down")
    wait_for(lambda: of(scene.a, "port_active", "rxe9") == 0, 10, "its port to be down")
    scene.everything_works()
    # Who starts anew does without it. The others keep it.
    assert scene.a.stop() == 0
    restart(scene, "a")
    assert devices_of(scene.a) == ["rxe0"] and devices_of(scene.b) == ["rxe0", "rxe9"]
    scene.everything_works("write")
    assert removal.poll() is None
    assert scene.b.stop() == 0
    assert removal.wait(END_SECONDS) == 0
    # It comes back, for those who start after that.
    run("ip", "link", "set", second_device, "up")
    run("rdma", "link", "add", "rxe9", "type", "rxe", "netdev", second_device)
    restart(scene, "b")
    scene.everything_works()
    assert devices_of(scene.a) == ["rxe0"]
    assert scene.a.stop() == 0
    restart(scene, "a")
    assert devices_of(scene.a) == ["rxe0", "rxe9"]
    scene.everything_works()
    assert moved_by_second(scene, "read") > 0


def test_without_its_interface_a_device_leaves_its_work_to_the_other(second_device, start_removal, rdma_scene):
    scene = rdma_scene(size=SIZE, a_flags=SLOW)
    scene.target.fill()
    transfer = scene.hold("write")
    removal = start_removal("ip", "link", "delete", second_device)
    assert settled(scene, transfer)["state"] == "succeeded"
    assert not scene.source.differs_from(scene.target)
    before = moved_by_second(scene, "read")
    scene.everything_works()
    assert moved_by_second(scene, "read") == before
    # The kernel may find no port any more to say something of.
    assert "a port went down" in scene.a.log or "is left out of a connection" in scene.a.log, scene.a.log
    assert removal.poll() is None
    assert scene.a.stop() == scene.b.stop() == 0
    assert removal.wait(END_SECONDS) == 0
