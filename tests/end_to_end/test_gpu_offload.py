"""GPU memory to host memory and back, on one node: whoever sees the GPU copies, and no byte beside the blocks changes."""

import os
import random
import time

import pytest

from gpu_workloads import REAL, VISIBLE, dying_workers, gpus, start_gpu_workload, vendor
from workloads import MiB, TERMINAL, connect, wait_for

pytestmark = pytest.mark.both_vendors

BLOCK = 2048
BLOCKS = 4 * MiB // BLOCK
KV_AT, STORE_AT = MiB + 512, 2 * MiB + 1536
SIZE, STORE_SIZE = 6 * MiB, 8 * MiB
BOTH = ("remote_read", "remote_write")


class Offload:
    """Workload "engine" of sidecar a holds `kv` on a GPU, workload "store" of `keeper`, a or another, `cold` in host memory."""

    def __init__(self, a, keeper, start_gpu_workload):
        self.a, self.keeper = a, keeper
        self.engine = start_gpu_workload(a, "engine", 0)
        self.store = start_gpu_workload(keeper, "store")
        self.data = {"kv": os.urandom(SIZE), "cold": os.urandom(STORE_SIZE)}
        self.engine.do("allocate", "kv", SIZE)
        self.engine.do("fill", "kv", 0, self.data["kv"])
        self.engine.do("register_gpu", "kv", ("kv", KV_AT, BLOCKS * BLOCK, BOTH, BLOCK))
        self.store.do("allocate_host", "cold", STORE_SIZE)
        self.store.do("fill_host", "cold", self.data["cold"])
        self.store.do("register_host", "cold", "cold", STORE_AT, BLOCKS * BLOCK, BOTH, BLOCK)

    def move(self, operation, on_gpu, on_host, wait_ms=20_000, **fields):
        """By the engine: a write offloads, a read restores."""
        body = {"workload": "engine", "op": operation, "local": ["kv"],
                "remote": ["store/cold" if self.keeper is self.a else "b/store/cold"], "local_blocks": on_gpu,
                "remote_blocks": on_host, **fields}
        return self.a.ask("POST", f"/v1/transfers?wait_ms={wait_ms}", body)

    def move_by_store(self, operation, on_host, on_gpu):
        """By the store: a read offloads, a write restores."""
        body = {"workload": "store", "op": operation, "local": ["cold"], "remote": ["a/engine/kv"], "local_blocks": on_host,
                "remote_blocks": on_gpu}
        return self.keeper.ask("POST", "/v1/transfers?wait_ms=20000", body)

    def moved(self, offloaded, on_gpu, on_host):
        """Both memories are what they were, but for the blocks."""
        source, target = ("kv", "cold") if offloaded else ("cold", "kv")
        start = {"kv": KV_AT, "cold": STORE_AT}
        blocks = {"kv": on_gpu, "cold": on_host}
        expected = bytearray(self.data[target])
        for there, here in zip(blocks[target], blocks[source]):
            to, at = start[target] + there * BLOCK, start[source] + here * BLOCK
            expected[to:to + BLOCK] = self.data[source][at:at + BLOCK]
        self.data[target] = bytes(expected)
        assert self.engine.do("look", "kv", 0, SIZE) == self.data["kv"]
        assert self.store.do("look_host", "cold", STORE_SIZE) == self.data["cold"]


@pytest.fixture
def start_pair(gpus, start_sidecar, start_gpu_workload):
    """`keeper`: the sidecar of the host memory. `blind`: that one, not the first, sees no GPU."""
    def start(keeper="b", blind=False):
        a = start_sidecar("a", workers=2)
        if keeper == "a":
            return Offload(a, a, start_gpu_workload)
        with pytest.MonkeyPatch.context() as environment:
            if blind:
                environment.setenv(VISIBLE[vendor()], "")
            b = start_sidecar("b", workers=2)
        connect(a, b)
        connect(b, a)
        return Offload(a, b, start_gpu_workload)
    return start


@pytest.mark.parametrize("keeper", ["a", "b"], ids=["one-sidecar", "two-sidecars"])
def test_blocks_are_offloaded_and_restored(start_pair, keeper):
    pair = start_pair(keeper)
    shuffled = random.Random(5)
    for count in (1, 7, 500, BLOCKS):
        for operation in ("write", "read"):
            on_gpu, on_host = shuffled.sample(range(BLOCKS), count), shuffled.sample(range(BLOCKS), count)
            status, view = pair.move(operation, on_gpu, on_host)
            assert (status, view["state"], view["path"], view["executor"]) == (200, "succeeded", "ipc", "self"), view
            assert view["gpu_copies"]["plan"] == "engines" and "host" in view["gpu_copies"]["reason"], view
            pair.moved(operation == "write", on_gpu, on_host)


def test_the_owner_of_host_memory_asks(start_pair):
    pair = start_pair()
    ids = random.Random(6).sample(range(BLOCKS), 700)
    for operation in ("read", "write"):
        status, view = pair.move_by_store(operation, ids, ids[::-1])
        assert (status, view["state"], view["path"]) == (200, "succeeded", "ipc"), view
        pair.moved(operation == "read", ids[::-1], ids)


