"""Two sidecars on two hosts that a wire joins: the wire is cut, slow, lossy and disordered, and both sidecars die.

GANTRY_HOSTS_KILLS sets how many kills of sidecars the soak has (200), GANTRY_HOSTS_SECONDS how long it may take, and
GANTRY_SOAK_SEED what happens.
"""

import os
import random
import signal
import time

import pytest

from hosts import VethWire, WeatherWire, Weather, two_hosts
from soak_life import DEADLINE_SECONDS
from soak_world import FLAGS, World
from workloads import BOTH, TERMINAL, MiB, connect, new_memory, send, start_workload, submit, view_of, wait_for

PORT = 7450
KILLS = int(os.environ.get("GANTRY_HOSTS_KILLS", "200"))
SECONDS = float(os.environ.get("GANTRY_HOSTS_SECONDS", "900"))


@pytest.fixture
def sidecars_on(start_sidecar, folder):
    """Sidecars "a" and "b" on the two hosts, which know each other by a token."""

    def start(hosts):
        token = folder / "token"
        token.write_text("0123456789abcdef0123456789abcdef\n")
        token.chmod(0o600)
        made = []
        for name, host in zip("ab", hosts.hosts):
            address = f"{host.address}:{PORT}"
            flags = [*FLAGS, "--peer-listen", address, "--peer-token-file", str(token), "--peer-plaintext"]
            made.append(start_sidecar(name, node_dir=folder / f"node-{name}", workers=2, flags=flags,
                                      prefix=host.prefix, address=address))
        return made

    return start


class Storm(World):
    """What can also happen between two hosts."""

    def __init__(self, sidecars, wire, seed):
        self.wire = wire
        events = [(self.cut_the_wire, 2), (self.stop_a_sidecar_for_a_moment, 1), (self.kill_a_sidecar, 6)]
        if isinstance(wire, WeatherWire):
            events.append((self.change_the_weather, 4))
        super().__init__(sidecars, seed, events)

    def cut_the_wire(self):
        self.wire.cut()
        time.sleep(self.random.choice([0.05, 0.3, 1.5]))
        self.wire.heal()

    def stop_a_sidecar_for_a_moment(self):
        victim = [self.random.choice(self.sidecars).process.pid]
        send(victim, signal.SIGSTOP)  # the sockets of the other one fill
        time.sleep(self.random.choice([0.1, 0.8]))
        send(victim, signal.SIGCONT)

    def change_the_weather(self):
        self.wire.set(Weather(delay=self.random.choice([0, 0.0005, 0.005]), jitter=self.random.choice([0, 0.002]),
                              loss=self.random.choice([0, 0.001, 0.02])))

    def join_peers(self):
        self.wire.heal()
        super().join_peers()


def weather_the(storm, seconds, kills):
    try:
        storm.live_for(seconds, until=lambda counts: counts["kill_a_sidecar"] >= kills)
        storm.wire.heal()
        storm.end()
        print(f"seed {storm.seed}: {dict(sorted(storm.counts.items()))}")
        assert storm.counts["succeeded"] > 5 * storm.counts["kill_a_sidecar"], f"seed {storm.seed}: {storm.counts}"
        storm.assert_nothing_is_left()
        return storm.counts
    finally:
        storm.close()


@pytest.mark.parametrize("wire", [VethWire, WeatherWire])
@pytest.mark.parametrize("seconds, kills", [
    pytest.param(6, KILLS, id="seconds"),
    pytest.param(SECONDS, KILLS // 2, id="kills",
                 marks=[pytest.mark.soak, pytest.mark.timeout(SECONDS + 120)])])
def test_storm(two_hosts, sidecars_on, wire, seconds, kills):
    hosts = two_hosts(wire)
    seed = int(os.environ.get("GANTRY_SOAK_SEED", random.randrange(1 << 32)))
    counts = weather_the(Storm(sidecars_on(hosts), hosts.wire, seed), seconds, kills)
    if seconds == SECONDS:
        assert counts["kill_a_sidecar"] >= kills, f"not enough in {seconds} s: {counts}"


