"""Views between two sidecars: tensor-parallel splits in both directions, other block sizes, layers, groups, errors."""

import signal

import pytest

from workloads import connect, new_memory, send, start_workload, wait_for, workers_of  # noqa: F401

BLOCK = 4096
BLOCKS = 32
LAYERS = 4
SIZE = LAYERS * BLOCKS * BLOCK


def layers_of(block_bytes=BLOCK, prefix="kv", access=("remote_read", "remote_write")):
    """Specs of the layers kv.0, kv.1, ... over one memory."""
    length = BLOCKS * BLOCK
    return [(f"{prefix}.{i}", i * length, length, access, block_bytes) for i in range(LAYERS)]


class Pod:
    """A workload with its memory in layers of blocks, filled with random bytes."""

    def __init__(self, sidecar, name, start_workload, new_memory, block_bytes=BLOCK, **options):
        self.sidecar, self.name, self.block_bytes = sidecar, name, block_bytes
        self.memory = new_memory(SIZE, filled=True)
        self.workload = start_workload(sidecar, name)
        self.workload.register(self.memory, *layers_of(block_bytes, **options))

    def at(self, layer, block, offset=0, length=None):
        """The range of bytes in the memory."""
        start = layer * BLOCKS * BLOCK + block * self.block_bytes + offset
        return slice(start, start + (self.block_bytes if length is None else length))

    def view(self, remote, expect=201, **fields):
        body = {"workload": self.name, "peer": remote.sidecar.name, "remote_workload": remote.name,
                "pairs": "by_name", **fields}
        if "groups" in fields and "pairs" not in fields:
            del body["pairs"]
        if remote.sidecar is self.sidecar:
            del body["peer"]
        status, answer = self.sidecar.ask("POST", "/v1/views", body)
        assert status == expect, answer
        return answer

    def move(self, operation, view, local_blocks=None, remote_blocks=None, wait_ms=20_000, **fields):
        """(status, answer) of a transfer by view."""
        body = {"workload": self.name, "op": operation, "view": view["id"], **fields}
        if local_blocks is not None:
            body |= {"local_blocks": local_blocks, "remote_blocks": remote_blocks}
        return self.sidecar.ask("POST", f"/v1/transfers?wait_ms={wait_ms}", body)

    def moved(self, *arguments, **fields):
        status, answer = self.move(*arguments, **fields)
        assert status == 200 and answer["state"] == "succeeded", answer
        return answer


def mirror(pod):
    return bytearray(pod.memory.map[:])


def copy(expected, destination, there, source, here):
    """What a transfer should have done, on the copy of its destination."""
    assert there.stop - there.start == here.stop - here.start
    expected[there] = source.memory.map[here]


def check(pod, expected):
    assert pod.memory.map[:] == bytes(expected)


@pytest.fixture
def sidecars(start_sidecar):
    a, b = start_sidecar("a"), start_sidecar("b")
    connect(a, b)
    connect(b, a)
    return a, b


@pytest.fixture
def pod(start_workload, new_memory):
    def make(sidecar, name, **options):
        return Pod(sidecar, name, start_workload, new_memory, **options)
    return make