def test_a_workload_offloads_to_its_own_arena(start_pair):
    """As docs/connectors.md shows it."""
    pair = start_pair("a")
    pair.engine.do("allocate_host", "own", MiB)
    pair.engine.do("register_host", "own", "cold.0", 0, MiB, BOTH, BLOCK)
    moved = pair.engine.do("move", "write", "kv", "engine/cold.0", wait=20, local_blocks=[3, 9], remote_blocks=[70, 71])
    assert moved == ("succeeded", None)
    blocks = [pair.data["kv"][KV_AT + i * BLOCK:KV_AT + (i + 1) * BLOCK] for i in (3, 9)]
    assert pair.engine.do("look_host", "own", MiB) == (
        bytes(70 * BLOCK) + blocks[0] + blocks[1] + bytes(MiB - 72 * BLOCK))
    moved = pair.engine.do("move", "read", "kv", "engine/cold.0", wait=20, local_blocks=[11], remote_blocks=[71])
    assert moved == ("succeeded", None)
    expected = bytearray(pair.data["kv"])
    expected[KV_AT + 11 * BLOCK:KV_AT + 12 * BLOCK] = blocks[1]
    assert pair.engine.do("look", "kv", 0, SIZE) == bytes(expected)


def test_a_keeper_without_a_gpu(start_pair):
    """Its memory is reached by who has the GPU, which also executes what the keeper asks for."""
    pair = start_pair(blind=True)
    ids = random.Random(8).sample(range(BLOCKS), 300)
    for operation in ("write", "read"):
        status, view = pair.move(operation, ids, ids[::-1])
        assert (status, view["state"], view["path"]) == (200, "succeeded", "ipc"), view
        pair.moved(operation == "write", ids, ids[::-1])
    for operation in ("read", "write"):
        status, view = pair.move_by_store(operation, ids, ids[::-1])
        assert "state" in view, view
        assert (status, view["state"], view["path"], view["executor"]) == (200, "succeeded", "ipc", "peer"), view
        pair.moved(operation == "read", ids[::-1], ids)


def test_other_paths_say_why_they_cannot(start_pair):
    pair = start_pair()
    for path in ("shm", "tcp"):
        view = pair.move("write", [1], [2], require_path=[path])[1]
        error = view.get("error", view)  # of the transfer, where the other sidecar was asked, too
        assert error["code"] == "path_unavailable" and "ipc: require_path does not name it" in error["detail"], view
        assert f"{path}: the " in error["detail"], view


@pytest.mark.skipif(REAL, reason="only the fake can be made to refuse host memory")
def test_a_driver_that_pins_no_memory_costs_time_and_no_byte(start_pair, monkeypatch):
    monkeypatch.setenv("GANTRY_FAKE_GPU_FAIL", "cuMemHostRegister=801,hipHostRegister=801")
    pair = start_pair()
    ids = random.Random(9).sample(range(BLOCKS), 300)
    for operation in ("write", "read"):
        status, view = pair.move(operation, ids, ids[::-1])
        assert (status, view["state"]) == (200, "succeeded"), view
        pair.moved(operation == "write", ids, ids[::-1])
    wait_for(lambda: "the driver copies between GPU memory and the host's by itself" in pair.a.log, 5, "the worker's words in the log")


def test_memory_that_peers_may_only_read_is_restored_and_never_written(start_pair):
    pair = start_pair()
    pair.store.do("unregister", "cold")
    pair.store.do("register_host", "cold", "cold", STORE_AT, BLOCKS * BLOCK, ("remote_read",), BLOCK)
    ids = random.Random(10).sample(range(BLOCKS), 200)
    status, view = pair.move("read", ids, ids[::-1])
    assert (status, view["state"], view["path"]) == (200, "succeeded", "ipc"), view
    pair.moved(False, ids, ids[::-1])
    view = pair.move("write", ids, ids[::-1])[1]
    assert view.get("error", view)["code"] == "permission_denied", view
    pair.moved(False, [], [])


def test_the_side_with_the_gpu_may_be_asked_to_execute(start_pair):
    pair = start_pair(blind=True)
    ids = random.Random(14).sample(range(BLOCKS), 200)
    body = {"workload": "store", "op": "read", "local": ["cold"], "remote": ["a/engine/kv"], "local_blocks": ids,
            "remote_blocks": ids, "executor": "peer", "require_path": ["ipc"]}
    status, view = pair.keeper.ask("POST", "/v1/transfers?wait_ms=20000", body)
    assert (status, view.get("state"), view.get("path"), view.get("executor")) == (200, "succeeded", "ipc", "peer"), view
    pair.moved(True, ids, ids)


def test_either_side_executes_what_both_could(start_pair):
    pair = start_pair()
    ids = random.Random(15).sample(range(BLOCKS), 200)
    for operation in ("write", "read"):
        for executor in ("self", "peer"):
            status, view = pair.move(operation, ids, ids[::-1], executor=executor, require_path=["ipc"])
            assert (status, view.get("state"), view.get("executor")) == (200, "succeeded", executor), view
            pair.moved(operation == "write", ids, ids[::-1])


def test_workers_that_die_under_transfers_cost_a_retry_and_no_byte(start_pair):
    pair = start_pair()
    shuffled = random.Random(12)
    succeeded = 0
    with dying_workers(pair.a, 13):
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            on_gpu, on_host = (shuffled.sample(range(BLOCKS), BLOCKS) for _ in range(2))
            status, view = pair.move("write", on_gpu, on_host)
            if status == 500:  # no worker lived long enough to map the memory: refused, and nothing moves
                assert view["code"] == "worker_lost", view
                pair.moved(True, [], [])
                continue
            assert view["state"] in TERMINAL, view
            if view["state"] == "succeeded":
                succeeded += 1
                pair.moved(True, on_gpu, on_host)
            else:
                assert view["error"]["code"] in ("worker_lost", "device_error", "deadline_exceeded"), view
                pair.data["cold"] = pair.store.do("look_host", "cold", STORE_SIZE)
    assert succeeded > 0
    ids = list(range(BLOCKS))
    assert pair.move("read", ids, ids[::-1])[1]["state"] == "succeeded"
    pair.moved(False, ids, ids[::-1])