@pytest.fixture
def pair(two_hosts, sidecars_on, start_workload, new_memory):
    """A reader at "a" and an owner at "b" with a buffer `kv` each, on a wire of this kind."""

    def make(wire, size=64 * MiB):
        hosts = two_hosts(wire)
        a, b = sidecars_on(hosts)
        connect(a, b)
        source, target = new_memory(size, filled=True), new_memory(size)
        owner, reader = start_workload(b, "owner"), start_workload(a, "reader")
        owner.register(source, ("kv", 0, size, BOTH))
        reader.register(target, ("kv", 0, size, BOTH))
        return hosts, a, b, reader, source, target

    return make


@pytest.mark.smoke(wire=VethWire)
@pytest.mark.parametrize("wire", [VethWire, WeatherWire])
def test_moves_between_hosts(pair, wire):
    hosts, a, _, _, source, target = pair(wire)
    status, view = submit(a, "reader", "read", "kv", "b/owner/kv", source.size, wait_ms=30_000)
    assert status == 200 and view["state"] == "succeeded" and view["path"] == "tcp", view
    assert not target.differs_from(source)
    target.fill()
    status, view = submit(a, "reader", "write", "kv", "b/owner/kv", source.size, wait_ms=30_000)
    assert status == 200 and view["state"] == "succeeded", view
    assert not source.differs_from(target)


def cut_under_a_write(hosts, a, source, **fields):
    """(view of a write that had not ended when the wire was cut, when it was submitted, when the wire was cut)"""
    for _ in range(10):
        submitted = time.monotonic()
        status, view = submit(a, "reader", "write", "kv", "b/owner/kv", source.size, **fields)
        hosts.wire.cut()
        cut = time.monotonic()
        assert status in (200, 202), view
        view = view_of(a, "reader", view["id"])
        if view["state"] not in TERMINAL:
            return view, submitted, cut
        hosts.wire.heal()  # the transfer was faster than the scissors
        wait_for(lambda: a.ask("GET", "/v1/peers/b")[1]["state"] == "up", 8, "the wire")
    raise AssertionError(f"ten writes were over before the wire was cut: {view}")


def test_a_short_cut_only_delays(pair):
    """TCP sends again what was lost."""
    hosts, a, _, _, source, target = pair(VethWire)
    _, view = submit(a, "reader", "read", "kv", "b/owner/kv", source.size, deadline_ms=20_000)
    hosts.wire.cut()
    time.sleep(0.5)
    hosts.wire.heal()
    view = view_of(a, "reader", view["id"], wait_ms=20_000)
    assert view["state"] == "succeeded", view
    assert not target.differs_from(source)


def test_a_long_cut_ends_transfers_in_time_and_heals(pair):
    hosts, a, _, _, source, target = pair(VethWire)
    assert submit(a, "reader", "read", "kv", "b/owner/kv", MiB, wait_ms=10_000)[1]["state"] == "succeeded"
    view, began, _ = cut_under_a_write(hosts, a, source, deadline_ms=1_500)
    view = view_of(a, "reader", view["id"], wait_ms=15_000)
    assert view["state"] in ("expired", "failed"), view
    assert time.monotonic() - began < DEADLINE_SECONDS, view
    wait_for(lambda: a.ask("GET", "/v1/peers/b")[1]["state"] != "up", 10, "noticing")
    source.fill()
    hosts.wire.heal()
    wait_for(lambda: a.ask("GET", "/v1/peers/b")[1]["state"] == "up", 15, "the reconnection")
    status, view = submit(a, "reader", "read", "kv", "b/owner/kv", source.size, wait_ms=20_000)
    assert view["state"] == "succeeded", view
    assert not target.differs_from(source)  # nothing late was written over what the owner wrote after the failure


def test_loss_delay_and_disorder(pair):
    hosts, a, _, _, source, target = pair(WeatherWire, 16 * MiB)
    hosts.wire.set(Weather(delay=0.002, jitter=0.002, loss=0.005))
    status, view = submit(a, "reader", "read", "kv", "b/owner/kv", source.size, wait_ms=60_000, deadline_ms=60_000)
    assert view["state"] == "succeeded", view
    assert not target.differs_from(source)