@pytest.mark.smoke
def test_by_name(sidecars, pod):
    decode, prefill = pod(sidecars[0], "decode"), pod(sidecars[1], "prefill")
    view = decode.view(prefill, id="all")
    assert (view["id"], view["pair_count"], view["bytes_per_block"]) == ("all", LAYERS, LAYERS * BLOCK)
    assert [pair["local"].split("@")[0] for pair in view["pairs"]] == [f"kv.{i}" for i in range(LAYERS)]
    assert view["pairs"][1]["remote"].startswith("b/prefill/kv.1@")
    assert view["warnings"] == []
    assert decode.view(prefill, expect=200, id="all") == view
    assert decode.view(prefill, expect=409, id="all", pairs=["kv.0"])["code"] == "conflict"
    expected = mirror(decode)
    local, remote = [9, 3, 4, 5, 30], [1, 7, 8, 9, 0]
    answer = decode.moved("read", view, local, remote)
    assert (answer["bytes"], answer["descriptors_in"]) == (5 * LAYERS * BLOCK, 5 * LAYERS)
    assert (answer["descriptors_out"], answer["peer"], answer["path"]) == (3 * LAYERS, "b", "shm")
    for layer in range(LAYERS):
        for here, there in zip(local, remote):
            copy(expected, decode, decode.at(layer, here), prefill, prefill.at(layer, there))
    check(decode, expected)
    listed = decode.sidecar.ask("GET", "/v1/views?workload=decode")[1]["views"]
    assert [each["id"] for each in listed] == ["all"] and "pairs" not in listed[0]
    assert decode.sidecar.ask("GET", "/v1/views/all?workload=decode")[1] == view
    assert decode.sidecar.ask("DELETE", "/v1/views/all?workload=decode")[0] == 204
    assert decode.move("read", view, [1], [1])[1]["code"] == "not_found"


