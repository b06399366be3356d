"""Transfers between pods of a node, asked for over REST from inside of the workloads' containers."""

import base64

import pytest

SIZE = (1 << 22) + 123


def moves(asker, owner, path):
    """Both ways, with every byte."""
    for operation, target in (("read", asker), ("write", owner)):
        for seed, engine in ((3, asker), (4, owner)):
            engine.do("refill", "kv", seed)
        source = (asker.do("digest", "kv"), owner.do("digest", "kv"))[operation == "read"]
        status, view = asker.move(operation, "kv", f"{owner.pod}/{owner.pod}/kv", SIZE)
        assert (status, view.get("state"), view.get("path")) == (200, "succeeded", path), view
        assert target.do("digest", "kv") == source
        assert asker.do("digest", "kv") == owner.do("digest", "kv")


def test_pods_of_a_namespace_move_memory_over_shm(workloads):
    a, b = workloads.pair(workloads.namespace(), SIZE)
    moves(a, b, "shm")


def test_pods_of_two_namespaces_share_no_folder_and_move_memory_over_tcp(cluster, workloads):
    """With a token that both know; the one of another release is turned away."""
    namespaces = [workloads.namespace(), workloads.namespace()]
    for namespace in namespaces:
        cluster.api("POST", f"/api/v1/namespaces/{namespace}/secrets",
                    {"metadata": {"name": "shared"}, "data": {"token": base64.b64encode(b"x" * 40).decode()}})
    token = {"authentication": {"mode": "token", "token": {"existingSecret": "shared"}}}
    (a,), (b,) = (workloads.engines(namespace, {name: {}}, token) for namespace, name in zip(namespaces, "ab"))
    for seed, engine in enumerate((a, b)):
        engine.do("allocate", "kv", SIZE, seed)
    a.connect(b, over="tcp")
    moves(a, b, "tcp")

    (stranger,) = workloads.engines(namespaces[0], {"stranger": {}})
    status, answer = stranger.rest("PUT", "/v1/peers/b", {"address": f"{b.address}:9461"})
    assert "unauthenticated" in str(answer), (status, answer)
    status, answer = stranger.rest("PUT", "/v1/peers/b", {"address": "unix:/run/gantry/peers/b.peer.sock"})
    assert answer.get("state") != "up", "a pod of another namespace is reached by its socket"


@pytest.mark.parametrize("over", ["unix", "tcp"])
def test_a_path_that_is_asked_for(workloads, over):
    """However the peer was named, both paths are there between pods of a namespace."""
    a, b = workloads.engines(workloads.namespace(), {"a": {}, "b": {}})
    for seed, engine in enumerate((a, b)):
        engine.do("allocate", "kv", SIZE, seed)
    a.connect(b, over)
    b_has = b.do("digest", "kv")
    status, view = a.move("read", "kv", "b/b/kv", SIZE, require_path=["tcp" if over == "tcp" else "shm"])
    assert (status, view.get("state"), view.get("path")) == (200, "succeeded", "tcp" if over == "tcp" else "shm"), view
    assert a.do("digest", "kv") == b_has
