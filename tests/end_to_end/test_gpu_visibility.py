"""Sidecars and workloads that do not see the same GPUs, or not in the same order: a GPU is what its UUID says.

What a process sees the vendor's variable says, of the driver and of the fake.
"""

import pytest

from gpu_memories import GpuMemory, succeeded
from gpu_workloads import VISIBLE, gpu_count, gpus, start_gpu_workload, vendor
from test_peers_over_tcp import TCP
from workloads import MiB, connect, gantry, metric, submit

SIZE = 6 * MiB
MINE, THEIRS, LENGTH = 512, 3 * MiB + 1536, MiB + 64

pytestmark = [pytest.mark.both_vendors, pytest.mark.skipif(gpu_count() < 2, reason="needs two GPUs")]


class Sides:
    """Workload "reader" of sidecar a, which sees `a_sees`, has `into` on the first GPU; "owner" of b has `out` on the second."""

    def __init__(self, start_sidecar, start_gpu_workload, a_sees="0,1", b_sees="0,1", reader=("0,1", 0), owner=("0,1", 1), flags=()):
        self.a, self.b = (self.seeing(sees, lambda: start_sidecar(name, workers=2, flags=flags))
                          for name, sees in (("a", a_sees), ("b", b_sees)))
        connect(self.a, self.b)
        connect(self.b, self.a)
        reader_gpu, owner_gpu = (self.seeing(sees, lambda: start_gpu_workload(sidecar, name, ordinal))
                                 for sidecar, name, (sees, ordinal) in ((self.a, "reader", reader), (self.b, "owner", owner)))
        self.into, self.out = GpuMemory(reader_gpu, "into", SIZE), GpuMemory(owner_gpu, "out", SIZE)
        self.into.register(("kv", MINE, LENGTH))
        self.out.register(("kv", THEIRS, LENGTH))

    @staticmethod
    def seeing(devices, start):
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv(VISIBLE[vendor()], devices)
            return start()

    def by_reader(self, operation, **fields):
        return submit(self.a, "reader", operation, "kv", "b/owner/kv", LENGTH, 20_000, **fields)

    def by_owner(self, operation, **fields):
        return submit(self.b, "owner", operation, "kv", "a/reader/kv", LENGTH, 20_000, **fields)

    def moved(self, into_reader):
        if into_reader:
            self.into.receives(MINE, self.out, THEIRS, LENGTH)
        else:
            self.out.receives(THEIRS, self.into, MINE, LENGTH)
        self.into.check()
        self.out.check()

    def uuids(self):
        return [memory.workload.do("device_uuid") for memory in (self.into, self.out)]


@pytest.fixture
def start_sides(gpus, start_sidecar, start_gpu_workload):
    return lambda **options: Sides(start_sidecar, start_gpu_workload, **options)


@pytest.mark.parametrize("flags", [(), TCP], ids=["ipc-alone", "and-tcp"])
@pytest.mark.parametrize("seer", ["a", "b"])
def test_the_side_that_sees_both_gpus_executes(start_sides, seer, flags):
    """Whoever asks, and in which direction the bytes go; also where the other one could move them, more slowly."""
    sides = start_sides(a_sees="0", flags=flags) if seer == "b" else start_sides(b_sees="1", flags=flags)
    first, second = sides.uuids()
    for ask, asker, is_reader in ((sides.by_reader, "a", True), (sides.by_owner, "b", False)):
        for operation in ("read", "write"):
            sides.into.renew()
            view = succeeded(ask(operation))
            assert view["executor"] == ("self" if asker == seer else "peer"), view
            sides.moved(into_reader=is_reader == (operation == "read"))
    blind, executing = (sides.a, sides.b) if seer == "b" else (sides.b, sides.a)
    assert [metric(sidecar, "gantry_ipc_mapped_bytes") for sidecar in (blind, executing)] == [SIZE, 2 * SIZE]
    # It says so, where it is told to do it alone.
    ask, unseen = (sides.by_reader, second) if seer == "b" else (sides.by_owner, first)
    status, problem = ask("read", executor="self", require_path=["ipc"])
    assert (status, problem["code"]) == (409, "path_unavailable"), problem
    assert f"GPU {unseen} is not visible to this sidecar" in problem["detail"], problem
    sides.into.check()
    sides.out.check()


