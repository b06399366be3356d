"""A peer vanishes: by kill -9, or because the wire is cut. Its transfers fail, what was opened for it is gone within a
second of noticing, on both sides and by what /proc says, and everything works again when it is back.

docs/operations.md states how soon it is noticed: NOTICED_SECONDS.
"""

import os
import re
import socket
import struct
import time
from pathlib import Path

import pytest

from conftest import SidecarProcess
from hosts import VethWire, two_hosts
from test_draining import buffer_of, delete
from test_hosts import cut_under_a_write, pair, sidecars_on
from workloads import (MiB, metric, new_memory, scene, start_workload, submit, view_of, wait_for,
                       workers_of)

NOTICED_SECONDS = 6.5  # 5 of silence, looked at each second; and what a busy machine adds
FREED_SECONDS = 1.0
LEASE_SECONDS = 3.25  # of a write over tcp, and its margin
# The session ended, or no data connection could be opened before that was known.
LOST = ("peer_lost", "peer_unavailable")


def state_of(sidecar, peer):
    return sidecar.ask("GET", f"/v1/peers/{peer}")[1]["state"]


def memfds_of(pid):
    """Descriptors of memory that the process has open."""
    found = []
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            found.append(os.readlink(f"/proc/{pid}/fd/{fd}"))
        except OSError:
            pass
    return [name for name in found if name.startswith("/memfd:e2e-")]


def sockets_to(sidecar, address):
    """Established TCP connections of the process to or from this IPv4 address."""
    pid = sidecar.process.pid
    own = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            own |= set(re.findall(r"^socket:\[(\d+)\]$", os.readlink(f"/proc/{pid}/fd/{fd}")))
        except OSError:
            pass
    (number,) = struct.unpack("<I", socket.inet_aton(address))
    found = []
    for table, wanted in (("tcp", f"{number:08X}:"), ("tcp6", f"0000000000000000FFFF0000{number:08X}:")):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[2].startswith(wanted) and fields[3] == "01" and fields[9] in own:
                found.append(line)
    return found


def test_a_peer_on_the_node_that_is_killed_is_unmapped_everywhere(scene):
    """The other half, that a SIGKILL of the reader frees the owner, is the last part."""
    scene.everything_works()
    a, b = scene.a, scene.b
    assert scene.source.mapped_by(workers_of(a)) and metric(a, "gantry_peer_fds{state=\"mapped\"}") > 0
    b.kill()
    begin = time.monotonic()
    wait_for(lambda: state_of(a, "b") == "down", 1, "noticing: the kernel closes its sockets")
    noticed = time.monotonic()
    wait_for(lambda: not scene.source.mapped_by(workers_of(a) + [a.process.pid]), FREED_SECONDS, "unmapping")
    wait_for(lambda: metric(a, "gantry_peer_fds{state=\"mapped\"}") == 0, FREED_SECONDS, "closing its descriptors")
    assert not [name for name in memfds_of(a.process.pid) if scene.source.name in name]
    assert time.monotonic() - noticed < FREED_SECONDS and time.monotonic() - begin < 2
    b.start()
    scene.owner.kill()
    scene.neighbour.kill()
    scene.start_owner()
    scene.neighbour = scene.start_workload(b, "neighbour")
    scene.neighbour.register(scene.neighbours, ("small", 0, MiB))
    wait_for(lambda: state_of(a, "b") == "up", 8, "the reconnection")
    scene.everything_works()
    a.kill()
    wait_for(lambda: metric(b, "gantry_peer_fds{state=\"waiting\"}") == 0, FREED_SECONDS)
    status, answer = delete(b, buffer_of(b, "owner")["id"], 3_000)
    assert status == 200 and [peer["outcome"] for peer in answer["peers"]] in ([], ["gone"])
    assert not scene.source.mapped_by(workers_of(b))


def test_a_cut_wire_is_noticed_by_both_and_everything_is_freed(pair):
    hosts, a, b, _, source, target = pair(VethWire)
    assert submit(a, "reader", "read", "kv", "b/owner/kv", MiB, wait_ms=10_000)[1]["state"] == "succeeded"
    assert sockets_to(a, hosts.hosts[1].address) and sockets_to(b, hosts.hosts[0].address)
    view, _, begin = cut_under_a_write(hosts, a, source, deadline_ms=30_000)
    wait_for(lambda: state_of(a, "b") == "down", NOTICED_SECONDS, "noticing")
    print(f"noticed after {time.monotonic() - begin:.1f} s")
    wait_for(lambda: not sockets_to(a, hosts.hosts[1].address), FREED_SECONDS, "closing connections")
    # What was being written may be applied as long as its lease lasts, and no longer.
    view = view_of(a, "reader", view["id"], wait_ms=10_000)
    assert view["state"] == "failed" and view["error"]["code"] in LOST, view
    assert time.monotonic() - begin < NOTICED_SECONDS + LEASE_SECONDS
    assert buffer_of(a, "reader")["uses"] == 0
    wait_for(lambda: not sockets_to(b, hosts.hosts[0].address),
             max(0.1, begin + NOTICED_SECONDS + FREED_SECONDS - time.monotonic()), "the owner's noticing")
    assert buffer_of(b, "owner")["uses"] == 0
    status, answer = delete(b, buffer_of(b, "owner")["id"], 1_000)
    assert (status, answer["peers"]) == (200, []), "the owner knows it no more"
    # Attempts come apart more and more, and find the peer when it is back.
    hosts.wire.heal()
    wait_for(lambda: state_of(a, "b") == "up", 8, "the reconnection")


