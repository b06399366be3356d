"""A real Prometheus scrapes the pods that the chart's monitors would select, and answers what dashboards and alerts ask."""

import sys
from pathlib import Path

import pytest

from cluster import PLUGIN_LABELS, wait_for

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "monitoring"))
from prometheus_server import Prometheus, questions  # noqa: E402

SIZE = 1 << 20
PORTS = {PLUGIN_LABELS: "metrics", "gantry.dev/sidecar=true": "gantry-metrics"}  # as the PodMonitors name them


def targets(cluster, namespace, labels):
    """(address, namespace, pod) of the port that a monitor names."""
    for pod in cluster.pods(namespace, labels):
        for container in pod["spec"]["containers"] + pod["spec"].get("initContainers", []):
            for port in container.get("ports", []):
                if port["name"] == PORTS[labels]:
                    yield f"{pod['status']['podIP']}:{port['containerPort']}", namespace, pod["metadata"]["name"]


@pytest.fixture
def prometheus(tmp_path):
    prometheus = Prometheus(tmp_path)
    yield prometheus
    prometheus.close()


def test_prometheus_sees_the_plugin_and_the_sidecars(cluster, workloads, prometheus):
    namespace = workloads.namespace()
    a, b = workloads.pair(namespace, SIZE)
    a.do("start_load", "read", "kv", "b/b/kv", SIZE)
    for target in [*targets(cluster, "gantry", PLUGIN_LABELS), *targets(cluster, namespace, "gantry.dev/sidecar=true")]:
        prometheus.add_target(*target)
    wait_for(lambda: prometheus.values("count(up == 1)") == [3], 20, "three targets that are up")
    wait_for(lambda: prometheus.values('sum(gantry_dp_slots{state="bound"})') == [2], 20, "two bound slots")
    wait_for(lambda: any(it > 0 for it in prometheus.values('gantry_transfers_total{pod="a",outcome="succeeded"}')), 20, "transfers of a")
    has_rdma = any(Path("/sys/class/infiniband").glob("*"))

    def silent():
        return [name for name, expression in questions().items()
                if name.startswith("gantry-device-plugin: ") and "annotation" not in name and not prometheus.values(expression)
                and (has_rdma or not name.startswith("gantry-device-plugin: RDMA ports"))]
    wait_for(lambda: not silent(), 20, lambda: f"answers, rates want two samples: {silent()}")
    assert a.do("stop_load")["failed"] == {}
