"""Sleep mode: an engine suspends its buffers, frees the GPU memory under them, and wakes up with other memory at these addresses."""

import pytest

from gpu_pieces import PieceCommands
from gpu_workloads import gpus, start_gpu_workload
from test_gpu_pieces import BEGIN, BLOCK, BOTH, LENGTH, MINE, SIZE, THEIRS, Sides
from workloads import MiB, gantry, metric

pytestmark = pytest.mark.both_vendors


class Holder(PieceCommands):
    """Which also promises blocks."""

    def hold(self, id, buffer, blocks):
        self.client.hold(id, gantry.HoldGroup([buffer], blocks), 60)


class Sleeper:
    """One side of Sides, which sleeps and wakes."""

    def __init__(self, sides, side):
        self.sidecar, self.workload, self.memory = {
            "reader": (sides.a, sides.reader, sides.into), "owner": (sides.b, sides.owner, sides.out)}[side]
        self.sizes = {"reader": MINE, "owner": THEIRS}[side]

    def suspend(self):
        self.workload.do("suspend")

    def free(self):
        for index in range(len(self.sizes)):
            self.workload.do("unmap", self.memory.name, index)

    def take(self):
        for index in range(len(self.sizes)):
            self.workload.do("_map", self.memory.name, index)
        self.memory.renew()

    def free_bytes(self):
        return self.workload.do("free_bytes")

    def buffer(self):
        _, answer = self.sidecar.ask("GET", f"/v1/buffers?workload={self.workload.name}")
        (buffer,) = answer["buffers"]
        return {key: buffer[key] for key in ("id", "generation", "state")}


@pytest.fixture
def start_sides(gpus, start_sidecar, start_gpu_workload):
    def start_holder(sidecar, name, ordinal, _):
        return start_gpu_workload(sidecar, name, ordinal, Holder)

    return lambda **options: Sides(start_sidecar, start_holder, **options)


@pytest.mark.parametrize("side", ["reader", "owner"])
def test_its_memory_is_free_while_it_sleeps_and_other_memory_when_it_wakes(start_sides, side):
    sides = start_sides()
    sides.move("read", [(0, 0, LENGTH)])  # all is mapped, in both sidecars
    sleeper = Sleeper(sides, side)
    before, awake = sleeper.free_bytes(), sleeper.buffer()
    for _ in range(3):
        sleeper.suspend()
        sleeper.free()
        assert sleeper.free_bytes() == before + SIZE
        assert sleeper.buffer() == {**awake, "state": "suspended"}
        assert metric(sleeper.sidecar, "gantry_fds_held") == 0
        status, problem = sides.a.ask("POST", "/v1/transfers?wait_ms=20000", {
            "workload": "reader", "op": "read", "local": ["kv"], "remote": ["b/owner/kv"], "ranges": [[0, 0, 0, 0, 1]]})
        assert (status, problem.get("code")) == (409, "draining"), problem
        sleeper.take()
        sleeper.workload.do("resume")
        assert sleeper.free_bytes() == before
        assert sleeper.buffer() == awake, "peers go on with what they know"
        sides.out.renew()
        sides.move("read", [(0, 0, LENGTH)])
        sides.into.renew()
        sides.move("write", [(17, 17, LENGTH - 17)])


def test_resuming_before_the_memory_is_there_changes_nothing(start_sides):
    sides = start_sides()
    sides.move("read", [(0, 0, LENGTH)])
    owner = Sleeper(sides, "owner")
    awake = owner.buffer()
    owner.suspend()
    owner.free()
    for _ in range(2):
        with pytest.raises(gantry.Error) as caught:
            sides.owner.do("resume")
        assert caught.value.code == "not_exportable" and "'kv'" in str(caught.value), caught.value
        assert owner.buffer() == {**awake, "state": "suspended"}
    owner.take()
    sides.owner.do("resume")
    sides.move("read", [(0, 0, LENGTH)])


