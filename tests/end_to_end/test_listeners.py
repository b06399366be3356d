"""A crowd at one listener costs the others nothing: each has a bound, and gives way to who comes anew.

The sidecar may have 1024 descriptors here, as where the hard limit was not raised.
"""

import os
import re
import subprocess
import urllib.request
from types import SimpleNamespace

import grpc
import pytest
from conftest import BIN_DIR
from crowd import HELLO, KINDS, PING, PREFACE, REQUEST, SCRAPE, Crowd, allow_descriptors
from rest_contract import Lease, Memory
from test_health import SERVING, HealthClient
from test_peers_over_tcp import address_of, meet
from workloads import connect, gantry, wait_for

LIMIT, CROWD = 1024, 1200
JUST_FITS = LIMIT - 40
KEPT_FREE = 64
FLAGS = ["--health-listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0", "--peer-listen", "127.0.0.1:0",
         "--data-listen", "127.0.0.1:0", "--rest-listen", "127.0.0.1:0"]
LIMITED = ["prlimit", f"--nofile={LIMIT}:{LIMIT}"]


def port_of(sidecar, what):
    return int(wait_for(lambda: re.search(f'"{what}".*?"port":"?(\\d+)', sidecar.log), 5, what)[1])


def tcp(text):
    host, port = text.rsplit(":", 1)
    return host, int(port)


# Where each is, and the first word of who speaks there.
LISTENERS = {
    "rest": (lambda sidecar: str(sidecar.api_socket), REQUEST),
    "rest_tcp": (lambda sidecar: ("127.0.0.1", port_of(sidecar, "REST is served on TCP")), REQUEST),
    "handoff": (lambda sidecar: str(sidecar.handoff_socket), PING),
    "health": (lambda sidecar: tcp(address_of(sidecar, "health is served")), PREFACE),
    "metrics": (lambda sidecar: ("127.0.0.1", port_of(sidecar, "metrics are served")), SCRAPE),
    "peer": (lambda sidecar: tcp(address_of(sidecar, "the peer API listens on TCP")), PREFACE),
    "node": (lambda sidecar: f"{sidecar.node_dir}/{sidecar.name}.peer.sock", PREFACE),
    "tickets": (lambda sidecar: f"{sidecar.node_dir}/{sidecar.name}.fds.sock", b"x"),
    "data": (lambda sidecar: ("127.0.0.1", data_port(sidecar)), HELLO),
}
SEQPACKET = ("handoff", "tickets")


def data_port(sidecar):
    """The listening port that is none of the others'."""
    known = {port_of(sidecar, "REST is served on TCP"), port_of(sidecar, "metrics are served"),
             *(tcp(address_of(sidecar, what))[1] for what in ("health is served", "the peer API listens on TCP"))}
    inodes = {os.readlink(f"/proc/{sidecar.process.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{sidecar.process.pid}/fd")
              if os.path.lexists(f"/proc/{sidecar.process.pid}/fd/{fd}")}
    with open("/proc/net/tcp") as table:
        fields = [line.split() for line in table.readlines()[1:]]
    ports = {int(each[1].split(":")[1], 16) for each in fields if each[3] == "0A" and f"socket:[{each[9]}]" in inodes}
    return (ports - known).pop()


def descriptors(sidecar):
    return len(os.listdir(f"/proc/{sidecar.process.pid}/fd"))


def resident_mib(sidecar, field="VmRSS"):
    with open(f"/proc/{sidecar.process.pid}/status") as status:
        return int(re.search(rf"{field}:\s+(\d+)", status.read())[1]) / 1024


def peak_mib(sidecar):
    """The most that was resident since forget_peak."""
    return resident_mib(sidecar, "VmHWM")


def forget_peak(sidecar):
    with open(f"/proc/{sidecar.process.pid}/clear_refs", "w") as file:
        file.write("5")


def attach(sidecar, lease):
    """None: the crowd is in the backlog yet, where a client that does not block gets EAGAIN."""
    try:
        return Lease(sidecar.handoff_socket, lease["lease_token"])
    except BlockingIOError:
        return None


