"""Two sidecars that share the machine's RDMA devices, a workload of each, and what the kernel says about the devices.

The programs and fixtures are those of tests/end_to_end.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "end_to_end"))
from certificates import Authority  # noqa: E402, F401
from conftest import BIN_DIR, folder, pytest_generate_tests, start_sidecar  # noqa: E402, F401
from test_peers_over_tcp import TCP, meet  # noqa: E402, F401
from workloads import (BOTH, MiB, TERMINAL, connect, fd_count, gantry, metric, new_memory, send,  # noqa: E402, F401
                       start_workload, view_of, wait_for)

IN_GUEST = os.environ.get("GANTRY_TEST_RDMA") == "guest"
needs_guest = pytest.mark.skipif(not IN_GUEST, reason="removes RDMA devices: a guest's alone")
TRANSFER_MS = 20_000
END_SECONDS = 30  # of a transfer whose peer is gone: its lease included
SLOW = ["--rdma-slice-bytes", "4096", "--rdma-work-requests", "4", "--rdma-queue-pairs", "1"]  # to be caught in the middle
DEVICE = min(os.listdir("/sys/class/infiniband"), default="none") if os.path.isdir("/sys/class/infiniband") else "none"


def rdma_tool(*arguments):
    """What `rdma ARGUMENTS` of iproute2 answers."""
    told = subprocess.run(["rdma", "-j", *arguments], check=True, capture_output=True, text=True, timeout=20).stdout
    return json.loads(told) if told.strip() else []


def resources():
    """Queue pairs and memory regions of all processes, by the kernel's account.

    It knows them by the thread that made each, or by nothing when that has ended; the kernel's own have a name alone.
    """
    def of_processes(kind):
        return [one for one in rdma_tool("resource", "show", kind) if "pid" in one or "comm" not in one]

    # Those of eight bytes are what connections flush with.
    return {"qp": len(of_processes("qp")), "mr": sum(one.get("mrlen") != 8 for one in of_processes("mr"))}


def reasons(paths):
    return {path["path"]: None if path["available"] else path["reason"] for path in paths}


def transfer(sidecar, operation, local, remote, ranges, wait_ms=TRANSFER_MS, require=("rdma",), **fields):
    """POST /v1/transfers of workload "reader" with one buffer on each side. (status, body)."""
    body = {"workload": "reader", "op": operation, "local": [local], "remote": [remote], "ranges": ranges, **fields}
    if require:
        body["require_path"] = list(require)
    return sidecar.ask("POST", f"/v1/transfers?wait_ms={wait_ms}", body)


def settled(scene, identifier):
    """The terminal state of a transfer, in bounded time."""
    return wait_for(lambda: (view := view_of(scene.a, "reader", identifier, 1_000))["state"] in TERMINAL and view,
                    END_SECONDS, f"the end of {identifier}")


def assert_moved(answer, path="rdma"):
    status, view = answer
    assert (status, view.get("state"), view.get("path")) == (200, "succeeded", path), view
    return view


class RdmaScene:
    """Workload "reader" of sidecar a holds `target`, "owner" of b holds `source`; both buffers are "kv"."""

    def __init__(self, start_sidecar, start_workload, new_memory, size=4 * MiB, over_tcp=False, a_flags=(), b_flags=(),
                 huge=False):
        self.start_sidecar, self.start_workload = start_sidecar, start_workload
        self.size, self.over_tcp, self.b_flags = size, over_tcp, list(b_flags)
        extra = TCP if over_tcp else []
        self.a = start_sidecar("a", flags=[*extra, *a_flags])
        self.b = start_sidecar("b", flags=[*extra, *b_flags])
        self.target, self.source = new_memory(size, huge=huge), new_memory(size, filled=True, huge=huge)
        self.start_reader()
        self.start_owner()
        self.meet()

    def meet(self):
        return meet(self.a, self.b) if self.over_tcp else connect(self.a, self.b)

    def start_reader(self):
        self.reader = self.start_workload(self.a, "reader")
        self.reader.register(self.target, ("kv", 0, self.size))

    def start_owner(self, *specs):
        self.owner = self.start_workload(self.b, "owner")
        return self.owner.register(self.source, *(specs or [("kv", 0, self.size)]))

    def move(self, operation="read", length=None, **fields):
        """Of the first `length` bytes, by a range for each megabyte."""
        length = length or self.size
        ranges = [[0, start, 0, start, min(MiB, length - start)] for start in range(0, length, MiB)]
        return transfer(self.a, operation, "kv", "b/owner/kv", ranges, **fields)

    def hold(self, operation="read", **fields):
        """A transfer that has moved some of its bytes and has more to move. Its id."""
        for _ in range(10):
            status, view = self.move(operation, wait_ms=0, **fields)
            assert status == 202 or view.get("state") == "succeeded", view
            while view["state"] not in TERMINAL and view["bytes_moved"] == 0:
                view = view_of(self.a, "reader", view["id"])
            if view["state"] == "running":
                return view["id"]
        raise AssertionError("transfers end too soon: make them larger")

    def lose_the_owner(self):
        """Its sidecar is killed while it is written to: that transfer fails, nothing of it is left, and both come back."""
        transfer = self.hold("write")
        self.b.kill()
        view = settled(self, transfer)
        assert view["state"] == "failed" and view["error"]["code"] in ("peer_lost", "peer_unavailable"), view
        wait_for(lambda: resources()["qp"] == 0, END_SECONDS, "no queue pair at either side")
        self.owner.kill()
        self.b = self.start_sidecar("b")
        self.start_owner()
        wait_for(lambda: self.meet()["state"] == "up", 10)

    def everything_works(self, operation="read", path="rdma"):
        one, other = (self.target, self.source) if operation == "read" else (self.source, self.target)
        one.clear()
        other.fill()
        view = assert_moved(self.move(operation, require=(path,)), path)
        assert not one.differs_from(other)
        return view


@pytest.fixture
def rdma_scene(start_sidecar, start_workload, new_memory):
    """rdma_scene(size=…, over_tcp=…): an RdmaScene."""
    return lambda **options: RdmaScene(start_sidecar, start_workload, new_memory, **options)