def test_where_one_buffer_was_removed_meanwhile_all_sleep_on(start_sides):
    """The caller learns that it may not use them, and frees the memory: nothing of it is readable then."""
    sides = start_sides()
    sides.out.register(("also", BEGIN["out"], LENGTH, BOTH, BLOCK))

    def buffers():
        return {each["name"]: each for each in sides.b.ask("GET", "/v1/buffers?workload=owner")[1]["buffers"]}

    owner = Sleeper(sides, "owner")
    owner.suspend()
    before = buffers()
    assert sides.b.ask("DELETE", f"/v1/buffers/{before['also']['id']}")[0] == 200
    with pytest.raises(gantry.Error) as caught:
        sides.owner.do("resume")
    assert caught.value.code == "stale_generation" and "'also'" in str(caught.value), caught.value
    assert {name: (each["id"], each["state"]) for name, each in buffers().items()} == {"kv": (before["kv"]["id"], "suspended")}
    assert metric(sides.b, "gantry_fds_held") == 0


def test_what_was_suspended_and_not_freed_is_there_again(start_sides):
    sides = start_sides()
    owner = Sleeper(sides, "owner")
    owner.suspend()
    owner.suspend()
    sides.owner.do("resume")
    sides.owner.do("resume")
    sides.move("read", [(0, 0, LENGTH)])


def test_memory_of_the_ordinary_kind_and_arenas_sleep_too(start_sides):
    sides = start_sides(theirs=None)
    sides.owner.do("allocate_host", "host", MiB)
    sides.owner.do("fill_host", "host", b"\x5a" * MiB)
    sides.owner.do("register_host", "host", "host", 0, MiB)
    sides.move("read", [(0, 0, LENGTH)])
    sides.owner.do("suspend")
    sides.owner.do("resume")
    sides.move("read", [(0, 0, LENGTH)])
    assert sides.reader.do("move", "read", "kv", "b/owner/host", wait=20, ranges=[(0, 0, 0, 0, MiB)]) == ("succeeded", None)


def test_a_buffer_that_gave_its_memory_up_is_resumed_by_registering_it(start_sides):
    """What an engine without the library does. What differs in anything else is another buffer."""
    sides = start_sides()
    owner = Sleeper(sides, "owner")
    owner.suspend()
    status, problem = sides.b.ask("POST", "/v1/buffers:resume", {"workload": "owner"})
    assert (status, problem["code"]) == (409, "conflict") and "POST /v1/buffers" in problem["hint"], problem
    with pytest.raises(gantry.Error) as caught:
        sides.out.register(("kv", 0, LENGTH - 1))
    assert caught.value.code == "conflict", caught.value
    assert owner.buffer()["state"] == "suspended"
    sides.owner.do("unregister", "kv")
    assert metric(sides.b, "gantry_buffers") == 0


def test_who_slept_without_a_word_promises_nothing_and_is_read_no_more(start_sides):
    """Drivers tell nobody of memory that is freed. The first call of the owner that needs the buffer finds out."""
    sides = start_sides()
    sides.move("read", [(0, 0, LENGTH)])
    owner = Sleeper(sides, "owner")
    awake = owner.buffer()
    sides.owner.do("map_anew", "out", 1)
    sides.out.renew()
    for code in ("stale_generation", "draining"):
        with pytest.raises(gantry.Error) as caught:
            sides.owner.do("hold", "h", "kv", [0, 1])
        assert caught.value.code == code, caught.value
        assert owner.buffer() == {**awake, "state": "suspended"}
    status, problem = sides.a.ask("POST", "/v1/transfers?wait_ms=20000", {
        "workload": "reader", "op": "read", "local": ["kv"], "remote": ["b/owner/kv"], "ranges": [[0, 0, 0, 0, 1]]})
    assert (status, problem.get("code")) == (409, "draining"), problem
    sides.owner.do("resume")
    sides.owner.do("hold", "h", "kv", [0, 1])
    sides.move("read", [(0, 0, LENGTH)])
