"""The series of /metrics are the same ones whatever peers, workloads and callers do: no label is theirs."""

import json
import re
import socket
from concurrent import futures

from conftest import UnixConnection
from workloads import connect, wait_for

PEERS, WORKLOADS, REFUSALS = 40, 10_000, 1_000


def series_of(sidecar):
    text = sidecar.ask("GET", "/metrics")[1]
    return sorted(line.rpartition(" ")[0] for line in text.splitlines() if line and line[0] != "#")


def refused_requests():
    """Requests that differ in their method, target, header fields and body, none of which can be served."""
    for number in range(REFUSALS // 8):
        name = f"kind-{number}"
        yield "GET", f"/v1/{name}", None, {}
        yield f"VERB{number}", "/v1/transfers", None, {}
        yield "GET", f"/v1/transfers/{name}?workload={name}", None, {}
        yield "POST", "/v1/transfers", {"workload": name, "op": f"op-{number}", "local": [name], "remote": [name]}, {}
        yield "POST", "/v1/buffers", {name: number}, {"Gantry-Lease": name}
        yield "POST", "/v1/transfers", "{" * (number + 1), {"Content-Type": "application/json"}
        yield "POST", "/v1/transfers", "x", {"Content-Type": f"application/{name}"}
        yield "DELETE", f"/v1/workloads/{name}", None, {"User-Agent": name, "X-Request-Id": name}


def test_series_do_not_grow(start_sidecar, folder):
    sidecar = start_sidecar("a", flags=["--peer-listen", "127.0.0.1:0", "--log-level", "error"])
    before = series_of(sidecar)
    assert len(before) == len(set(before)) > 100
    connection = UnixConnection(sidecar.api_socket)

    def ask(method, target, body=None, headers=None):
        text = json.dumps(body) if body is not None and not isinstance(body, str) else body
        fields = {"Content-Type": "application/json"} if text is not None else {}
        connection.request(method, target, body=text, headers={**fields, **(headers or {})})
        answer = connection.getresponse()
        answer.read()
        return answer.status

    other = start_sidecar("other")
    connect(sidecar, other)
    other.kill()
    with socket.socket() as silent:  # its backlog takes connections that nobody accepts
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        addresses = [f"unix:{folder}/nobody.sock", "127.0.0.1:1", f"127.0.0.1:{silent.getsockname()[1]}"]

        def add(index):  # which waits for the peer a while
            return sidecar.ask("PUT", f"/v1/peers/dead-{index}", {"address": addresses[index % 3]})[0]

        with futures.ThreadPoolExecutor(PEERS) as pool:
            assert set(pool.map(add, range(PEERS))) == {201}
    wait_for(lambda: sidecar.ask("GET", "/v1/peers/other")[1]["state"] != "up", 10, "the end of the peer")
    for index in range(WORKLOADS):
        assert ask("PUT", f"/v1/workloads/w-{index}", {}) in (200, 201)
        assert ask("DELETE", f"/v1/workloads/w-{index}") in (200, 204)
    statuses = {ask(*request) for request in refused_requests()}
    assert min(statuses) >= 400 and len(statuses) >= 3, statuses
    assert series_of(sidecar) == before
    text = sidecar.ask("GET", "/metrics")[1]
    assert not re.search(r"dead-|kind-|w-\d|VERB", text)
    assert ask("GET", "/v1/status") == 200
    connection.close()
