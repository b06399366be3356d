"""A real Prometheus scrapes two sidecars under load and a device plugin, and answers everything that dashboards and alerts ask."""

import json
import re

import pytest

from monitored_scene import PODS, MonitoredScene  # first: its folder has workloads
from monitoring_files import RDMA_QUESTIONS, alerts
from prometheus_server import questions
from workloads import wait_for

LOAD_SECONDS = 12

# What has no answer in this scene, and who asks it instead. Patterns of names of questions().
NO_ANSWER = {pattern: "tests/rdma/recorded_metrics_test.py" for pattern in RDMA_QUESTIONS}

# What the load makes larger than zero.
MOVING = ["Sidecars, A", "Peers down, A", "Transfers that fail, A", "Access errors, last hour, A", "By pod, C", "Throughput, A", "Speed, A",
          "Transfers by outcome, A", "Chunks moved, A", "Ranges, A", "Time of a transfer, B", "Time by path, p99, A",
          "Time by stage, p99, A", "Times, A", "Sizes, A", "Path mix, A", "Access errors, A", "Notifications, A",
          "Requests by answer, A", "Time of requests, p99, A", "Bytes registered and mapped, B", "Descriptors in use, A", "Processors, A",
          "Peers by state, A", "TCP connections, A", "Served over TCP, A", "Jobs between GPUs, A", "Copy workers, B",
          "Bytes registered and mapped, C", "Staged, A", "Registrations, A",
          "Handover of a prompt, B", "Parts of a handover, p99, A", "Parts of a handover, p99, B", "Prompts' bytes by path, A",
          "Handovers, A", "Handovers, B", "Handovers, C", "Blocks that did not arrive, A", "Blocks that did not arrive, B",
          "Holds, leases and messages of engines, A", "Holds, leases and messages of engines, B",
          "Holds, leases and messages of engines, C"]
MOVING_OF_THE_PLUGIN = ["Plugins, A", "Connected to the kubelet, A", "Healthy, A", "Slots bound, A", "Binds, last hour, A",
                        "Failed binds, last hour, A", "Registrations, A", "Slots by state, A", "Binds, A", "Failed binds, A",
                        "Time to bind, A", "Time to allocate, A", "Times to bind, A", "RDMA ports, A", "CDI files, A", "CDI files, B"]


@pytest.fixture(scope="module")
def scene():
    scene = MonitoredScene()
    try:
        scene.load(LOAD_SECONDS)
        wait_for(lambda: scene.prometheus.values("min(up)") == [1.0], 30, "a scrape of each in time")
        yield scene
    finally:
        scene.close()


def is_without_answer(name):
    return any(re.fullmatch(pattern, name) for pattern in NO_ANSWER)


def test_every_expression_has_an_answer(scene):
    silent = {name for name, expression in questions().items() if not scene.prometheus.values(expression)}
    assert silent == {name for name in questions() if is_without_answer(name)}
    unused = [pattern for pattern in NO_ANSWER if not any(re.fullmatch(pattern, name) for name in questions())]
    assert not unused


def test_what_the_load_does_is_seen(scene):
    asked = questions()

    def still(board, names):
        return [name for name in names if not any(value > 0 for value in scene.prometheus.values(asked[f"{board}: {name}"]))]
    assert not still("gantry-transfers", MOVING)  # first: the load is over
    # Pods come, and the kubelet restarts each ten seconds and a bit, as long as the scene lasts.
    wait_for(lambda: not still("gantry-device-plugin", MOVING_OF_THE_PLUGIN), 60,
             lambda: f"{still('gantry-device-plugin', MOVING_OF_THE_PLUGIN)} to move")


def test_prometheus_evaluates_every_alert_and_one_fires(scene):
    rules = {rule["name"]: rule for group in scene.prometheus.ask("rules")["groups"] for rule in group["rules"]}
    assert rules.keys() == alerts().keys()
    assert {name: rule["lastError"] for name, rule in rules.items() if rule["health"] != "ok"} == {}
    firing = [alert["labels"] for alert in rules["GantryAccessErrors"]["alerts"] if alert["state"] == "firing"]
    namespace, pod = PODS["a"]
    assert {"permission", "unregistered", "out_of_range"} <= {labels["reason"] for labels in firing}
    assert {(labels["namespace"], labels["pod"]) for labels in firing} == {(namespace, pod)}


def test_the_log_says_what_the_alerts_pages_send_their_readers_to(scene):
    def codes(sidecar, message):
        lines = [json.loads(line) for line in sidecar.log.splitlines() if line.startswith("{")]
        return {line["error"]["code"] for line in lines if line["message"] == message}
    assert {"permission_denied", "unregistered", "out_of_range"} <= codes(scene.a, "a transfer was refused")
    assert codes(scene.b, "a transfer did not succeed") == {"deadline_exceeded"}
