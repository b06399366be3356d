"""The end of a release: what the node and the cluster have of it then, with pods that ended before and with pods that still run."""

import json

import pytest

from cluster import PLUGIN_LABELS, TRANSFER, engine_spec, wait_for
from conftest import SLOTS
from test_pod_lives import slots_are

# Where the plugin and the sidecars leave files on a node.
CDI, PEERS, KUBELET = "/run/cdi", "/run/gantry/gantry.dev-transfer", "/var/lib/kubelet/device-plugins"
SIZE = 1 << 20


def files(node_files):
    """Of Gantry's on the node: {folder: names}, without folders that have none."""
    found = {CDI: node_files.names(CDI), "/etc/cdi": node_files.names("/etc/cdi"), PEERS: node_files.names(PEERS),
             KUBELET: node_files.names(KUBELET), "/run/gantry": [it for it in node_files.names("/run/gantry") if it != PEERS.split("/")[-1]]}
    mine = {folder: [it for it in names if folder == PEERS or "gantry" in it] for folder, names in found.items()}
    return {folder: names for folder, names in mine.items() if names}


def objects(cluster, release="gantry", label="app.kubernetes.io/instance"):
    """kind/namespace/name of everything with the release's label, of every kind that the API server lists."""
    kinds = [kind for namespaced in ("true", "false") for kind in
             cluster.kubectl("api-resources", "--verbs=list", f"--namespaced={namespaced}", "-o", "name").split()]
    kinds = ",".join(kind for kind in kinds if kind != "componentstatuses")
    found = json.loads(cluster.kubectl("get", kinds, "--all-namespaces", "-l", f"{label}={release}", "-o", "json"))
    return {f"{it['kind']}/{it['metadata'].get('namespace', '')}/{it['metadata']['name']}" for it in found["items"]}


@pytest.fixture
def uninstall(cluster, installed, node_files):
    """Returns when the plugin is gone; what it was is installed again after the test."""
    def uninstall():
        installed.uninstall("gantry", "gantry")
        wait_for(lambda: not cluster.pods("gantry", PLUGIN_LABELS), 30, "the plugin's end")
    yield uninstall
    installed.install_gantry()
    assert cluster.allocatable() == SLOTS


def test_uninstalling_leaves_nothing(cluster, installed, workloads, node_files, uninstall):
    """But the empty folder that was mounted into the plugin, and the token, which chart users keep."""
    namespace = workloads.namespace()
    installed.install_gantry(injection={"enabled": True, "namespaces": [namespace]})
    release = workloads.start(namespace, {"a": {}})
    workloads.engine(namespace, "a")
    wait_for(lambda: files(node_files).get(PEERS) == [namespace], 20, lambda: f"the end of others' folders: {files(node_files)}")
    before = files(node_files)
    assert {CDI, KUBELET} <= before.keys(), before
    assert {it.split("/")[0] for it in objects(cluster)} >= {"DaemonSet", "Pod", "Secret", "MutatingAdmissionPolicy",
                                                            "MutatingAdmissionPolicyBinding"}
    installed.uninstall(release, namespace)
    wait_for(lambda: not cluster.pods(namespace), 60, "the pod's end")
    wait_for(lambda: files(node_files).keys() <= {KUBELET}, 20, lambda: f"the end of {files(node_files)}")

    uninstall()
    assert files(node_files) == {}
    assert node_files.names("/run/gantry") == [PEERS.split("/")[-1]]
    wait_for(lambda: objects(cluster) == {f"Secret/{namespace}/gantry-peer-token"}, 30, lambda: f"the end of {objects(cluster)}")
    wait_for(lambda: cluster.allocatable() <= 0, 30, "the node to forget the slots")


def test_pods_that_hold_slots_outlive_the_plugin(cluster, installed, workloads, node_files, fake_gpus, uninstall):
    """Their transfers go on, a new pod waits; when they end their files stay until there is a plugin again, which removes them."""
    namespace = workloads.namespace()
    a, b = workloads.pair(namespace, SIZE, spec=engine_spec(1, seconds=30))
    a.do("start_load", "read", "kv", "b/b/kv", SIZE)
    wait_for(lambda: a.do("look_at_load")["succeeded"] > 10, 10, "transfers")
    held = files(node_files)
    uninstall()
    assert files(node_files) == {folder: names for folder, names in held.items() if folder != KUBELET}
    wait_for(lambda: cluster.allocatable() <= 0, 30, "the node to forget the slots")
    now = a.do("look_at_load")["succeeded"]
    wait_for(lambda: a.do("look_at_load")["succeeded"] > now + 10, 10, "more transfers")
    assert a.do("stop_load")["failed"] == {}
    workloads.start(namespace, {"late": {}})
    wait_for(lambda: any(f"Insufficient {TRANSFER}" in event for event in cluster.events(namespace)), 20, "the scheduler's word")

    workloads.close()
    left = files(node_files)
    assert left.keys() == {CDI, PEERS} and len(left[CDI]) == 2 and left[PEERS] == [namespace], left
    assert [it for it in node_files.names(f"{PEERS}/{namespace}") if not it.endswith(".lock")] == []
    installed.install_gantry()
    wait_for(lambda: files(node_files).keys() <= {KUBELET}, 20, lambda: f"the end of {files(node_files)}")
    slots_are(cluster, 0)
