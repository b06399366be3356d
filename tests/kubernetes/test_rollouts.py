"""A workload's sidecar is rolled to an image of another version while transfers run: peers meet again, and no slot is lost."""

import json

from cluster import SIDECAR, engine_spec, status_of, wait_for
from test_disturbances import slot_of
from test_pod_lives import slots_are

SIZE = 1 << 20
# What a transfer may fail with while the peer's sidecar or its memory is away.
AWAY = {"peer_unavailable", "peer_lost", "sidecar_lost", "unregistered", "stale_generation", "path_unavailable", "not_found"}


def peer_of(engine, name):
    return next(it for it in engine.rest("GET", "/v1/peers")[1]["peers"] if it["name"] == name)


def images(cluster, namespace, *names):
    return [status_of(cluster.pod(namespace, name), SIDECAR)["imageID"] for name in names]


def moves_on(engine, generation, peer):
    """The load goes on, with the peer's next life, without a word to the sidecar about it."""
    now = engine.do("look_at_load")["succeeded"]
    wait_for(lambda: engine.do("look_at_load")["succeeded"] > now + 10, 60,
             lambda: f"transfers after the roll: {engine.do('look_at_load')}, {peer_of(engine, peer)}")
    load = engine.do("stop_load")
    assert set(load["failed"]) <= AWAY, load
    after = peer_of(engine, peer)
    assert after["state"] == "up" and after["generation"] != generation, after
    return load


def test_a_stateful_set_is_rolled(cluster, installed, workloads, fake_gpus, next_image):
    """The pod is another one of the same name, with memory of its own."""
    namespace = workloads.namespace()
    pods = {"a": {"spec": engine_spec(1)}, "b": {"spec": engine_spec(1), "kind": "StatefulSet"}}
    release = workloads.start(namespace, pods)
    a, b = (workloads.engine(namespace, name) for name in "ab")
    for seed, engine in enumerate((a, b)):
        engine.do("allocate", "kv", SIZE, seed)
    a.connect(b)
    a.do("start_load", "read", "kv", "b-0/b-0/kv", SIZE)
    wait_for(lambda: a.do("look_at_load")["succeeded"] > 10, 10, "transfers")
    generation, uid = peer_of(a, "b-0")["generation"], cluster.pod(namespace, "b-0")["metadata"]["uid"]

    workloads.upgrade(release, namespace, {**pods, "b": {**pods["b"], "gantry": {"image": next_image}}})
    wait_for(lambda: (cluster.pod(namespace, "b-0") or {}).get("metadata", {}).get("uid") not in (None, uid), 60, "another pod")
    b = workloads.engine(namespace, "b")
    b.do("allocate", "kv", SIZE, 7)
    moves_on(a, generation, "b-0")
    assert a.move("read", "kv", "b-0/b-0/kv", SIZE)[1].get("state") == "succeeded"
    assert a.do("digest", "kv") == b.do("digest", "kv")
    mine, theirs = images(cluster, namespace, "a", "b-0")
    assert mine != theirs
    slots_are(cluster, 2)


def test_a_running_pods_sidecar_is_another_image(cluster, node_files, workloads, fake_gpus, next_image):
    """Kubernetes lets the image of a running pod's container be changed: the sidecar alone is started again, in the same slot."""
    namespace = workloads.namespace()
    a, b = workloads.pair(namespace, SIZE, spec=engine_spec(1))
    slot = slot_of(cluster, node_files, namespace, "b")
    a.do("start_load", "read", "kv", "b/b/kv", SIZE)
    wait_for(lambda: a.do("look_at_load")["succeeded"] > 10, 10, "transfers")
    generation, (before,) = peer_of(a, "b")["generation"], images(cluster, namespace, "b")

    patch = [{"op": "replace", "path": "/spec/initContainers/0/image", "value": "{registry}/{repository}:{tag}".format(**next_image)}]
    cluster.kubectl("patch", "pod", "b", "-n", namespace, "--type=json", "-p", json.dumps(patch))
    wait_for(lambda: images(cluster, namespace, "b") != [before], 60, lambda: f"another image\n{cluster.story_of(namespace)}")
    cluster.wait_until_ready(namespace, "app=b")
    b.do("open")
    b.do("allocate", "kv", SIZE, 9)
    moves_on(a, generation, "b")
    assert a.do("digest", "kv") == b.do("digest", "kv")
    pod = cluster.pod(namespace, "b")
    assert status_of(pod, "engine")["restartCount"] == 0 and status_of(pod, SIDECAR)["restartCount"] == 1
    assert slot_of(cluster, node_files, namespace, "b") == slot
    slots_are(cluster, 2)
