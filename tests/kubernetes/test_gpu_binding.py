"""GPUs of pods: a sidecar gets those of its own pod, and of others as the plugin is told; both containers reach the same memory.

On GPUs of either vendor: NVIDIA's have CDI specs on the node; AMD's have device files, and libraries in the images.
"""

import time

import pytest

from cluster import SIDECAR, status_of, wait_for
from node_gpus import COUNT, VENDORS
from test_pod_lives import slots_are

SIZE = 1 << 21


@pytest.fixture(params=VENDORS)
def gpus(request, gpu_pods_of):
    return gpu_pods_of(request.param)


def engines_with_gpus(workloads, gpus, namespace, *names):
    return workloads.engines(namespace, {name: {"spec": gpus.spec(1)} for name in names}, gpus.gantry())


def given_to(node_files, cluster, gpus, engine):
    """GPUs of one pod's containers: as the slot's variables name them, by their device files, and by what CDI specs put in."""
    pod, vendor = cluster.pod(engine.namespace, engine.pod), gpus.vendor
    mine, theirs = (node_files.environment(pod, name) for name in (SIDECAR, "engine"))

    def by_files(container):
        return sorted(vendor.id_of_file(name) for name in node_files.devices(pod, container, vendor.own_files))

    def by_specs(environment):
        return sorted(value for name, value in environment.items() if name.startswith(vendor.marker))
    if vendor.has_spec:
        assert by_specs(mine) == by_files(SIDECAR) and by_specs(theirs) == by_files("engine")
    files = node_files.devices(pod, SIDECAR, vendor.own_files, *vendor.shared_files)
    assert set(vendor.shared_files) <= files.keys() and all(mode & 0o006 == 0o006 for mode in files.values()), files
    return {"gpus": split(mine["GANTRY_SLOT_GPUS"]), "peer_gpus": split(mine.get("GANTRY_SLOT_PEER_GPUS", "")),
            "files": by_files(SIDECAR), "engine": by_files("engine"), "others": other_files(node_files, pod, vendor),
            "pod": mine["GANTRY_SLOT_POD"], "namespace": mine["GANTRY_SLOT_NAMESPACE"]}


def other_files(node_files, pod, vendor):
    """Of another vendor, in the sidecar."""
    patterns = [pattern for other in VENDORS.values() if other is not vendor for pattern in (other.own_files, *other.shared_files)]
    return node_files.devices(pod, SIDECAR, *patterns)


def split(text):
    return sorted(part for part in text.split(",") if part)


@pytest.fixture
def visibility(installed):
    """Sets it for a test, and back."""
    yield lambda value: installed.install_gantry(peerGpuVisibility=value)
    installed.install_gantry()


def test_a_sidecar_gets_its_own_pods_gpus_and_no_neighbours(cluster, workloads, gpus, node_files, visibility):
    visibility("none")
    namespace, counts = gpus.namespace(workloads), {"a": 1, "b": 2, "c": 1}
    workloads.start(namespace, {name: {"spec": gpus.spec(count)} for name, count in counts.items()}, gpus.gantry())
    seen = {}
    for name, count in counts.items():
        given = given_to(node_files, cluster, gpus, workloads.engine(namespace, name))
        assert given["pod"] == name and given["namespace"] == namespace
        assert given["gpus"] == given["engine"] == given["files"] and len(given["gpus"]) == count, given
        assert given["peer_gpus"] == [] and given["others"] == {}, given
        seen[name] = given["gpus"]
    assert len({gpu for mine in seen.values() for gpu in mine}) == COUNT, seen


def test_a_namespaces_gpus_and_no_others(cluster, workloads, gpus, node_files):
    mine, other = gpus.namespace(workloads), gpus.namespace(workloads)
    (elsewhere,) = engines_with_gpus(workloads, gpus, other, "elsewhere")
    (older,) = engines_with_gpus(workloads, gpus, mine, "older")
    (newer,) = engines_with_gpus(workloads, gpus, mine, "newer")
    given = {engine.pod: given_to(node_files, cluster, gpus, engine) for engine in (elsewhere, older, newer)}
    assert given["newer"]["peer_gpus"] == given["older"]["gpus"], given
    assert given["older"]["peer_gpus"] == given["elsewhere"]["peer_gpus"] == [], given
    assert given["newer"]["files"] == sorted(given["newer"]["gpus"] + given["older"]["gpus"]), given
    assert len(given["newer"]["files"]) == 2 and len(given["newer"]["engine"]) == 1, given


def test_gpu_memory_moves_over_ipc_between_pods(workloads, gpus):
    namespace = gpus.namespace(workloads)
    (older,) = engines_with_gpus(workloads, gpus, namespace, "older")
    (newer,) = engines_with_gpus(workloads, gpus, namespace, "newer")
    uuids = [engine.do("allocate_on_gpu", "kv", SIZE, seed) for seed, engine in enumerate((older, newer))]
    assert uuids[0] != uuids[1]
    for asker, other, executor in ((newer, older, "self"), (older, newer, "peer")):
        asker.connect(other)
        other.do("refill", "kv", 7 if asker is newer else 8)
        theirs = other.do("digest", "kv")
        assert asker.do("digest", "kv") != theirs
        status, view = asker.move("read", "kv", f"{other.pod}/{other.pod}/kv", SIZE)
        assert (status, view.get("state"), view.get("path"), view.get("executor")) == (200, "succeeded", "ipc", executor), view
        assert asker.do("digest", "kv") == theirs


def test_a_pod_without_a_gpu_is_held_back_where_it_must_have_one(cluster, installed, workloads, gpus):
    """And its event says why; one with a GPU starts, and so does the first when the rule is gone."""
    installed.install_gantry(missingGpu="fail")
    try:
        namespace = gpus.namespace(workloads)
        workloads.start(namespace, {"without": {"spec": gpus.spec(0)}, "with": {"spec": gpus.spec(1)}}, gpus.gantry())
        cluster.wait_until_ready(namespace, "app=with")
        wait_for(lambda: any("has a GPU" in event and event.startswith("without:") for event in cluster.events(namespace)), 30,
                 lambda: f"an event about the missing GPU\n{cluster.story_of(namespace)}")
        assert status_of(cluster.pod(namespace, "without"), SIDECAR)["state"].keys() == {"waiting"}
        assert cluster.plugin_metrics()['gantry_dp_bind_failures_total{reason="missing_gpu"}'] > 0
    finally:
        installed.install_gantry()
    cluster.wait_until_ready(namespace, "app=without", seconds=100)


def test_more_gpus_than_there_are(cluster, workloads, gpus):
    """The scheduler says it; no slot is taken by a pod that is not on the node."""
    slots_are(cluster, 0)  # pods of the tests before are gone from the node a moment later than from the API server
    namespace = gpus.namespace(workloads)
    workloads.start(namespace, {"greedy": {"spec": gpus.spec(COUNT + 1)}}, gpus.gantry())
    wait_for(lambda: any(f"Insufficient {gpus.vendor.resource}" in event for event in cluster.events(namespace)), 20, "the scheduler's word")
    time.sleep(2)  # two rounds of the plugin's reconciler
    assert cluster.plugin_metrics()['gantry_dp_slots{state="bound"}'] == 0
