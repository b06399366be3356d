"""Two hosts on one machine: network namespaces joined by a wire that can be cut, and made slow, lossy and disordered.

A wire is a veth pair, or two TUN devices with a process between them that treats each packet as it is told: what
tc-netem does, without the kernel module. Needs root; everything is gone when close() returns.
"""

import ctypes
import fcntl
import heapq
import multiprocessing
import os
import random
import select
import signal
import struct
import subprocess
import time
from dataclasses import dataclass

import pytest

_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
_CLONE_NEWNET = 0x40000000
_PR_SET_PDEATHSIG = 1
_PACKET_MAX = 65536
_MTU = 8900
_ADDRESSES = ("10.91.7.1", "10.91.7.2")  # known in the two namespaces alone
_forking = multiprocessing.get_context("fork")


@dataclass
class Weather:
    """What happens to each packet, in both directions."""
    delay: float = 0.0  # seconds
    jitter: float = 0.0  # up to so many more: packets overtake each other
    loss: float = 0.0  # the part that is lost
    is_cut: bool = False


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True, timeout=10)


class Host:
    """One network namespace."""

    def __init__(self, name, address):
        self.name, self.address = name, address
        ip("netns", "add", name)
        ip("-n", name, "link", "set", "lo", "up")

    @property
    def prefix(self):
        """What a command begins with that is to run there; its PID is the command's own."""
        return ["ip", "netns", "exec", self.name]

    def connect(self, device, state="up"):
        ip("-n", self.name, "addr", "add", f"{self.address}/24", "dev", device)
        ip("-n", self.name, "link", "set", device, "mtu", str(_MTU), state)

    def close(self):
        subprocess.run(["ip", "netns", "del", self.name], capture_output=True, timeout=10)


class VethWire:
    """As fast as the machine; can be cut."""

    def __init__(self, hosts, device="wire", state="up"):
        """`device`: its name on the first host. `state`: "down" if it is cut from the beginning."""
        self.host, self.device = hosts[0], device
        ip("link", "add", device, "netns", hosts[0].name, "type", "veth", "peer", "name", "wire", "netns",
            hosts[1].name)
        hosts[0].connect(device, state)
        hosts[1].connect("wire")

    def cut(self):
        ip("-n", self.host.name, "link", "set", self.device, "down")

    def heal(self):
        ip("-n", self.host.name, "link", "set", self.device, "up")

    def close(self):
        pass  # goes with its namespaces


class WeatherWire:
    """Some hundred MB/s; set(Weather(...)) says what happens to packets from now on."""

    def __init__(self, hosts):
        self.weather = Weather()
        for host in hosts:
            ip("-n", host.name, "tuntap", "add", "dev", "wire", "mode", "tun")
            host.connect("wire")
        self._pipe, theirs = _forking.Pipe()
        self._process = _forking.Process(target=_carry, args=(theirs, [host.name for host in hosts]), daemon=True)
        self._process.start()
        theirs.close()
        assert self._pipe.poll(10) and self._pipe.recv() == "ready"

    def set(self, weather):
        self.weather = weather
        self._pipe.send(weather)

    def cut(self):
        self.set(Weather(is_cut=True))

    def heal(self):
        self.set(Weather())

    def close(self):
        self._process.kill()
        self._process.join()


def _open_tun(namespace):
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/run/netns/{namespace}") as handle:
        if libc.setns(handle.fileno(), _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, _TUNSETIFF, struct.pack("16sH22x", b"wire", _IFF_TUN | _IFF_NO_PI))
    return fd


def _carry(pipe, namespaces):
    """The process between the two devices."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    ends = [_open_tun(namespace) for namespace in namespaces]
    other = {ends[0]: ends[1], ends[1]: ends[0]}
    weather, chance, number = Weather(), random.Random(1), 0
    under_way = []  # (when it arrives, number, where, packet)
    pipe.send("ready")
    while True:
        wait = max(0.0, under_way[0][0] - time.monotonic()) if under_way else None
        readable, _, _ = select.select([*ends, pipe], [], [], wait)
        if pipe in readable:
            try:
                weather = pipe.recv()
            except EOFError:
                return
        for end in ends:
            for _ in range(64 if end in readable else 0):
                try:
                    packet = os.read(end, _PACKET_MAX)
                except BlockingIOError:
                    break
                if weather.is_cut or chance.random() < weather.loss:
                    continue
                number += 1
                due = time.monotonic() + weather.delay + chance.random() * weather.jitter
                heapq.heappush(under_way, (due, number, other[end], packet))
        while under_way and under_way[0][0] <= time.monotonic():
            _, _, end, packet = heapq.heappop(under_way)
            try:
                os.write(end, packet)
            except OSError:
                pass  # its queue is full: a packet is lost


class TwoHosts:
    def __init__(self, wire):
        number = os.getpid()
        self.hosts = []
        try:
            for side, address in zip("ab", _ADDRESSES):
                self.hosts.append(Host(f"gantry-{number}-{side}", address))
            self.wire = wire(self.hosts)
        except BaseException:
            self.close()
            raise

    def add_stand_in(self):
        """(another host with the second one's address, its wire to the first one, which is cut)

        One of the two wires may be whole at a time. To the first host it is one peer that goes away and comes back.
        """
        number = len(self.hosts)
        host = Host(f"{self.hosts[1].name}-{number}", self.hosts[1].address)
        self.hosts.append(host)
        return host, VethWire([self.hosts[0], host], f"wire-{number}", "down")

    def close(self):
        if hasattr(self, "wire"):
            self.wire.close()
        for host in self.hosts:
            host.close()


@pytest.fixture
def two_hosts():
    """two_hosts(VethWire) or two_hosts(WeatherWire)."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    made = []

    def make(wire):
        made.append(TwoHosts(wire))
        return made[-1]

    yield make
    for hosts in made:
        hosts.close()
