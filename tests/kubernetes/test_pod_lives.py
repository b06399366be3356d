"""Pods with the sidecar from their start to their end."""

import time

from cluster import SIDECAR, engine_spec, status_of, statuses_of, wait_for
from conftest import SLOTS


def slots_are(cluster, bound):
    wanted = {"free": SLOTS - bound, "bound": bound, "unhealthy": 0}

    def now():
        metrics = cluster.plugin_metrics()
        return {state: metrics[f'gantry_dp_slots{{state="{state}"}}'] for state in wanted}
    wait_for(lambda: now() == wanted, 20, lambda: f"slots {wanted}, now {now()}")
    cluster.wait_for_allocatable(SLOTS)  # the node's status follows


def test_the_sidecar_starts_before_the_workload(cluster, workloads):
    """Whose first act is to open a lease; the sidecar has only what it is given."""
    namespace = workloads.namespace()
    (engine,) = workloads.engines(namespace, {"a": {}})
    pod = cluster.pod(namespace, "a")
    sidecar, workload = (status_of(pod, name)["state"]["running"]["startedAt"] for name in (SIDECAR, "engine"))
    assert sidecar <= workload
    status, answer = engine.rest("GET", "/v1/status")
    assert status == 200, answer
    slots_are(cluster, 1)


def test_transfers_go_on_while_a_pod_ends(cluster, workloads):
    """Until the workload is done with its work; the sidecar ends after it, in time and by itself."""
    namespace = workloads.namespace()
    spec = engine_spec(seconds=30, env=[{"name": "DRAIN_SECONDS", "value": "4"}])
    a, b = workloads.pair(namespace, spec=spec)
    a.do("start_load", "read", "kv", "b/b/kv", 1 << 20)
    wait_for(lambda: a.do("look_at_load")["succeeded"] > 10, 10, "transfers")
    start, last, ended, before = time.monotonic(), {}, {}, a.do("look_at_load")["succeeded"]
    a.seconds = 1
    cluster.delete_pod(namespace, "a", wait=False)
    while pod := cluster.pod(namespace, "a"):
        try:
            last = a.do("look_at_load")
        except OSError:
            pass  # it has ended
        ended |= {it["name"]: it["state"]["terminated"] for it in statuses_of(pod) if "terminated" in it["state"]}
        time.sleep(0.1)
        assert time.monotonic() - start < 25, "the pod's time ran out"
    assert last["succeeded"] > before + 100 and last["failed"] == {}, (before, last)
    assert {name: it["exitCode"] for name, it in ended.items()} in ({"engine": 0, SIDECAR: 0}, {"engine": 0}, {}), ended
    assert time.monotonic() - start >= 4  # and less than 25, above: nobody had to kill it
    slots_are(cluster, 1)


def test_a_job_with_a_sidecar_completes(cluster, workloads):
    namespace = workloads.namespace()
    workloads.start(namespace, {"work": {"kind": "Job", "spec": engine_spec(seconds=30) | {"restartPolicy": "Never"}}})
    workloads.engine(namespace, "work").do("end")
    wait_for(lambda: cluster.api("GET", f"/apis/batch/v1/namespaces/{namespace}/jobs/work")["status"].get("succeeded") == 1, 30,
             lambda: f"the job's end\n{cluster.story_of(namespace)}")
    (pod,) = cluster.pods(namespace)
    assert {it["name"]: it["state"]["terminated"]["exitCode"] for it in statuses_of(pod)} == {"engine": 0, SIDECAR: 0}
    slots_are(cluster, 0)


def test_a_node_without_a_free_slot(cluster, workloads):
    """The pod that is too many waits, and starts when another has ended."""
    namespace = workloads.namespace()
    names = [f"pod-{number}" for number in range(SLOTS)]
    workloads.start(namespace, {name: {} for name in names})
    for name in names:
        cluster.wait_until_ready(namespace, f"app={name}", seconds=90)
    slots_are(cluster, SLOTS)
    workloads.start(namespace, {"late": {}})
    wait_for(lambda: any("Insufficient gantry.dev/transfer" in event for event in cluster.events(namespace)), 20, "the scheduler's word")
    assert cluster.pod(namespace, "late")["status"]["phase"] == "Pending"
    cluster.delete_pod(namespace, names[0])
    cluster.wait_until_ready(namespace, "app=late")
    slots_are(cluster, SLOTS)


def test_a_sidecar_that_dies_comes_back_with_the_same_gpus(cluster, workloads, fake_gpus, node, node_files):
    namespace = workloads.namespace()
    (engine,) = workloads.engines(namespace, {"a": {"spec": engine_spec(1)}})
    pod = cluster.pod(namespace, "a")
    before = node_files.environment(pod, SIDECAR)
    node_files.kill(pod, SIDECAR)
    wait_for(lambda: status_of(cluster.pod(namespace, "a"), SIDECAR)["restartCount"] == 1, 30, "another sidecar")
    pod = cluster.wait_until_ready(namespace, "app=a")[0]
    assert status_of(pod, "engine")["restartCount"] == 0
    after = node_files.environment(pod, SIDECAR)
    assert {name: after[name] for name in after if name.startswith("GANTRY_SLOT")} == \
        {name: before[name] for name in before if name.startswith("GANTRY_SLOT")}
    engine.do("open")
    engine.do("allocate_on_gpu", "kv", 1 << 20, 1)
    slots_are(cluster, 1)
