"""A sidecar that is to spin for long answers the last small transfer again and again, for nobody: without a trace."""

import json
import time

import pytest

from conftest import UnixConnection
from workloads import MiB, Scene, metric, new_memory, start_workload, totals_of  # noqa: F401

SPIN_US = 100_000
LENGTH = 4096


@pytest.fixture
def rehearsing(start_sidecar, start_workload, new_memory):
    return Scene(start_sidecar, start_workload, new_memory, MiB, flags=["--spin-us", str(SPIN_US)])


class Caller:
    """One connection that stays open, as its requests alone are rehearsed: one thread spins at most, for one connection."""

    def __init__(self, sidecar):
        time.sleep(3 * SPIN_US / 1e6)  # until none does for those of before
        self._connection = UnixConnection(sidecar.api_socket)

    def ask(self, method, target, body=None):
        headers = {"Content-Type": "application/json"} if body else {}
        self._connection.request(method, target, body=json.dumps(body) if body else None, headers=headers)
        answer = self._connection.getresponse()
        text = answer.read().decode()
        return answer.status, json.loads(text) if text else None

    def read(self, remote="b/owner/kv"):
        body = {"workload": "reader", "op": "read", "local": ["kv"], "remote": [remote], "ranges": [[0, 0, 0, 0, LENGTH]]}
        status, view = self.ask("POST", "/v1/transfers?wait_ms=5000", body)
        assert (status, view["state"]) == (200, "succeeded"), view
        return view


def counted(sidecar):
    return [metric(sidecar, series) for series in (
        'gantry_transfers_total{op="read",outcome="succeeded",path="shm"}',
        'gantry_transfer_bytes_total{op="read",path="shm"}',
        'gantry_http_requests_total{code="2xx",method="POST",route="/v1/transfers"}')]


def test_a_rehearsal_leaves_no_trace(rehearsing):
    caller = Caller(rehearsing.a)
    caller.read()
    time.sleep(0.03)
    counts = counted(rehearsing.a)
    listed = rehearsing.a.ask("GET", "/v1/transfers?workload=reader")[1]["transfers"]
    time.sleep(0.03)
    assert counted(rehearsing.a) == counts
    assert len(listed) == 1
    assert totals_of(rehearsing.a)["transfers_running"] == 0
    assert "rehearsed" not in rehearsing.a.log
    rehearsing.everything_works()


def test_buffers_are_removed_at_once_while_requests_are_rehearsed(rehearsing):
    caller = Caller(rehearsing.a)
    for _ in range(40):
        caller.read()
        time.sleep(0.003)
        buffer = rehearsing.a.ask("GET", "/v1/buffers?workload=reader")[1]["buffers"][0]
        assert buffer["uses"] == 0
        status, problem = rehearsing.a.ask("DELETE", f"/v1/buffers/{buffer['id']}?drain_ms=0")
        assert status == 200, problem
        rehearsing.reader.register(rehearsing.target, ("kv", 0, MiB))
    rehearsing.everything_works()


def test_a_sidecar_that_rehearses_ends_at_once(rehearsing):
    caller = Caller(rehearsing.a)
    caller.read()
    time.sleep(0.05)
    start = time.monotonic()
    rehearsing.a.stop()
    assert time.monotonic() - start < 3
