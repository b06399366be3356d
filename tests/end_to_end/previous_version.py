"""A sidecar of the version before beside one of this, as when pods are upgraded one by one.

GANTRY_PREVIOUS_BIN_DIR names the folder of its programs; "make test-previous" runs this, and no other tier does. The same
over RDMA: tests/rdma/previous_over_rdma.py.
"""

import os

import pytest

from workloads import MiB, connect, new_memory, start_workload, submit, wait_for

PREVIOUS = os.environ["GANTRY_PREVIOUS_BIN_DIR"]
AS_BEFORE = ["sh", "-c", f'shift; exec "{PREVIOUS}/gantry-sidecar" "$@"', "sh"]  # prefix of a sidecar's command line
SIZE = 4 * MiB


def start_before(start_sidecar, name, **options):
    """A sidecar of the version before. One that knows no `wait_ms` of PUT /v1/peers waits for as long as it likes."""
    sidecar = start_sidecar(name, prefix=AS_BEFORE, **options)
    ask = sidecar.ask

    def ask_without(method, target, *arguments, **named):
        status, answer = ask(method, target, *arguments, **named)
        if method == "PUT" and status == 400 and answer.get("field") == "?wait_ms":
            return ask(method, target.partition("?")[0], *arguments, **named)
        return status, answer

    sidecar.ask = ask_without
    return sidecar


@pytest.fixture
def neighbours(start_sidecar):
    """(this version, the one before), met in both directions."""
    before = start_before(start_sidecar, "before")
    now = start_sidecar("now")
    for one, other in ((now, before), (before, now)):
        peer = connect(one, other)
        assert (peer["state"], peer["path"]) == ("up", "shm"), peer
    return now, before


@pytest.mark.parametrize("mover", ["now", "before"])
@pytest.mark.parametrize("operation", ["read", "write"])
def test_bytes_move_and_buffers_are_taken_back(neighbours, start_workload, new_memory, mover, operation):
    mine, other = neighbours if mover == "now" else neighbours[::-1]
    local, remote = new_memory(SIZE, filled=True), new_memory(SIZE, filled=True)
    reader, owner = start_workload(mine, "reader"), start_workload(other, "owner")
    reader.register(local, ("kv", 0, SIZE))
    owner.register(remote, ("kv", 0, SIZE))
    target = f"{other.name}/owner/kv"
    status, view = submit(mine, "reader", operation, "kv", target, SIZE, 20_000)
    assert (status, view["state"], view["path"]) == (200, "succeeded", "shm"), view
    assert not local.differs_from(remote)
    owner.do("unregister", "kv")  # the peer had it mapped, and lets go
    status, problem = submit(mine, "reader", operation, "kv", target, SIZE, 20_000)
    assert status in (404, 409, 410), (status, problem)


def test_each_notices_that_the_other_was_restarted(neighbours, start_workload, new_memory):
    for mine, other in (neighbours, neighbours[::-1]):
        generation = mine.ask("GET", f"/v1/peers/{other.name}")[1]["generation"]
        other.kill()
        wait_for(lambda: mine.ask("GET", f"/v1/peers/{other.name}")[1]["state"] != "up", 7, "its end")
        other.start()

        def returned():
            peer = mine.ask("GET", f"/v1/peers/{other.name}")[1]
            return peer["state"] == "up" and peer["generation"] != generation

        wait_for(returned, 10, "its return")
        assert connect(other, mine)["state"] == "up"


def test_what_the_one_before_does_not_know_is_refused_with_the_reason(neighbours, start_workload, new_memory):
    now, _ = neighbours
    local, remote = new_memory(SIZE), new_memory(SIZE)
    start_workload(now, "reader").register(local, ("kv", 0, SIZE, ("remote_read", "remote_write")))
    start_workload(neighbours[1], "owner").register(remote, ("kv", 0, SIZE))
    status, problem = submit(now, "reader", "read", "kv", "before/owner/kv", SIZE, 20_000, executor="peer")
    if status == 200:  # it may know it
        assert problem["state"] == "succeeded", problem
    else:
        assert problem["code"] == "version_mismatch" and "upgrade" in problem["hint"], problem
