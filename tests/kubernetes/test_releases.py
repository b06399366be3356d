"""The charts' life on a cluster: tests, another chart that uses the library, and injection."""

from cluster import SIDECAR, WORKLOAD_IMAGE, Engine, engine_spec, wait_for
from test_pod_lives import slots_are

SIZE = 1 << 20


def test_helm_test(cluster, installed):
    """Takes a slot and starts the sidecar's image in it."""
    said = cluster.helm("test", "gantry", "--namespace", "gantry", "--timeout", "60s")
    assert "Phase:          Succeeded" in said, said
    # The daemon set's controller has not taken its pod for one of its own, of which there is one a node.
    assert not [event for event in cluster.events("gantry") if "SuccessfulDelete" in event and "gantry-test" in event]
    slots_are(cluster, 0)


def test_helm_test_fails_without_slots(cluster, installed):
    installed.install("broken", installed.gantry, "gantry", {
        **installed.values(), "resource": "gantry.dev/other", "nodeSelector": {"no": "node"}, "tests": {"activeDeadlineSeconds": 3}})
    job = "/apis/batch/v1/namespaces/gantry/jobs/broken-gantry-test"
    try:
        said = cluster.refusal("helm", "test", "broken", "--namespace", "gantry", "--timeout", "60s")
        assert "DeadlineExceeded" in said, said
        assert cluster.api("GET", job)["spec"]["ttlSecondsAfterFinished"] == 600, "Helm leaves it, for its reader, and Kubernetes removes it"
        wait_for(lambda: not cluster.pods("gantry", "job-name=broken-gantry-test"), 30, "the end of the pod that found no node")
    finally:
        installed.uninstall("broken", "gantry")
        cluster.api("DELETE", job, {"propagationPolicy": "Background"})


def test_the_example_of_a_users_chart(cluster, installed, workloads, fake_gpus):
    """Prefill and decode with a GPU each, in a namespace that lets no pod do more than Pod Security "restricted"."""
    namespace = workloads.namespace("baseline")  # the example's engine is an image that runs as it likes
    image = {**installed.image, "pullPolicy": "Never"}
    installed.install("example", installed.example, namespace, {
        "image": WORKLOAD_IMAGE, "roles": {"decode": {"replicas": 1}},
        "gantry-lib": {"image": image, "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}}}})
    engines = [Engine(cluster.wait_until_ready(namespace, f"app.kubernetes.io/component={role}")[0]) for role in ("prefill", "decode")]
    for seed, engine in enumerate(engines):
        engine.do("allocate_on_gpu", "kv", SIZE, seed)
    prefill, decode = engines
    decode.connect(prefill)
    status, view = decode.move("read", "kv", f"{prefill.pod}/{prefill.pod}/kv", SIZE)
    assert (view.get("state"), view.get("path")) == ("succeeded", "ipc"), view
    assert decode.do("digest", "kv") == prefill.do("digest", "kv")
    installed.uninstall("example", namespace)


def test_a_labelled_pod_is_given_a_sidecar(cluster, installed, workloads):
    """By the MutatingAdmissionPolicy; one without the label is left as it is."""
    namespace = workloads.namespace()
    installed.install_gantry(injection={"enabled": True, "namespaces": [namespace]})
    try:
        def pod(name, labels):
            manifest = {"metadata": {"name": name, "labels": {"app": name, **labels}}, "spec": engine_spec()}
            return cluster.api("POST", f"/api/v1/namespaces/{namespace}/pods", manifest)

        def dry_run():
            made = cluster.api("POST", f"/api/v1/namespaces/{namespace}/pods", {
                "metadata": {"name": "dry", "labels": {"gantry.dev/inject": "true"}}, "spec": engine_spec()}, dryRun="All")
            return "initContainers" in made["spec"]
        wait_for(dry_run, 30, "the policy to be in force")
        pods = [pod(name, {"gantry.dev/inject": "true"}) for name in "ab"]
        assert [it["name"] for it in pods[0]["spec"]["initContainers"]] == [SIDECAR]
        a, b = (workloads.engine(namespace, name) for name in "ab")
        for seed, engine in enumerate((a, b)):
            engine.do("allocate", "kv", SIZE, seed)
        a.connect(b)
        assert a.move("read", "kv", "b/b/kv", SIZE)[1].get("state") == "succeeded"
        assert a.do("digest", "kv") == b.do("digest", "kv")
        slots_are(cluster, 2)
        assert "initContainers" not in pod("plain", {})["spec"]
    finally:
        installed.install_gantry()