class Everyone:
    """Whoever must get in, at a sidecar and its neighbour."""

    def __init__(self, sidecar, neighbour):
        self.sidecar, self.neighbour = sidecar, neighbour
        self.number = 0

    def ask(self, *arguments):
        """Likewise: a crowd that is in the backlog yet is waited for."""
        def answer():
            try:
                return self.sidecar.ask(*arguments)
            except BlockingIOError:
                return None

        return wait_for(answer, 5)

    def get_in(self):
        self.number += 1
        name = f"w{self.number}"
        assert self.ask("GET", "/v1/status")[0] == 200
        port = port_of(self.sidecar, "REST is served on TCP")
        assert urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5).status == 200
        port = port_of(self.sidecar, "metrics are served")
        assert b"gantry_buffers" in urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5).read()
        client = HealthClient(self.sidecar)
        assert client.check("readiness", seconds=5) == SERVING
        client.channel.close()
        status, lease = self.ask("PUT", f"/v1/workloads/{name}", {"engine_id": "x"})
        assert status == 201, lease
        attached = wait_for(lambda: attach(self.sidecar, lease), 5)
        memory = Memory(4096)
        try:
            assert attached.hand_over(memory.fd)
        finally:
            attached.close()
            memory.close()
        assert self.neighbour.ask("GET", "/v1/peers/a")[1]["state"] == "up", "who was there stays"
        assert meet(self.sidecar, self.neighbour)["state"] == "up" if self.number == 1 else True


@pytest.fixture
def everyone(start_sidecar):
    allow_descriptors(8192)
    a = start_sidecar("a", flags=FLAGS, prefix=LIMITED)
    b = start_sidecar("b", flags=["--peer-listen", "127.0.0.1:0"])
    assert meet(b, a)["state"] == "up"
    everyone = Everyone(a, b)
    everyone.get_in()
    return everyone


def leave_none(sidecar):
    """No descriptor more may the process open: the limit is the lowest number that is free."""
    used = {int(number) for number in os.listdir(f"/proc/{sidecar.process.pid}/fd")}
    limit = min(set(range(len(used) + 1)) - used)
    subprocess.run(["prlimit", "--pid", str(sidecar.process.pid), f"--nofile={limit}:"], check=True)
    return limit