def test_a_cut_wire_that_heals_carries_transfers_again(pair):
    hosts, a, b, _, source, target = pair(VethWire)
    assert submit(a, "reader", "read", "kv", "b/owner/kv", MiB, wait_ms=10_000)[1]["state"] == "succeeded"
    hosts.wire.cut()
    wait_for(lambda: state_of(a, "b") == "down", NOTICED_SECONDS, "noticing")
    status, problem = submit(a, "reader", "read", "kv", "b/owner/kv", MiB, wait_ms=5_000, deadline_ms=5_000)
    assert status in (502, 503) and problem["code"] in ("peer_lost", "peer_unavailable"), problem
    hosts.wire.heal()
    wait_for(lambda: state_of(a, "b") == "up", 8, "the reconnection")
    status, view = submit(a, "reader", "read", "kv", "b/owner/kv", source.size, wait_ms=20_000)
    assert (status, view["state"], view["retries"]) == (200, "succeeded", 0), view
    assert not target.differs_from(source)


def test_a_peer_on_another_host_that_is_killed_is_forgotten_at_once(pair, start_workload):
    hosts, a, b, _, source, target = pair(VethWire)
    assert submit(a, "reader", "read", "kv", "b/owner/kv", source.size, wait_ms=20_000)[1]["state"] == "succeeded"
    status, view = submit(a, "reader", "write", "kv", "b/owner/kv", source.size, deadline_ms=30_000)
    begin = time.monotonic()
    b.kill()
    wait_for(lambda: state_of(a, "b") == "down", 1, "noticing: the kernel ends its connections")
    wait_for(lambda: not sockets_to(a, hosts.hosts[1].address), FREED_SECONDS, "closing connections")
    view = view_of(a, "reader", view["id"], wait_ms=10_000)
    assert view["state"] == "succeeded" or view["error"]["code"] in LOST, view
    assert time.monotonic() - begin < 1 + LEASE_SECONDS + 1
    b.start()
    start_workload(b, "owner").register(source, ("kv", 0, source.size))
    wait_for(lambda: state_of(a, "b") == "up", 8, "the reconnection")
    target.clear()
    assert submit(a, "reader", "read", "kv", "b/owner/kv", source.size, wait_ms=20_000)[1]["state"] == "succeeded"
    assert not target.differs_from(source)


def test_a_write_that_a_cut_ends_is_over_in_the_stated_time(pair):
    """At the deadline and the time to be quiet, which for a write over tcp is the rest of its lease at most."""
    hosts, a, _, _, source, _ = pair(VethWire)
    assert submit(a, "reader", "write", "kv", "b/owner/kv", MiB, wait_ms=10_000)[1]["state"] == "succeeded"
    view, begin, _ = cut_under_a_write(hosts, a, source, deadline_ms=1_000)
    view = view_of(a, "reader", view["id"], wait_ms=10_000)
    took = time.monotonic() - begin
    print(f"over after {took:.2f} s")
    assert view["state"] == "expired", view
    assert took < 1 + LEASE_SECONDS + 0.75


@pytest.fixture
def start_stand_in(folder, start_workload):
    """Another life of this sidecar, ready behind a wire that is cut, with `kv` of workload "owner". (life, wire)"""
    started = []

    def start(sidecar, hosts, source):
        host, wire = hosts.add_stand_in()
        life = SidecarProcess(sidecar.name, folder / f"life-{len(started)}", workers=sidecar.workers, flags=sidecar.flags,
                              prefix=host.prefix, address=sidecar.address)
        started.append(life)
        start_workload(life.start(), "owner").register(source, ("kv", 0, source.size))
        return life, wire

    yield start
    for life in started:
        life.kill()


def test_a_peer_that_was_restarted_behind_a_cut_is_found_by_the_transfer_that_needs_it(pair, start_stand_in):
    """Its first attempt goes to a life of the peer that is over. The next life is ready before the cut, which is noticed soon."""
    hosts, a, life, _, source, target = pair(VethWire)
    wire = hosts.wire
    for _ in range(5):
        assert submit(a, "reader", "read", "kv", "b/owner/kv", source.size, wait_ms=20_000)[1]["state"] == "succeeded"
        before = metric(a, 'gantry_transfer_retries_total{reason="disconnect"}')
        source.fill()
        next_life, next_wire = start_stand_in(life, hosts, source)
        wire.cut()
        life.kill()
        status, view = submit(a, "reader", "read", "kv", "b/owner/kv", source.size, deadline_ms=20_000)
        was_up = state_of(a, "b") == "up"
        next_wire.heal()
        life, wire = next_life, next_wire
        if was_up:
            break
        # It was noticed before the transfer was there.
        wait_for(lambda: state_of(a, "b") == "up", 15, "the reconnection")
        if status == 202:
            view_of(a, "reader", view["id"], wait_ms=20_000)
    else:
        raise AssertionError("a cut wire was noticed five times before a transfer was submitted")
    assert status == 202, view
    view = view_of(a, "reader", view["id"], wait_ms=20_000)
    assert (view["state"], view["retries"]) == ("succeeded", 1), str(view)
    assert not target.differs_from(source)
    assert metric(a, 'gantry_transfer_retries_total{reason="disconnect"}') == before + 1
