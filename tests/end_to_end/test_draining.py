"""Buffers that are deleted, suspended or replaced while somebody uses them: unpublish, drain, then release."""

import http.client
import signal
import threading
import time

import pytest

from workloads import (MiB, gantry, new_memory, scene, send, start_workload, submit, view_of,
                       wait_for, workers_of)


def buffer_of(sidecar, workload, name="kv"):
    buffers = sidecar.ask("GET", f"/v1/buffers?workload={workload}")[1]["buffers"]
    return next((buffer for buffer in buffers if buffer["name"] == name), None)


def delete(sidecar, buffer, drain_ms):
    return sidecar.ask("DELETE", f"/v1/buffers/{buffer}?drain_ms={drain_ms}")


def test_a_buffer_in_use_here_is_deleted_after_its_transfer(scene):
    transfer, workers = scene.hold(id="its-user")
    buffer = buffer_of(scene.a, "reader")["id"]
    start = time.monotonic()
    status, problem = delete(scene.a, buffer, 300)
    assert (status, problem["code"]) == (504, "deadline_exceeded")
    assert "its-user" in problem["detail"], "it names who uses it"
    assert 0.3 <= time.monotonic() - start < 1.3
    assert scene.target.mapped_by(workers), "nothing is unmapped under a running copy"
    status, problem = scene.read()
    assert problem["code"] in ("draining", "unregistered"), "nothing new uses it"
    send(workers, signal.SIGCONT)
    status, problem = delete(scene.a, buffer, 5_000)
    assert status == 200 or problem["code"] == "not_found", problem
    assert view_of(scene.a, "reader", transfer)["state"] == "succeeded"
    assert not scene.target.differs_from(scene.source)
    assert not scene.target.mapped_by(workers_of(scene.a))
    assert buffer_of(scene.a, "reader") is None
    scene.others_still_work()


def test_a_buffer_that_a_peer_has_mapped_is_unmapped_there_before_the_delete_answers(scene):
    scene.everything_works()
    workers = workers_of(scene.a)
    assert scene.source.mapped_by(workers)
    status, _ = delete(scene.b, buffer_of(scene.b, "owner")["id"], 5_000)
    mapped = scene.source.mapped_by(workers + workers_of(scene.b))
    assert status == 200 and not mapped
    status, problem = scene.read()
    assert status == 404, problem
    scene.others_still_work()


def test_a_buffer_that_a_peer_copies_from_is_deleted_after_the_copy(scene):
    transfer, workers = scene.hold()
    buffer = buffer_of(scene.b, "owner")["id"]
    status, problem = delete(scene.b, buffer, 300)
    assert (status, problem["code"]) == (504, "deadline_exceeded")
    assert "(a)" in problem["detail"], "it names the peer that has not confirmed"
    assert scene.source.mapped_by(workers), "nothing is unmapped under a running copy"
    answers = []
    deleting = threading.Thread(target=lambda: answers.append(
        (delete(scene.b, buffer, 10_000), scene.source.mapped_by(workers_of(scene.a) + workers_of(scene.b)))))
    deleting.start()
    time.sleep(0.1)
    assert not answers
    send(workers, signal.SIGCONT)
    deleting.join(12)
    ((status, problem), mapped), = answers
    assert (status == 200 or problem["code"] == "not_found") and not mapped, problem
    view = view_of(scene.a, "reader", transfer, 5_000)
    skip = {index * MiB for index in view.get("failed_items", [])}
    assert view["state"] == "succeeded" or view["error"]["code"] == "draining"
    assert not scene.target.differs_from(scene.source, skip=skip)
    scene.others_still_work()
    # What is registered anew under the name is another buffer.
    scene.owner.do("unregister", "kv")
    scene.owner.register(scene.source, ("kv", 0, scene.size))
    scene.everything_works()


class Deletion(threading.Thread):
    """DELETE of a buffer; `answer` is (status, problem), and who had the memory mapped when it came."""

    def __init__(self, sidecar, buffer, drain_ms, mapped_by):
        super().__init__()
        self._ask = lambda: (delete(sidecar, buffer, drain_ms), mapped_by())
        self.answer = None
        self.start()

    def run(self):
        try:
            self.answer = self._ask()
        except (OSError, http.client.HTTPException):
            self.answer = ("closed", None), []


