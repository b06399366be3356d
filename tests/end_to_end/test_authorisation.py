"""Who may act for a workload: another user on the Unix socket, the token of another workload on loopback TCP."""

import http.client
import json
import multiprocessing
import os
import re

import pytest

from conftest import ask
from handoff import RawWorkload
from workloads import MiB, new_memory, wait_for

NOBODY = 65534


def ask_as_nobody(sidecar, method, target, body=None, token=None):
    """One request over the Unix socket, by a process of another user."""
    def run(pipe):
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        pipe.send(ask(sidecar.api_socket, method, target, body, headers))

    forking = multiprocessing.get_context("fork")
    ours, theirs = forking.Pipe()
    process = forking.Process(target=run, args=(theirs,))
    process.start()
    theirs.close()
    answer = ours.recv()
    process.join()
    return answer


@pytest.fixture
def opened(sidecar, folder):
    """A sidecar whose sockets everybody may open, as when the pod's containers run as several users."""
    if os.geteuid() != 0:
        pytest.skip("only root can act as another user")
    for path in (folder, sidecar.run_dir):
        path.chmod(0o755)
    sidecar.api_socket.chmod(0o666)
    sidecar.handoff_socket.chmod(0o666)
    return sidecar


def test_the_sockets_are_closed_to_other_users(sidecar, folder):
    for path in (sidecar.api_socket, sidecar.handoff_socket):
        assert path.stat().st_mode & 0o777 == 0o660
    for path in sidecar.node_dir.glob("*.sock"):
        assert path.stat().st_mode & 0o007 == 0, path


def test_another_user_may_not_act_for_a_workload(opened, new_memory):
    mine = RawWorkload(opened, "mine")
    (token,) = mine.hand_over(new_memory(MiB).fd)
    status, answer = mine.register(token, MiB)
    assert status == 201
    buffer = answer["buffers"][0]["id"]
    allocation = {"kind": "host", "fd_token": token, "size": MiB}
    requests = [
        ("POST", "/v1/buffers", {"workload": "mine", "allocations": [allocation], "buffers": [
            {"name": "theft", "pieces": [{"allocation": 0, "offset": 0, "length": 1}]}]}),
        ("DELETE", f"/v1/buffers/{buffer}", None),
        ("POST", "/v1/buffers:suspend", {"workload": "mine"}),
        ("POST", "/v1/transfers", {"workload": "mine", "op": "read", "local": ["kv"], "remote": ["mine/kv"],
                                   "ranges": [[0, 0, 0, 8, 8]]}),
        ("GET", "/v1/transfers?workload=mine", None),
        ("POST", "/v1/completions:poll", {"workload": "mine", "cursor": 0}),
        ("DELETE", "/v1/workloads/mine", None),
        ("PUT", "/v1/workloads/mine", {}),
    ]
    for method, target, body in requests:
        status, problem = ask_as_nobody(opened, method, target, body)
        assert (status, problem["code"]) == (403, "permission_denied"), (method, target, problem)
        status, problem = ask_as_nobody(opened, method, target, body, token="0" * 32)
        assert status in (401, 403), (method, target, problem)
    assert opened.ask("GET", f"/v1/buffers/{buffer}")[1]["state"] == "active"
    status, _ = ask_as_nobody(opened, "GET", "/v1/transfers?workload=mine", token=mine.token)
    assert status == 200, "the token's holder may"
    mine.close()


def test_another_user_may_have_a_workload_of_its_own(opened):
    status, lease = ask_as_nobody(opened, "PUT", "/v1/workloads/theirs", {})
    assert status == 201
    assert ask_as_nobody(opened, "POST", "/v1/buffers:suspend", {"workload": "theirs"})[0] == 200
    assert opened.ask("DELETE", "/v1/workloads/theirs")[0] == 204, "root may end it"