@pytest.mark.parametrize("operation", ["read", "write"])
def test_from_two_ranks_to_four(sidecars, pod, operation):
    """TP 2 -> 4: each of four consumers has half of a producer's heads in its own, smaller blocks."""
    half = BLOCK // 2
    producers = [pod(sidecars[1], f"prefill-{rank}") for rank in range(2)]
    local, remote = [5, 0, 31, 8, 9], [2, 3, 4, 31, 30]
    for rank in range(4):
        consumer, producer = pod(sidecars[0], f"decode-{rank}", block_bytes=half), producers[rank // 2]
        offset = rank % 2 * half
        view = consumer.view(producer, slice={"remote": {"offset": offset, "length": half}})
        assert view["bytes_per_block"] == LAYERS * half
        sides = [(consumer, layer, here, 0, producer, there, offset)
                 for layer in range(LAYERS) for here, there in zip(local, remote)]
        changed = consumer if operation == "read" else producer
        expected = mirror(changed)
        for mine, layer, here, mine_offset, other, there, other_offset in sides:
            one, two = mine.at(layer, here, mine_offset, half), other.at(layer, there, other_offset, half)
            if operation == "read":
                copy(expected, mine, one, other, two)
            else:
                copy(expected, other, two, mine, one)
        answer = consumer.moved(operation, view, local, remote)
        assert answer["bytes"] == 5 * LAYERS * half
        check(changed, expected)


def test_from_four_ranks_to_two(sidecars, pod):
    """TP 4 -> 2: a consumer puts what each of two producers has into its own slice of the local blocks."""
    half = BLOCK // 2
    consumer = pod(sidecars[0], "decode")
    producers = [pod(sidecars[1], f"prefill-{rank}", block_bytes=half) for rank in range(2)]
    expected = mirror(consumer)
    local, remote = [1, 2, 3, 20], [7, 8, 9, 1]
    views = [consumer.view(producer, slice={"local": {"offset": rank * half, "length": half}})
             for rank, producer in enumerate(producers)]
    # Slices of the same blocks do not collide: all run at the same time.
    body = [{"workload": "decode", "op": "read", "view": view["id"], "local_blocks": local, "remote_blocks": remote}
            for view in views]
    status, outcomes = consumer.sidecar.ask("POST", "/v1/transfers?wait_ms=20000", body)
    assert status == 200 and [each["transfer"]["state"] for each in outcomes] == ["succeeded"] * 2, outcomes
    for rank, producer in enumerate(producers):
        for layer in range(LAYERS):
            for here, there in zip(local, remote):
                copy(expected, consumer, consumer.at(layer, here, rank * half, half),
                     producer, producer.at(layer, there))
    check(consumer, expected)


def test_several_slices_of_a_block(sidecars, pod):
    """K and V halves of a joint block are split over the ranks alike."""
    decode, prefill = pod(sidecars[0], "decode", block_bytes=BLOCK // 2), pod(sidecars[1], "prefill")
    quarter = BLOCK // 4
    slices = [{"local": {"offset": part * quarter, "length": quarter},
               "remote": {"offset": part * 2 * quarter + quarter, "length": quarter}} for part in range(2)]
    view = decode.view(prefill, slice=slices)
    expected = mirror(decode)
    decode.moved("read", view, [4, 0], [2, 3])
    for layer in range(LAYERS):
        for here, there in ((4, 2), (0, 3)):
            for part in range(2):
                copy(expected, decode, decode.at(layer, here, part * quarter, quarter),
                     prefill, prefill.at(layer, there, part * 2 * quarter + quarter, quarter))
    check(decode, expected)


@pytest.mark.parametrize("operation", ["read", "write"])
def test_blocks_of_two_sizes(sidecars, pod, operation):
    """Four remote blocks make one local block; of the last one only a part is there."""
    ratio, small = 4, BLOCK // 4
    decode, prefill = pod(sidecars[0], "decode"), pod(sidecars[1], "prefill", block_bytes=small)
    view = decode.view(prefill, block_ratio={"remote": ratio})
    assert view["bytes_per_block"] == LAYERS * small
    local, remote = [6, 2, 3], [40, 41, 42, 43, 8, 7, 6, 5, 100, 101]
    changed = decode if operation == "read" else prefill
    expected = mirror(changed)
    answer = decode.moved(operation, view, local, remote)
    assert answer["descriptors_in"] == len(remote) * LAYERS
    for layer in range(LAYERS):
        for i, there in enumerate(remote):
            here = decode.at(layer, local[i // ratio], i % ratio * small, small)
            if operation == "read":
                copy(expected, decode, here, prefill, prefill.at(layer, there))
            else:
                copy(expected, prefill, prefill.at(layer, there), decode, here)
    check(changed, expected)
    status, problem = decode.move(operation, view, [1, 2], remote)
    assert (status, problem["code"], problem["field"]) == (400, "invalid_argument", "/remote_blocks"), problem


def test_layers_are_written_one_by_one(sidecars, pod):
    decode, prefill = pod(sidecars[0], "decode"), pod(sidecars[1], "prefill")
    view = prefill.view(decode)
    expected = mirror(decode)
    for first, last in ((0, 0), (1, 2), (3, 3)):
        answer = prefill.moved("write", view, [1, 2], [4, 9], layers=[first, last])
        assert answer["bytes"] == 2 * BLOCK * (last - first + 1)
        for layer in range(first, last + 1):
            for here, there in ((1, 4), (2, 9)):
                copy(expected, decode, decode.at(layer, there), prefill, prefill.at(layer, here))
        check(decode, expected)
    status, problem = prefill.move("write", view, [1], [1], layers=[2, LAYERS])
    assert (status, problem["code"], problem["field"]) == (400, "out_of_range", "/layers"), problem


def test_groups_have_block_lists_of_their_own(sidecars, pod):
    decode, prefill = pod(sidecars[0], "decode"), pod(sidecars[1], "prefill")
    half = BLOCK // 2
    view = decode.view(prefill, slice={"local": {"offset": 0, "length": half}, "remote": {"offset": half, "length": half}},
                       groups=[{"group": 0, "pairs": ["kv.0", ["kv.2", "kv.1"]]},
                               {"group": 7, "pairs": ["kv.3"], "slice": {}}])
    assert [group["bytes_per_block"] for group in view["groups"]] == [2 * half, BLOCK]
    expected = mirror(decode)
    answer = decode.moved("read", view, groups=[{"group": 7, "local_blocks": [5], "remote_blocks": [6]},
                                                {"group": 0, "local_blocks": [1, 2], "remote_blocks": [3, 1],
                                                 "layers": [1, 1]}])
    assert answer["bytes"] == BLOCK + 2 * half
    copy(expected, decode, decode.at(3, 5), prefill, prefill.at(3, 6))
    for here, there in ((1, 3), (2, 1)):
        copy(expected, decode, decode.at(2, here, 0, half), prefill, prefill.at(1, there, half, half))
    check(decode, expected)
    status, problem = decode.move("read", view, groups=[{"group": 1, "local_blocks": [1], "remote_blocks": [1]}])
    assert (status, problem["code"], problem["field"]) == (404, "not_found", "/groups/0/group"), problem
    status, problem = decode.move("read", view, groups=[{"group": 0, "local_blocks": [1, 1], "remote_blocks": [1, 2]}])
    assert (status, problem["code"], problem["field"]) == (400, "overlap", "/groups/0/local_blocks/1"), problem


def test_within_one_sidecar(start_sidecar, pod):
    sidecar = start_sidecar("a")
    one, two = pod(sidecar, "one"), pod(sidecar, "two")
    view = one.view(two, pairs=["kv.1"])
    expected = mirror(one)
    one.moved("read", view, [2], [3])
    copy(expected, one, one.at(1, 2), two, two.at(1, 3))
    check(one, expected)


BAD_VIEWS = [
    ({"slice": {"remote": {"offset": BLOCK - 8, "length": 16}}}, 400, "out_of_range", "/pairs/0", "kv.0"),
    ({"slice": {"local": {"offset": 0, "length": 8}}}, 400, "invalid_argument", "/pairs/0", "kv.0"),
    ({"block_ratio": {"remote": 3}}, 400, "invalid_argument", "/pairs/0", "kv.0"),
    ({"block_ratio": {"local": 2, "remote": 3}}, 400, "invalid_argument", "/block_ratio", ""),
    ({"pairs": ["kv.0", "kv.9"]}, 404, "unregistered", "/pairs/1", "kv.9"),
    ({"pairs": ["kv.0", ["kv.1", "none"]]}, 404, "unregistered", "/pairs/1", "b/prefill/none"),
    ({"pairs": ["kv.0", ["kv.1", "kv.1@0000000000000001"]]}, 409, "stale_generation", "/pairs/1", "kv.1"),
    ({"pairs": ["no.*"]}, 404, "unregistered", "/pairs/0", "no.*"),
    ({"pairs": "all"}, 400, "invalid_argument", "/pairs", ""),
    ({"remote_workload": "nobody"}, 404, "unregistered", "/pairs/0", "nobody"),
    ({"peer": "nobody"}, 404, "not_found", "/pairs/0", "nobody"),
    ({"groups": [{"group": 1, "pairs": ["kv.0"]}, {"group": 1, "pairs": ["kv.1"]}]}, 400, "invalid_argument",
     "/groups/1/group", ""),
    ({"groups": [{"group": 1, "pairs": ["kv.0", "kv.9"]}]}, 404, "unregistered", "/groups/0/pairs/1", "kv.9"),
]


def test_errors_name_the_pair(sidecars, pod):
    decode, prefill = pod(sidecars[0], "decode"), pod(sidecars[1], "prefill")
    for fields, status, code, field, name in BAD_VIEWS:
        problem = decode.view(prefill, expect=status, **fields)
        assert (problem["code"], problem["field"]) == (code, field), problem
        assert name in problem["detail"], problem
    assert decode.sidecar.ask("GET", "/v1/views")[1]["views"] == []
    assert decode.move("read", {"id": "none"}, [1], [1])[1]["field"] == "/view"
    view = decode.view(prefill)
    for local, remote, code, field in (([0, BLOCKS], [0, 1], "out_of_range", "/local_blocks/1"),
                                       ([0, 1], [BLOCKS, 1], "out_of_range", "/remote_blocks/0"),
                                       ([0, 1], [1], "invalid_argument", "/remote_blocks"),
                                       ([3, 3], [0, 1], "overlap", "/local_blocks/1")):
        status, problem = decode.move("read", view, local, remote)
        assert (status, problem["code"], problem["field"]) == (400, code, field), problem


def test_what_the_owner_does_not_grant(sidecars, pod):
    decode, prefill = pod(sidecars[0], "decode"), pod(sidecars[1], "prefill", access=("remote_read",))
    view = decode.view(prefill)
    assert len(view["warnings"]) == 1 and "remote_write" in view["warnings"][0]
    decode.moved("read", view, [1], [1])
    status, problem = decode.move("write", view, [1], [1])
    assert (status, problem["code"], problem["field"]) == (403, "permission_denied", "/view"), problem


def test_a_view_follows_buffers_that_are_registered_anew(sidecars, pod):
    decode, prefill = pod(sidecars[0], "decode"), pod(sidecars[1], "prefill")
    view = decode.view(prefill)
    pinned = decode.view(prefill, pairs=[["kv.1", view["pairs"][1]["remote"].split("/")[-1]]])
    decode.moved("read", view, [1], [1])
    prefill.workload.do("unregister", "kv.1")
    status, problem = decode.move("read", view, [1], [1])
    assert (status, problem["code"]) == (404, "unregistered") and "kv.1" in problem["detail"], problem
    prefill.workload.register(prefill.memory, layers_of()[1])
    prefill.memory.fill()
    expected = mirror(decode)
    decode.moved("read", view, [2], [3])
    for layer in range(LAYERS):
        copy(expected, decode, decode.at(layer, 2), prefill, prefill.at(layer, 3))
    check(decode, expected)
    renewed = decode.sidecar.ask("GET", f"/v1/views/{view['id']}?workload=decode")[1]
    assert renewed["pairs"][1]["remote"] != view["pairs"][1]["remote"]
    assert renewed["pairs"][0] == view["pairs"][0]
    status, problem = decode.move("read", pinned, [1], [1])
    assert (status, problem["code"]) == (409, "stale_generation"), problem
    # Its blocks are of another size now: what would no longer pair up is refused.
    prefill.workload.do("unregister", "kv.1")
    prefill.workload.register(prefill.memory, layers_of(BLOCK // 2)[1])
    status, problem = decode.move("read", view, [2], [3])
    assert (status, problem["code"], problem["field"]) == (400, "invalid_argument", "/view"), problem


def test_a_view_goes_with_its_workload(sidecars, pod, start_workload):
    decode, prefill = pod(sidecars[0], "decode"), pod(sidecars[1], "prefill")
    view = decode.view(prefill, id="mine")
    decode.workload.kill()
    wait_for(lambda: decode.sidecar.ask("GET", "/v1/views")[1]["views"] == [], 2, "the end of the view")
    again = start_workload(decode.sidecar, "decode")
    again.register(decode.memory, *layers_of())
    assert decode.move("read", view, [1], [1])[1]["code"] == "not_found"


def test_failures_name_the_blocks(sidecars, pod):
    """Nothing of a cancelled transfer has moved: each item is named, of all groups in a row."""
    decode, prefill = pod(sidecars[0], "decode"), pod(sidecars[1], "prefill")
    view = decode.view(prefill, groups=[{"group": 0, "pairs": ["kv.0", "kv.1"]}, {"group": 1, "pairs": ["kv.2"]}])
    workers = workers_of(decode.sidecar)
    send(workers, signal.SIGSTOP)
    try:
        status, answer = decode.move("read", view, wait_ms=0, deadline_ms=200, groups=[
            {"group": 0, "local_blocks": [4, 2], "remote_blocks": [1, 2]},
            {"group": 1, "local_blocks": [9], "remote_blocks": [1]}])
        assert status == 202, answer
        status, answer = decode.sidecar.ask("GET", f"/v1/transfers/{answer['id']}?workload=decode&wait_ms=20000")
    finally:
        send(workers_of(decode.sidecar), signal.SIGCONT)
    assert answer["state"] == "expired" and answer["failed_items"] == [0, 1, 2], answer
