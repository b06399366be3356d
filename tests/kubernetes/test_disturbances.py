"""The plugin, the kubelet and the container runtime end and come back while transfers run: none fails, and no slot is lost."""

import signal

import pytest

from cluster import PLUGIN_LABELS, SIDECAR, engine_spec, status_of, wait_for
from node_files import NodeFiles
from test_pod_lives import slots_are

SIZE = 1 << 20


def plugin_pod_is_deleted(cluster, node, charts, next_image):
    cluster.delete_pod("gantry", cluster.plugin()["metadata"]["name"])


def plugin_is_killed(cluster, node, charts, next_image):
    plugin = cluster.plugin()
    NodeFiles(node).kill(plugin, "device-plugin")
    wait_for(lambda: status_of(cluster.pod("gantry", plugin["metadata"]["name"]), "device-plugin")["restartCount"] > 0, 30, "another plugin")


def kubelet_is_restarted(cluster, node, charts, next_image):
    node.restart("kubelet")


def kubelet_is_killed(cluster, node, charts, next_image):
    node.restart("kubelet", signal.SIGKILL)


def runtime_is_restarted(cluster, node, charts, next_image):
    node.restart("containerd")


def runtime_is_killed(cluster, node, charts, next_image):
    node.restart("containerd", signal.SIGKILL)


def chart_is_upgraded(cluster, node, charts, next_image):
    """To another image and other values; the plugin's pod is another one then."""
    before = status_of(cluster.plugin(), "device-plugin")["imageID"]
    charts.install_gantry(image=next_image, logLevel="debug")
    assert status_of(cluster.plugin(), "device-plugin")["imageID"] != before


@pytest.mark.parametrize("disturbance", [plugin_pod_is_deleted, plugin_is_killed, kubelet_is_restarted, kubelet_is_killed,
                                         runtime_is_restarted, runtime_is_killed, chart_is_upgraded], ids=lambda it: it.__name__)
def test_transfers_and_slots_outlive(cluster, node, node_files, installed, workloads, fake_gpus, next_image, disturbance):
    namespace = workloads.namespace()
    a, b = workloads.pair(namespace, SIZE, spec=engine_spec(1))
    before = {name: slot_of(cluster, node_files, namespace, name) for name in "ab"}
    a.do("start_load", "read", "kv", "b/b/kv", SIZE)
    wait_for(lambda: a.do("look_at_load")["succeeded"] > 10, 10, "transfers")
    try:
        disturbance(cluster, node, installed, next_image)
        cluster.wait_until_ready("gantry", PLUGIN_LABELS)
        wait_for(lambda: cluster.plugin_metrics()["gantry_dp_kubelet_connected"] == 1, 30, "the kubelet to read the plugin's slots")
        slots_are(cluster, 2)
        (c,) = workloads.engines(namespace, {"c": {"spec": engine_spec(1)}})
        slots = {**before, "c": slot_of(cluster, node_files, namespace, "c")}
        assert len({slot for slot, gpus in slots.values()}) == len({gpus for slot, gpus in slots.values()}) == 3, slots
        now = a.do("look_at_load")["succeeded"]
        wait_for(lambda: a.do("look_at_load")["succeeded"] > now + 10, 10, "more transfers")
        load = a.do("stop_load")
        assert load["failed"] == {}, load
        assert before == {name: slot_of(cluster, node_files, namespace, name) for name in "ab"}
        for name in "abc":
            assert [it["restartCount"] for it in (status_of(cluster.pod(namespace, name), part) for part in (SIDECAR, "engine"))] == [0, 0]
        slots_are(cluster, 3)
        c.connect(a)
        c.do("allocate", "kv", SIZE, 3)
        assert c.move("read", "kv", "a/a/kv", SIZE)[1]["state"] == "succeeded"
        assert c.do("digest", "kv") == a.do("digest", "kv")
    finally:
        if disturbance is chart_is_upgraded:
            installed.install_gantry()


def test_a_sidecar_dies_while_the_plugin_is_away(cluster, node, node_files, installed, workloads, fake_gpus):
    """It starts again, with what it had, at the latest when the plugin is back."""
    namespace = workloads.namespace()
    workloads.engines(namespace, {"a": {"spec": engine_spec(1)}})
    before = slot_of(cluster, node_files, namespace, "a")
    installed.install("gantry", installed.gantry, "gantry", {"nodeSelector": {"no": "node"}}, "--reuse-values")
    try:
        wait_for(lambda: not cluster.pods("gantry", PLUGIN_LABELS), 30, "the plugin's end")
        node_files.kill(cluster.pod(namespace, "a"), SIDECAR)
    finally:
        installed.install_gantry()
    wait_for(lambda: status_of(cluster.pod(namespace, "a"), SIDECAR)["restartCount"] >= 1, 30, "another sidecar")
    cluster.wait_until_ready(namespace, "app=a", seconds=100)
    assert slot_of(cluster, node_files, namespace, "a") == before
    slots_are(cluster, 1)


def slot_of(cluster, node_files, namespace, name):
    environment = node_files.environment(cluster.pod(namespace, name), SIDECAR)
    assert environment["GANTRY_SLOT_POD"] == name
    return environment["GANTRY_SLOT"], environment["GANTRY_SLOT_GPUS"]