class OnTcp:
    """Requests over loopback TCP to a sidecar."""

    def __init__(self, sidecar):
        found = wait_for(lambda: re.search(r"REST is served on TCP.*?\bport\W+(\d+)", sidecar.log), 5, "its port")
        self.port = int(found.group(1))

    def ask(self, method, target, body=None, token=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        headers = {"Content-Type": "application/json"}
        if token is not None:
            headers["Authorization"] = token if " " in token else f"Bearer {token}"
        connection.request(method, target, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return answer.status, json.loads(text) if text[:1] in (b"{", b"[") else text


@pytest.fixture
def on_tcp(start_sidecar):
    sidecar = start_sidecar("a", flags=["--rest-listen", "127.0.0.1:0"])
    return sidecar, OnTcp(sidecar)


def test_on_tcp_a_token_is_good_for_its_own_workload_alone(on_tcp, new_memory):
    sidecar, tcp = on_tcp
    a, b = RawWorkload(sidecar, "a"), RawWorkload(sidecar, "b")
    ids = {}
    for workload in (a, b):
        (token,) = workload.hand_over(new_memory(MiB).fd)
        status, answer = workload.register(token, MiB)
        assert status == 201
        ids[workload.name] = answer["buffers"][0]["id"]
    move = {"workload": "b", "op": "read", "local": ["kv"], "remote": ["a/kv"], "ranges": [[0, 0, 0, 0, 8]]}
    requests = [
        ("POST", "/v1/transfers", move),
        ("GET", "/v1/transfers?workload=b", None),
        ("DELETE", f"/v1/buffers/{ids['b']}", None),
        ("POST", "/v1/buffers:resolve", {"workload": "b", "buffer": "kv", "offset": 0, "length": 1}),
        ("POST", "/v1/buffers:suspend", {"workload": "b"}),
        ("POST", "/v1/completions:poll", {"workload": "b", "cursor": 0}),
        ("GET", "/v1/events?workload=b", None),
        ("PUT", "/v1/workloads/b", {}),
        ("DELETE", "/v1/workloads/b", None),
    ]
    for method, target, body in requests:
        status, problem = tcp.ask(method, target, body, token=a.token)
        assert (status, problem["code"]) == (403, "permission_denied"), (method, target, problem)
        for wrong in (None, "0" * 32, a.token[:-1], f"Basic {b.token}", b.token.upper() + "x"):
            status, problem = tcp.ask(method, target, body, token=wrong)
            assert status in (401, 403) and problem["code"] in ("unauthenticated", "permission_denied"), (
                method, target, wrong, problem)
    assert tcp.ask("POST", "/v1/transfers?wait_ms=5000", move, token=b.token)[1]["state"] == "succeeded"
    assert sidecar.ask("GET", f"/v1/buffers/{ids['b']}")[1]["state"] == "active"
    a.close()
    b.close()


def test_on_tcp_nobody_comes_in_without_a_token(on_tcp):
    _, tcp = on_tcp
    assert tcp.ask("PUT", "/v1/workloads/new", {})[0] in (401, 403), "a lease is taken over the Unix socket"
    for target in ("/v1/status", "/v1/workloads", "/v1/buffers", "/v1/peers", "/v1/transfers", "/v1/debug/workers"):
        assert tcp.ask("GET", target)[0] == 401, target
    for target in ("/v1/info", "/healthz", "/readyz"):
        assert tcp.ask("GET", target)[0] == 200, target
    status, problem = tcp.ask("PUT", "/v1/peers/x", {"address": "unix:/tmp/x"})
    assert status in (401, 403), problem


def test_a_token_dies_with_its_workload(on_tcp):
    sidecar, tcp = on_tcp
    workload = RawWorkload(sidecar, "short")
    assert tcp.ask("GET", "/v1/transfers?workload=short", token=workload.token)[0] == 200
    workload.close()
    wait_for(lambda: sidecar.ask("GET", "/v1/workloads/short")[0] == 404, 1.5)
    assert tcp.ask("GET", "/v1/transfers?workload=short", token=workload.token)[0] in (401, 403, 404)
    successor = RawWorkload(sidecar, "short")
    assert successor.token != workload.token
    assert tcp.ask("GET", "/v1/transfers?workload=short", token=workload.token)[0] in (401, 403)
    successor.close()
