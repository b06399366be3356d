"""The device plugin with a real kubelet, scheduler and container runtime."""

from cluster import SIDECAR, TRANSFER, Engine, engine_spec, status_of, wait_for
from conftest import SLOTS


def test_the_node_has_the_slots(cluster, installed):
    assert cluster.allocatable() == SLOTS
    metrics = cluster.plugin_metrics()
    assert metrics['gantry_dp_slots{state="free"}'] == SLOTS, metrics


def test_two_pods_of_a_node_move_memory_over_shm(cluster, workloads):
    namespace = workloads.namespace()
    a, b = workloads.engines(namespace, {"a": {}, "b": {}})
    a.do("allocate", "kv", 1 << 22, 1)
    b.do("allocate", "kv", 1 << 22, 2)
    a.connect(b)
    theirs = b.do("digest", "kv")
    assert a.do("digest", "kv") != theirs
    status, view = a.move("read", "kv", "b/b/kv", 1 << 22)
    assert (status, view["state"], view["path"]) == (200, "succeeded", "shm"), view
    assert a.do("digest", "kv") == theirs
