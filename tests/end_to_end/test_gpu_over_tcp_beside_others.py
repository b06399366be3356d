"""GPU memory over TCP where the copy workers of a side are never idle: transfers of its own workloads, which go first, do not stop it."""

import threading

import pytest

from gpu_memories import GpuMemory
from gpu_workloads import gpus, start_gpu_workload
from test_gpu_over_tcp import MINE, THEIRS, HostMemory, start_sides
from workloads import MiB

pytestmark = pytest.mark.both_vendors

LOAD = 48 * MiB
AT_ONCE = 6


class Load:
    """Transfers of a workload between its GPU and the host, each as long as some of its sidecar's workers take for much memory; while
    one ends others wait."""

    def __init__(self, sidecar, workload, name, priority):
        self.sidecar, self.name, self.priority = sidecar, name, priority
        self.on_gpu, self.on_host = GpuMemory(workload, "load", LOAD), HostMemory(workload, "hot", LOAD)
        self.on_gpu.register(("load", 0, LOAD))
        self.on_host.register(("hot", 0, LOAD))
        self.views, self.over = [], threading.Event()
        self.threads = [threading.Thread(target=self.repeat) for _ in range(AT_ONCE)]

    def repeat(self):
        body = {"workload": self.name, "op": "write", "local": ["load"], "remote": [f"{self.name}/hot"], "priority": self.priority,
                "ranges": [[0, 0, 0, 0, LOAD]], "deadline_ms": 60_000}
        while not self.over.is_set():
            self.views.append(self.sidecar.ask("POST", "/v1/transfers?wait_ms=60000", body)[1])

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        for thread in self.threads:
            thread.join()
        assert all(view["state"] == "succeeded" for view in self.views), self.views


@pytest.mark.amd_runs(operation="write")
@pytest.mark.parametrize("operation", ["read", "write"])
def test_a_peers_transfer_goes_on(start_sides, operation):
    sides = start_sides(length=8 * MiB)
    with Load(sides.b, sides.owner, "owner", 5) as load:
        for _ in range(3):
            sides.move(operation, [(0, 0, 8 * MiB)], deadline_ms=15_000)
        assert load.views, "the workers had nothing else to do"
