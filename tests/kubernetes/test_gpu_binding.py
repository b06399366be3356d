"""GPUs of pods: a sidecar gets those of its own pod, and of others as the plugin is told; both containers reach the same memory."""

import pytest

from cluster import SIDECAR, engine_spec, status_of, wait_for
from conftest import GPUS

SIZE = 1 << 21


def engines_with_gpus(workloads, namespace, *names, gpus=1):
    return workloads.engines(namespace, {name: {"spec": engine_spec(gpus)} for name in names})


def given_to(node_files, cluster, engine):
    """What one pod's two containers have: (GPUs of the slot, of peers, device files, markers of CDI specs) and the engine's markers."""
    pod = cluster.pod(engine.namespace, engine.pod)
    mine, theirs = (node_files.environment(pod, name) for name in (SIDECAR, "engine"))
    def markers(environment):
        return {name.removeprefix("MARKER_OF_GPU_"): value for name, value in environment.items() if name.startswith("MARKER_OF_GPU_")}
    return {"gpus": split(mine["GANTRY_SLOT_GPUS"]), "peer_gpus": split(mine.get("GANTRY_SLOT_PEER_GPUS", "")),
            "devices": node_files.devices(pod, SIDECAR), "markers": markers(mine), "engine": markers(theirs),
            "engine_devices": node_files.devices(pod, "engine"), "pod": mine["GANTRY_SLOT_POD"], "namespace": mine["GANTRY_SLOT_NAMESPACE"]}


def split(text):
    return sorted(part for part in text.split(",") if part)


@pytest.fixture
def visibility(installed):
    """Sets it for a test, and back."""
    yield lambda value: installed.install_gantry(peerGpuVisibility=value)
    installed.install_gantry()


def test_a_sidecar_gets_its_own_pods_gpus_and_no_neighbours(cluster, workloads, fake_gpus, node_files, visibility):
    visibility("none")
    namespace = workloads.namespace()
    workloads.start(namespace, {name: {"spec": engine_spec(gpus)} for name, gpus in (("a", 1), ("b", 2), ("c", 1))})
    seen = {}
    for name, count in (("a", 1), ("b", 2), ("c", 1)):
        given = given_to(node_files, cluster, workloads.engine(namespace, name))
        assert given["pod"] == name and given["namespace"] == namespace
        assert given["gpus"] == sorted(given["engine"].values()) and len(given["gpus"]) == count, given
        assert given["markers"] == given["engine"] and given["devices"] == given["engine_devices"], given
        assert given["peer_gpus"] == [], given
        seen[name] = given["gpus"]
    assert len({gpu for gpus in seen.values() for gpu in gpus}) == GPUS, seen


def test_a_namespaces_gpus_and_no_others(cluster, workloads, fake_gpus, node_files):
    mine, other = workloads.namespace(), workloads.namespace()
    (elsewhere,) = engines_with_gpus(workloads, other, "elsewhere")
    (older,) = engines_with_gpus(workloads, mine, "older")
    (newer,) = engines_with_gpus(workloads, mine, "newer")
    given = {engine.pod: given_to(node_files, cluster, engine) for engine in (elsewhere, older, newer)}
    assert given["newer"]["peer_gpus"] == given["older"]["gpus"], given
    assert given["older"]["peer_gpus"] == given["elsewhere"]["peer_gpus"] == [], given
    assert sorted(given["newer"]["markers"].values()) == sorted(given["newer"]["gpus"] + given["older"]["gpus"]), given
    assert len(given["newer"]["devices"]) == 2 and len(given["newer"]["engine_devices"]) == 1, given


def test_gpu_memory_moves_over_ipc_between_pods(workloads, fake_gpus):
    namespace = workloads.namespace()
    (older,) = engines_with_gpus(workloads, namespace, "older")
    (newer,) = engines_with_gpus(workloads, namespace, "newer")
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


def test_a_pod_without_a_gpu_is_held_back_where_it_must_have_one(cluster, installed, workloads, fake_gpus):
    """And its event says why; one with a GPU starts, and so does the first when the rule is gone."""
    installed.install_gantry(missingGpu="fail")
    try:
        namespace = workloads.namespace()
        workloads.start(namespace, {"without": {}, "with": {"spec": engine_spec(1)}})
        cluster.wait_until_ready(namespace, "app=with")
        wait_for(lambda: any("has a GPU" in event and event.startswith("without:") for event in cluster.events(namespace)), 30,
                 lambda: f"an event about the missing GPU\n{cluster.story_of(namespace)}")
        assert status_of(cluster.pod(namespace, "without"), SIDECAR)["state"].keys() == {"waiting"}
        assert cluster.plugin_metrics()['gantry_dp_bind_failures_total{reason="missing_gpu"}'] > 0
    finally:
        installed.install_gantry()
    cluster.wait_until_ready(namespace, "app=without", seconds=100)


def test_more_gpus_than_there_are(cluster, workloads, fake_gpus):
    """The scheduler says it; no slot is taken by a pod that is not on the node."""
    namespace = workloads.namespace()
    workloads.start(namespace, {"greedy": {"spec": engine_spec(GPUS + 1)}})
    wait_for(lambda: any("Insufficient nvidia.com/gpu" in event for event in cluster.events(namespace)), 20, "the scheduler's word")
    assert cluster.plugin_metrics()['gantry_dp_slots{state="bound"}'] == 0