def test_a_delete_that_has_time_lets_a_peers_transfer_end(scene):
    transfer, workers = scene.hold()
    deletion = Deletion(scene.b, buffer_of(scene.b, "owner")["id"], 60_000,
                        lambda: scene.source.mapped_by(workers_of(scene.a) + workers_of(scene.b)))
    time.sleep(1)
    assert deletion.answer is None and scene.source.mapped_by(workers)
    status, problem = scene.read()
    assert (status, problem["code"]) == (404, "unregistered"), "nothing new uses it"
    send(workers, signal.SIGCONT)
    view = view_of(scene.a, "reader", transfer, 10_000)
    assert view["state"] == "succeeded", view
    assert not scene.target.differs_from(scene.source)
    deletion.join(3)
    (status, problem), mapped = deletion.answer
    assert (status, mapped) == (200, []), problem
    scene.others_still_work()


def test_a_sidecar_that_waits_for_a_peer_that_stands_still_stops_all_the_same(scene):
    scene.everything_works()
    workers = workers_of(scene.a)
    send([scene.a.process.pid], signal.SIGSTOP)
    try:
        deletion = Deletion(scene.b, buffer_of(scene.b, "owner")["id"], 60_000, lambda: [])
        time.sleep(0.5)
        assert deletion.answer is None and scene.source.mapped_by(workers), "it waits for the peer"
        start = time.monotonic()
        assert scene.b.stop() == 0
        assert time.monotonic() - start < 5  # --shutdown-ms is twice as much, and ends it by force
        deletion.join(1)
        (status, problem), _ = deletion.answer
        assert status == "closed" or problem["code"] in ("deadline_exceeded", "shutting_down"), problem
    finally:
        send([scene.a.process.pid], signal.SIGCONT)
    wait_for(lambda: not scene.source.mapped_by(workers), 1.5, "unmapping what the peer left behind")


@pytest.mark.parametrize("read_before", [False, True])
def test_a_stale_generation_is_refused(scene, read_before):
    first = buffer_of(scene.b, "owner")["generation"]
    if read_before:
        scene.everything_works()
    scene.owner.do("unregister", "kv", drain=5)
    other = scene.new_memory(scene.size, filled=True)
    (second,) = scene.owner.register(other, ("kv", 0, scene.size))
    scene.target.clear()
    status, problem = submit(scene.a, "reader", "read", "kv", f"b/owner/kv@{first}", scene.size, 5_000)
    assert (status, problem["code"]) == (409, "stale_generation"), problem
    status, problem = submit(scene.a, "reader", "read", f"kv@{first}", "b/owner/kv", scene.size, 5_000)
    assert (status, problem["code"]) == (409, "stale_generation"), problem
    assert scene.target.map[:MiB] == bytes(MiB)
    status, view = submit(scene.a, "reader", "read", "kv", f"b/owner/kv@{second}", scene.size, 5_000)
    assert (status, view["state"]) == (200, "succeeded") and not scene.target.differs_from(other)
    # Now that the second one is mapped here, the owner is not even asked.
    status, problem = submit(scene.a, "reader", "read", "kv", f"b/owner/kv@{first}", scene.size, 5_000)
    assert (status, problem["code"]) == (409, "stale_generation"), problem


def test_the_memory_of_an_owner_that_was_restarted_is_never_read_through_the_old_mapping(scene):
    """The sidecar of the owner is killed; before the reader's one notices, its successor has other memory."""
    scene.everything_works()
    other = scene.new_memory(scene.size, filled=True)
    scene.b.kill()
    scene.b.start()
    scene.owner.kill()
    scene.owner = scene.start_workload(scene.b, "owner")
    scene.owner.register(other, ("kv", 0, scene.size))
    scene.target.clear()

    def read():
        status, view = scene.read(deadline_ms=2_000)
        return status == 200 and view["state"] == "succeeded"

    wait_for(read, 8)
    assert not scene.target.differs_from(other)