def test_where_neither_sees_both_gpus_the_next_path_is_taken(start_sides):
    """With the reason why not the faster one, which may be an error instead."""
    sides = start_sides(a_sees="0", b_sees="1", flags=TCP)
    uuids = sides.uuids()
    for ask, is_reader in ((sides.by_reader, True), (sides.by_owner, False)):
        for operation in ("read", "write"):
            sides.into.renew()
            view = succeeded(ask(operation), "tcp")
            assert view["executor"] == "self" and view["staged_bytes"] == LENGTH, view
            reason = {path["path"]: path.get("reason") for path in view["paths"]}["ipc"]
            assert f"GPU {uuids[1 if is_reader else 0]} is not visible to this sidecar" in reason, view
            sides.moved(into_reader=is_reader == (operation == "read"))
            status, view = ask(operation, require_path=["ipc"])
            error = view.get("error", view)
            assert error["code"] == "path_unavailable" and "is not visible" in error["detail"], view
    sides.into.check()
    sides.out.check()


def test_where_neither_sees_both_gpus_the_reason_is_told(start_sides):
    """Of either side: the one that was asked, and the peer, which could have executed it."""
    sides = start_sides(a_sees="0", b_sees="1")
    uuids = sides.uuids()
    for ask, is_reader in ((sides.by_reader, True), (sides.by_owner, False)):
        for operation in ("read", "write"):
            sides.into.renew()
            status, view = ask(operation)
            if status == 200 and view["state"] == "succeeded":  # by the next path that can
                assert view["path"] != "ipc", view
                assert "is not visible" in {path["path"]: path["reason"] for path in view["paths"]}["ipc"], view
                sides.moved(into_reader=is_reader == (operation == "read"))
            status, view = ask(operation, require_path=["ipc"])
            error = view.get("error", view)
            assert error["code"] == "path_unavailable", view
            for uuid in uuids:
                assert f"GPU {uuid} is not visible" in error["detail"], view
            sides.into.check()
            sides.out.check()
    assert [metric(sidecar, "gantry_ipc_mapped_bytes") for sidecar in (sides.a, sides.b)] == [SIZE, SIZE]


@pytest.mark.parametrize("orders", [("1,0", "0,1", "0,1", "0,1"), ("0,1", "1,0", "1,0", "0,1"), ("0,1", "0,1", "1,0", "1,0"),
                                    ("1,0", "1,0", "0,1", "1,0")], ids="-".join)
def test_an_order_of_its_own_for_each_process(start_sides, orders):
    """Of a, b, reader and owner. An ordinal is another GPU in each of them, and none of them is ever compared."""
    ordinal = {"0,1": (0, 1), "1,0": (1, 0)}
    a, b, reader, owner = orders
    sides = start_sides(a_sees=a, b_sees=b, reader=(reader, ordinal[reader][0]), owner=(owner, ordinal[owner][1]))
    first, second = sides.uuids()
    assert first != second
    for ask, is_reader in ((sides.by_reader, True), (sides.by_owner, False)):
        for operation in ("read", "write"):
            sides.into.renew()
            succeeded(ask(operation))
            sides.moved(into_reader=is_reader == (operation == "read"))


def test_one_gpu_that_two_workloads_number_differently(start_sides):
    """The first of one is the second of the other, and the only one that the sidecars see."""
    sides = start_sides(a_sees="1", b_sees="1", reader=("1,0", 0), owner=("0,1", 1))
    first, second = sides.uuids()
    assert first == second
    for operation in ("read", "write"):
        sides.into.renew()
        succeeded(sides.by_reader(operation))
        sides.moved(into_reader=operation == "read")


def test_memory_on_a_gpu_that_its_own_sidecar_does_not_see_is_refused(start_sidecar, start_gpu_workload, gpus):
    """The same ordinal means another GPU to the sidecar: it must not take that one."""
    sidecar = Sides.seeing("1", lambda: start_sidecar("a", workers=2))
    workload = Sides.seeing("0", lambda: start_gpu_workload(sidecar, "reader", 0))
    memory = GpuMemory(workload, "into", SIZE)
    with pytest.raises(gantry.Error) as caught:
        memory.register(("kv", MINE, LENGTH))
    assert caught.value.code == "path_unavailable", caught.value
    assert f"GPU {workload.do('device_uuid')} is not visible to this sidecar" in str(caught.value)
    memory.check()
