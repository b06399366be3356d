"""grpc.health.v1 as probes of Kubernetes ask it: over gRPC, on a plaintext port of its own."""

import signal
import time

import grpc
import pytest

from test_peers_over_tcp import address_of
from workloads import LARGE, Scene, connect, new_memory, start_workload, wait_for

SERVING, NOT_SERVING = 1, 2
HEALTH = ["--health-listen", "127.0.0.1:0"]


class HealthClient:
    """Speaks to one sidecar. The messages are small enough to be written by hand."""

    def __init__(self, sidecar):
        self.channel = grpc.insecure_channel(address_of(sidecar, "health is served"))
        self._check = self.channel.unary_unary("/grpc.health.v1.Health/Check", request_serializer=self._request,
                                               response_deserializer=self._status)
        self._watch = self.channel.unary_stream("/grpc.health.v1.Health/Watch", request_serializer=self._request,
                                                response_deserializer=self._status)

    @staticmethod
    def _request(service):
        return b"\x0a" + bytes([len(service)]) + service.encode() if service else b""

    @staticmethod
    def _status(message):
        return message[1] if message[:1] == b"\x08" else 0

    def check(self, service, seconds=2):
        """The status, or the gRPC code of what was answered instead."""
        try:
            return self._check(service, timeout=seconds)
        except grpc.RpcError as error:
            return error.code()

    def watch(self, service):
        return self._watch(service, timeout=30)


@pytest.fixture
def health():
    made = []

    def make(sidecar):
        made.append(HealthClient(sidecar))
        return made[-1]

    yield make
    for client in made:
        client.channel.close()


def test_a_sidecar_that_has_started_is_ready(start_sidecar, health):
    client = health(start_sidecar("a", flags=HEALTH))
    for service in ("", "readiness", "liveness"):
        assert client.check(service) == SERVING, service
    assert client.check("nothing-of-this-name") == grpc.StatusCode.NOT_FOUND


def test_readiness_does_not_depend_on_peers(start_sidecar, health):
    a, b = start_sidecar("a", flags=HEALTH), start_sidecar("b")
    client = health(a)
    connect(a, b)
    a.ask("PUT", "/v1/peers/nobody", {"address": f"unix:{a.node_dir}/nobody.peer.sock"})
    b.kill()
    wait_for(lambda: a.ask("GET", "/v1/peers/b")[1]["state"] == "down", 5)
    end = time.monotonic() + 2.5
    while time.monotonic() < end:
        assert client.check("readiness") == client.check("liveness") == SERVING
        time.sleep(0.1)


def test_a_sidecar_that_drains_is_alive_and_not_ready(start_sidecar, start_workload, new_memory, health):
    """Its copy worker stands still, so that the transfer is quiet, and the sidecar ends, only by force."""
    scene = Scene(start_sidecar, start_workload, new_memory, LARGE, flags=[*HEALTH, "--quiesce-ms-max", "6000"])
    client = health(scene.a)
    watch = client.watch("readiness")
    assert next(watch) == SERVING
    scene.hold()
    begin = time.monotonic()
    scene.a.process.send_signal(signal.SIGTERM)
    assert next(watch) == NOT_SERVING, "whoever watches is told"
    assert time.monotonic() - begin < 3, "at once: long before it is quiet"
    seen = set()
    for _ in range(20):
        seen.add((client.check(""), client.check("readiness"), client.check("liveness")))
        time.sleep(0.05)
    assert seen == {(NOT_SERVING, NOT_SERVING, SERVING)}
    assert scene.a.process.wait(15) == 0
    assert client.check("liveness") == grpc.StatusCode.UNAVAILABLE
