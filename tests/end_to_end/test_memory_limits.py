"""Memory that is more than a container may have is refused, and nobody is killed."""

import mmap
import os

import pytest

from control_groups import MemoryGroup
from workloads import Memory, MiB, WorkloadProcess, gantry

LIMIT = 256 * MiB


@pytest.fixture
def group():
    try:
        made = MemoryGroup(LIMIT)
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    yield made
    made.remove()


class Limited:
    """A workload whose process is in a control group; for WorkloadProcess."""

    def __init__(self, group, run_dir, name):
        group.join()
        self.client = gantry.Client(run_dir, name)
        self.arenas = []

    def arena(self, length):
        self.arenas.append(self.client.arena(length))
        return len(self.arenas[-1])

    def adopt(self, path, touched):
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self.arenas.append(self.client.adopt(fd))
        os.close(fd)
        self.arenas[-1][:touched] = b"\1" * touched
        return len(self.arenas[-1])

    def adopt_private(self, length, touched, read=0):
        memory = self.last = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        assert not any(memory[offset] for offset in range(0, read, mmap.PAGESIZE))
        for offset in range(0, touched, mmap.PAGESIZE):
            memory[offset] = 1
        self.arenas.append(self.client.register(f"b{len(self.arenas)}", memory, adopt=True))
        return memory[:touched:mmap.PAGESIZE].count(1)

    def shared_in_place(self):
        with open("/proc/self/maps") as maps:
            return sum("memfd:gantry-private" in line for line in maps)

    def close(self):
        self.arenas.pop(0).close()


@pytest.fixture
def start_limited(group):
    started = []

    def start(sidecar, name):
        started.append(WorkloadProcess(sidecar, name, lambda *where: Limited(group, *where)))
        return started[-1]

    yield start
    for workload in started:
        workload.kill()


def assert_refused(workload, length, call="arena", *more):
    with pytest.raises(gantry.Error) as refused:
        workload.do(call, length, *more)
    assert refused.value.code == "resource_exhausted", refused.value
    assert refused.value.hint, "it says what to do"
    return str(refused.value)


def test_private_memory_needs_room_for_a_slice_and_for_pages_that_were_never_touched(sidecar, start_limited):
    workload = start_limited(sidecar, "w")
    assert "gantry-test" in assert_refused(workload, 300 * MiB, "adopt_private", 0)
    assert "gantry-test" in assert_refused(workload, 300 * MiB, "adopt_private", 0, 300 * MiB)  # pages of zeros take none
    assert workload.do("shared_in_place") == 0
    assert workload.do("adopt_private", 144 * MiB, 144 * MiB) == 144 * MiB // mmap.PAGESIZE  # in a group of 256 MiB
    assert_refused(workload, 128 * MiB, "adopt_private", 0)
    assert workload.do("adopt_private", MiB, MiB) == MiB // mmap.PAGESIZE


def test_an_arena_beside_another_one(sidecar, start_limited):
    workload = start_limited(sidecar, "w")
    assert workload.do("arena", 160 * MiB) == 160 * MiB
    assert "gantry-test" in assert_refused(workload, 160 * MiB), "the limit is named"
    assert workload.do("arena", 32 * MiB) == 32 * MiB, "what fits is given"
    workload.do("close")
    assert workload.do("arena", 160 * MiB) == 160 * MiB, "what was given back counts as free"


def test_an_arena_larger_than_the_limit(sidecar, start_limited):
    workload = start_limited(sidecar, "w")
    assert_refused(workload, LIMIT + 1)
    assert_refused(workload, LIMIT)
    assert workload.do("arena", MiB) == MiB


def test_arenas_that_are_made_at_the_same_time(sidecar, start_limited):
    """Each of them fits alone, as those of the ranks of one pod: nobody is killed, and there is room again."""
    workloads = [start_limited(sidecar, f"w{index}") for index in range(3)]
    for workload in workloads:
        workload.post("arena", 192 * MiB)
    outcomes = []
    for workload in workloads:
        try:
            outcomes.append(workload.result())
        except gantry.Error as error:
            outcomes.append(error.code)
    assert set(outcomes) <= {192 * MiB, "resource_exhausted"} and outcomes.count(192 * MiB) <= 1, outcomes
    for workload, outcome in zip(workloads, outcomes):
        if outcome == 192 * MiB:
            workload.do("close")
    assert workloads[0].do("arena", 192 * MiB) == 192 * MiB


def test_a_sparse_file_that_is_adopted(sidecar, start_limited):
    """It takes the memory of what is written, and no more."""
    sparse = Memory(4 * LIMIT)
    workload = start_limited(sidecar, "w")
    assert workload.do("adopt", f"/proc/{os.getpid()}/fd/{sparse.fd}", MiB) == 4 * LIMIT
    assert os.fstat(sparse.fd).st_blocks * 512 < 8 * MiB
    sparse.close()