def test_suspended_buffers_are_unmapped_everywhere_and_come_back(scene):
    scene.everything_works()
    generation = buffer_of(scene.b, "owner")["generation"]
    scene.owner.do("suspend")
    assert not scene.source.mapped_by(workers_of(scene.a) + workers_of(scene.b))
    assert buffer_of(scene.b, "owner")["state"] == "suspended"
    status, problem = scene.read()
    assert (status, problem["code"]) == (409, "draining"), problem
    scene.others_still_work()
    scene.source.fill()
    scene.owner.do("resume")
    assert buffer_of(scene.b, "owner")["generation"] == generation
    scene.everything_works()
    scene.reader.do("suspend")
    assert not scene.target.mapped_by(workers_of(scene.a))
    status, problem = scene.read()
    assert (status, problem["code"]) == (409, "draining"), problem
    scene.reader.do("resume")
    scene.everything_works()


def test_a_suspension_waits_for_the_transfer_that_runs(scene):
    transfer, workers = scene.hold()
    with pytest.raises(gantry.Error) as refused:
        scene.reader.do("suspend", drain=0.3)
    assert refused.value.code == "deadline_exceeded" and transfer in refused.value.message
    assert scene.target.mapped_by(workers)
    scene.reader.post("suspend", drain=10)
    send(workers, signal.SIGCONT)
    scene.reader.result()
    assert not scene.target.mapped_by(workers_of(scene.a))
    assert view_of(scene.a, "reader", transfer)["state"] == "succeeded"
    scene.reader.do("resume")
    scene.everything_works()


def test_the_neighbours_of_a_buffer_cannot_be_reached(scene):
    """Two buffers in one allocation; a peer that has it mapped keeps to what it was granted."""
    shared = scene.new_memory(4 * MiB, filled=True)
    scene.owner.register(shared, ("first", 0, MiB, ("remote_read",)), ("second", MiB, MiB, ("remote_write",)))
    ranges = {"past its end": [0, 0, 0, MiB - 8, 16], "behind it": [0, 0, 0, MiB, 8],
              "wrapping": [0, 0, 0, (1 << 63) - 8, 16]}
    for what, one in ranges.items():
        status, problem = scene.a.ask("POST", "/v1/transfers?wait_ms=5000", {
            "workload": "reader", "op": "read", "local": ["kv"], "remote": ["b/owner/first"], "ranges": [one]})
        assert (status, problem["code"]) == (400, "out_of_range"), what
    for operation, buffer in (("write", "first"), ("read", "second")):
        status, problem = submit(scene.a, "reader", operation, "kv", f"b/owner/{buffer}", MiB, 5_000)
        assert (status, problem["code"]) == (403, "permission_denied"), buffer
    before = bytes(shared.map[:MiB]), bytes(shared.map[2 * MiB:])
    scene.target.fill()
    status, view = submit(scene.a, "reader", "write", "kv", "b/owner/second", MiB, 5_000)
    assert (status, view["state"]) == (200, "succeeded")
    assert shared.map[MiB:2 * MiB] == scene.target.map[:MiB]
    assert (shared.map[:MiB], shared.map[2 * MiB:]) == before


def test_readers_of_a_buffer_that_is_replaced_all_the_time_are_told_so(scene):
    """Between description, ticket, descriptor and mapping the buffer may go: never a wrong byte or an odd code."""
    memory = scene.new_memory(MiB, filled=True)
    going, codes = [True], set()

    def replace():
        while going:
            scene.owner.register(memory, ("brief", 0, MiB))
            scene.owner.do("unregister", "brief", drain=5)

    replacing = threading.Thread(target=replace)
    replacing.start()
    end = time.monotonic() + 2
    while time.monotonic() < end:
        scene.target.map[:MiB] = bytes(MiB)
        status, answer = submit(scene.a, "reader", "read", "kv", "b/owner/brief", MiB, 5_000)
        codes.add(answer["error"]["code"] if "error" in answer else answer.get("code", answer.get("state")))
        assert status != 200 or answer["state"] != "succeeded" or not scene.target.differs_from(memory, MiB)
    going.clear()
    replacing.join(10)
    assert codes <= {"succeeded", "unregistered", "draining", "stale_generation"}, codes
    wait_for(lambda: not memory.mapped_by(workers_of(scene.a) + workers_of(scene.b)), 1.5, "unmapping")
    scene.everything_works()