@pytest.fixture
def crowd():
    made = []

    def make(*arguments, **options):
        made.append(Crowd(*arguments, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


def check_that_a_crowd_keeps_nobody_out(everyone, crowd, listener, kind, count):
    sidecar = everyone.sidecar
    address, word = LISTENERS[listener]
    resident = resident_mib(sidecar)
    crowd(address(sidecar), kind, word, count, seqpacket=listener in SEQPACKET)
    everyone.get_in()
    wait_for(lambda: descriptors(sidecar) < LIMIT - KEPT_FREE, 5, "that gRPC has closed those that gave way")
    wait_for(lambda: resident_mib(sidecar) - resident < 24, 15, "that free heap is returned")
    # A peer that is new comes by the same doors.
    assert everyone.neighbour.ask("DELETE", "/v1/peers/a")[0] == 204
    assert meet(everyone.neighbour, sidecar)["state"] == "up"
    connect(everyone.neighbour, sidecar)
    assert everyone.neighbour.ask("DELETE", "/v1/peers/a")[0] == 204


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("listener", LISTENERS)
def test_a_crowd_keeps_nobody_out(everyone, crowd, listener, kind):
    check_that_a_crowd_keeps_nobody_out(everyone, crowd, listener, kind, CROWD)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("listener", ["rest", "rest_tcp"])
def test_a_crowd_that_just_fits_keeps_nobody_out(everyone, crowd, listener, kind):
    """It takes the descriptors that are left, and no accept fails for want of one: the listener by itself sees no cause to end any."""
    check_that_a_crowd_keeps_nobody_out(everyone, crowd, listener, kind, JUST_FITS)


def test_connections_with_a_call_are_counted_until_they_end(start_sidecar):
    """Those that give way are still gRPC's for a while: newcomers have their numbers, and are counted all the same."""
    host, port = LISTENERS["health"][0](start_sidecar("a", flags=FLAGS))
    channels, watches = [], []
    for number in range(200):
        channels.append(grpc.insecure_channel(f"{host}:{port}", options=[("grpc.use_local_subchannel_pool", 1)]))
        watches.append(channels[-1].unary_stream("/grpc.health.v1.Health/Watch")(b""))
        if number % 8 == 0:
            next(watches[-1], None)  # a few at a time, so that all are taken
    try:
        wait_for(lambda: len([watch for watch in watches if watch.is_active()]) <= 16, 10, "the bound of sixteen")
        assert any(watch.is_active() for watch in watches)
    finally:
        for channel in channels:
            channel.close()


def test_a_sidecar_with_few_connections_starts(start_sidecar):
    sidecar = start_sidecar("a", flags=["--connections-max", "5"])
    assert sidecar.ask("GET", "/v1/info")[0] == 200


def test_thousands_of_silent_probes_cost_no_memory(start_sidecar, crowd):
    """The peak is compared: gRPC by itself ends silent connections after seconds, and until then each takes its memory."""
    allow_descriptors(8192)
    sidecar = start_sidecar("a", flags=FLAGS)
    before, resident = descriptors(sidecar), resident_mib(sidecar)
    forget_peak(sidecar)
    silent = crowd(LISTENERS["health"][0](sidecar), "silent", PREFACE, 5000)
    wait_for(lambda: silent.still_open() <= 16, 20, "that all but sixteen gave way")
    if BIN_DIR.parent.name not in ("asan", "tsan"):  # which keep what was freed, to see uses of it
        assert peak_mib(sidecar) - resident < 24, "less than the 70 MiB that they take when all stay"
    wait_for(lambda: descriptors(sidecar) - before <= 2 * 16, 5, "that gRPC has closed those that gave way")
    client = HealthClient(sidecar)
    assert client.check("readiness", seconds=5) == SERVING
    client.channel.close()


def test_memory_for_which_no_descriptor_is_left_says_so(start_sidecar):
    sidecar = start_sidecar("a")
    with gantry.Client(sidecar.run_dir, "w") as client:
        arenas = [client.arena(4096)]

        def refusal():
            """None: something that was open as the limit was set has been closed since."""
            limit = leave_none(sidecar)
            try:
                arenas.append(client.arena(4096))
                return None
            except gantry.Error as error:
                return limit, error
        limit, error = wait_for(refusal, 5)
        assert error.code == "resource_exhausted", error
        assert str(limit) in str(error) and "RLIMIT_NOFILE" in str(error)


def test_a_device_plugin_with_a_crowd_is_probed_and_scraped(folder, crowd):
    allow_descriptors(8192)
    folders = {flag: folder / flag for flag in ("kubelet-dir", "pod-resources-dir", "cdi-dir", "peer-dir")}
    for each in folders.values():
        each.mkdir()
    log = folder / "log"
    with open(log, "wb") as lines:
        process = subprocess.Popen([*LIMITED, str(BIN_DIR / "gantry-device-plugin"), "--health-listen=127.0.0.1:0",
                                    "--metrics-listen=127.0.0.1:0", *(f"--{flag}={path}" for flag, path in folders.items())],
                                   stdin=subprocess.DEVNULL, stdout=lines, stderr=lines)
    plugin = SimpleNamespace(process=process)
    try:
        def find(pattern):
            return wait_for(lambda: re.search(pattern, log.read_text()), 10, log.read_text)[1]
        metrics = int(find('"metrics are served".*?"port":"?(\\d+)'))
        health = find('"health is served","address":"([^"]+)"')
        for kind in KINDS:
            crowd(tcp(health), kind, PREFACE, CROWD)
            crowd(("127.0.0.1", metrics), kind, SCRAPE, CROWD)
            assert b"gantry_dp_" in urllib.request.urlopen(f"http://127.0.0.1:{metrics}/metrics", timeout=5).read()
            with grpc.insecure_channel(health) as channel:
                assert channel.unary_unary("/grpc.health.v1.Health/Check")(b"\x0a\x08liveness", timeout=5) == b"\x08\x01"
            wait_for(lambda: descriptors(plugin) < 100, 5, "that gRPC has closed those that gave way")
    finally:
        process.kill()
        process.wait()
