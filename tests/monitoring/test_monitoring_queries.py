"""A real Prometheus scrapes two sidecars under load and a device plugin, and answers everything that dashboards and alerts ask."""

import json
import re

import pytest

from monitored_scene import PODS, MonitoredScene  # first: its folder has workloads
from monitoring_files import RDMA_QUESTIONS, alerts
from prometheus_server import questions
from workloads import wait_for

SEEN_SECONDS = 60  # two scrapes of each show how fast a counter goes up; a busy machine takes longer

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
    """The load lasts as long as the scene: a test waits for what it makes, however slow the machine is."""
    scene = MonitoredScene()
    try:
        scene.begin_load()
        wait_for(lambda: 1.0 in scene.values("min(up)"), SEEN_SECONDS, "a scrape of each in time")
        yield scene
        scene.end_load()
    finally:
        scene.close()


def is_without_answer(name):
    return any(re.fullmatch(pattern, name) for pattern in NO_ANSWER)


def wait_for_all(names, happened, what):
    """Asks for each name again until it happened once. Fails with those that are left."""
    left = list(names)

    def none_is_left():
        left[:] = [name for name in left if not happened(name)]
        return not left
    wait_for(none_is_left, SEEN_SECONDS, lambda: f"{left} to {what}")


def test_every_expression_has_an_answer(scene):
    asked = questions()
    wait_for_all([name for name in asked if not is_without_answer(name)], lambda name: scene.values(asked[name]), "have an answer")
    assert not [name for name in asked if is_without_answer(name) and scene.values(asked[name])]
    unused = [pattern for pattern in NO_ANSWER if not any(re.fullmatch(pattern, name) for name in asked)]
    assert not unused


def test_what_the_load_does_is_seen(scene):
    asked = questions()
    names = [f"gantry-transfers: {name}" for name in MOVING]
    # Pods come, and the kubelet restarts each ten seconds and a bit.
    names += [f"gantry-device-plugin: {name}" for name in MOVING_OF_THE_PLUGIN]
    wait_for_all(names, lambda name: any(value > 0 for value in scene.values(asked[name])), "move")


def test_prometheus_evaluates_every_alert_and_one_fires(scene):
    def rules():
        return {rule["name"]: rule for group in scene.prometheus.ask("rules")["groups"] for rule in group["rules"]}

    def firing():
        return [alert["labels"] for alert in rules()["GantryAccessErrors"]["alerts"] if alert["state"] == "firing"]
    wait_for(lambda: {"permission", "unregistered", "out_of_range"} <= {labels["reason"] for labels in firing()}, SEEN_SECONDS,
             lambda: f"an alert for each reason, and not for {firing()} alone,")
    namespace, pod = PODS["a"]
    assert {(labels["namespace"], labels["pod"]) for labels in firing()} == {(namespace, pod)}
    assert rules().keys() == alerts().keys()
    assert {name: rule["lastError"] for name, rule in rules().items() if rule["health"] != "ok"} == {}


def test_the_log_says_what_the_alerts_pages_send_their_readers_to(scene):
    def codes(sidecar, message):
        # While it is written, what stands behind the last end of a line is a part of one.
        lines = [json.loads(line) for line in sidecar.log.rpartition("\n")[0].splitlines() if line.startswith("{")]
        return {line["error"]["code"] for line in lines if line["message"] == message}
    refused = {"permission_denied", "unregistered", "out_of_range"}
    wait_for(lambda: refused <= codes(scene.a, "a transfer was refused"), SEEN_SECONDS, "each refusal in the log")
    wait_for(lambda: codes(scene.b, "a transfer did not succeed"), SEEN_SECONDS, "a late transfer in the log")
    assert codes(scene.b, "a transfer did not succeed") == {"deadline_exceeded"}
