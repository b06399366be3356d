"""docs/kubernetes.md, "From an empty cluster to an alert", as it is written, but for registries: engines, transfers, an alert, its end."""

import json

import pytest

import node_images
from cluster import wait_for
from conftest import LIB_DIR
from test_monitoring_on_a_node import prometheus, targets  # noqa: F401

IMAGE = "localhost/gantry-engine:test"
SIDECARS = "gantry.dev/sidecar=true"
# What follows from a prefill pod that is gone.
EXPECTED = {name: f"docs/alerts.md#{name.lower()}" for name in ("GantryTransfersRejected", "GantryPeersDown", "GantryRestErrors")}


@pytest.fixture
def chat(cluster, node, installed, workloads, tmp_path):
    """The release of the example with engines that stand in; its namespace."""
    node.load(node_images.write_engine_image(tmp_path / "engine.tar", IMAGE, LIB_DIR / "libgantry.so"))
    namespace = workloads.namespace("baseline")
    values = {"image": IMAGE, "gantry-lib": {"image": {**installed.image, "pullPolicy": "Never"}}}
    installed.install("chat", installed.example, namespace, values, "--values", installed.example / "stand-in-values.yaml")
    cluster.wait_until_ready(namespace, SIDECARS, count=3)
    yield namespace
    installed.uninstall("chat", namespace)


@pytest.mark.timeout(400)
def test_transfers_an_alert_and_its_end(cluster, chat, prometheus):  # noqa: F811
    for target in targets(cluster, chat, SIDECARS):
        prometheus.add_target(*target)
    both = 'count(sum by (pod) (rate(gantry_transfers_total{pod=~"chat-decode.*",outcome="succeeded"}[5s])) > 1)'
    wait_for(lambda: prometheus.values(both) == [2], 40, lambda: f"transfers of both decode pods\n{cluster.story_of(chat)}")
    assert "GantryPeersDown" not in alerts(prometheus)

    cluster.kubectl("scale", "deployment", "chat-prefill", "-n", chat, "--replicas=0")
    wait_for(lambda: EXPECTED.items() <= alerts(prometheus).items(), 100,
             lambda: f"the alert, there are {alerts(prometheus)}\n{cluster.story_of(chat)}")

    cluster.kubectl("scale", "deployment", "chat-prefill", "-n", chat, "--replicas=1")
    cluster.wait_until_ready(chat, SIDECARS, count=3)
    wait_for(lambda: prometheus.values(both) == [2], 60, lambda: f"transfers of both decode pods again\n{cluster.story_of(chat)}")
    for pod in cluster.pods(chat, "app.kubernetes.io/component=decode"):
        said = [json.loads(line) for line in cluster.log(chat, pod["metadata"]["name"], "engine").splitlines() if line.startswith("{")]
        assert len({it["peer"] for it in said if it["event"] == "reading from"}) == 2, said


def alerts(prometheus):  # noqa: F811
    """{name: its page} of those that fire, or will when their time is over."""
    return {it["labels"]["alertname"]: it["annotations"]["runbook_url"] for it in prometheus.ask("alerts")["alerts"]}
