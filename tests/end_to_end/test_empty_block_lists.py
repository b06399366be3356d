"""Transfers whose lists of blocks are empty: they move nothing, and do all else that a transfer does."""

import pytest

from python_client_parts import BLOCK, MIB, Pair, code_of, gantry, pair  # noqa: F401
from test_peers_over_tcp import TCP, meet


def reads_nothing_and_counts(owner, reader, local, remote):
    """`local` and `remote` as read() takes them; the hold is of the owner's buffer k.0."""
    hold = owner.hold("nothing", gantry.HoldGroup(["k.0"], blocks=[3, 4]), ttl=30, expected_consumers=1)
    status = reader.read(local, remote, local_blocks=[], remote_blocks=[], hold=hold.id,
                         notify=gantry.Message("prefill", b"all of it was there")).wait(10)
    assert (status.state, status.bytes, status.chunks, status.bytes_moved) == ("succeeded", 0, 0, 0)
    seen = {}
    for event in owner.events(timeout=10):
        seen[event.type] = event
        if {"hold", "notification"} <= set(seen):
            break
    assert seen["notification"].message == b"all of it was there"
    assert seen["hold"].fields["hold"]["outcome"] == "consumed" and seen["hold"].fields["hold"]["consumers"] == 1


def test_by_buffers_and_by_view(pair):
    reads_nothing_and_counts(pair.source_client, pair.client, pair.buffer, "a/prefill/k.0")
    view = pair.client.view("prefill", peer="a")
    for transfer in (pair.client.read(view, local_blocks=[], remote_blocks=[]),
                     pair.client.read(view, groups={0: gantry.Blocks([], [])})):
        assert transfer.wait(5).bytes == 0
    assert not any(pair.target)


def test_with_a_fence_it_waits_for_that(pair):
    clock = pair.client.register("clock", pair.client.arena(4096))
    transfer = pair.client.read(pair.buffer, "a/prefill/k.0", local_blocks=[], remote_blocks=[], fence=(clock, 0, 1))
    assert transfer.poll().state == "queued"
    clock._views[0] = 1
    assert transfer.wait(5).bytes == 0


def test_one_group_of_two_may_be_empty(pair):
    _other = pair.client.register("k.1", pair.target, layout=gantry.Layout(BLOCK))
    view = pair.client.view("prefill", peer="a", groups={0: gantry.ViewGroup([("k.0", "k.0")]),
                                                         1: gantry.ViewGroup([("k.1", "k.0")])})
    status = pair.client.read(view, groups={0: gantry.Blocks([], []), 1: gantry.Blocks([2], [5])}).wait(5)
    assert status.bytes == BLOCK and pair.target[2 * BLOCK:3 * BLOCK] == pair.source[5 * BLOCK:6 * BLOCK]
    assert code_of(pair.client.read, view, groups={0: gantry.Blocks([], [1])}) == "invalid_argument"


def test_the_peer_may_be_the_executor(start_sidecar):
    both = Pair(start_sidecar, source_access=("remote_read", "remote_write"))
    both.source_client.set_peer("b", both.b.peer_address)
    buffer = both.client.register("open", both.target, access=("remote_read", "remote_write"), layout=gantry.Layout(BLOCK))
    assert both.client.read(buffer, "a/prefill/k.0", local_blocks=[], remote_blocks=[], executor="peer").wait(5).bytes == 0


def test_lists_that_are_not_named_are_no_empty_lists(sidecar, pair):
    body = {"workload": "decode", "op": "read", "local": ["k.0"], "remote": ["a/prefill/k.0"]}
    for lists, code in (({}, "invalid_argument"), ({"local_blocks": []}, "malformed_body"),
                        ({"local_blocks": [], "remote_blocks": [1]}, "invalid_argument")):
        assert code_of(pair.client.request, "POST", "/v1/transfers", body | lists) == code
    answer = pair.client.request("POST", "/v1/transfers?wait_ms=5000", body | {"local_blocks": [], "remote_blocks": []}, 5)
    assert (answer["state"], answer["bytes"]) == ("succeeded", 0)


@pytest.mark.parametrize("over", ["tcp"])
def test_over_tcp(start_sidecar, over):
    a, b = start_sidecar("a", flags=TCP), start_sidecar("b", flags=TCP)
    meet(b, a), meet(a, b)
    with gantry.Client(a.run_dir, "prefill") as owner, gantry.Client(b.run_dir, "decode") as reader:
        _source = owner.register("k.0", owner.arena(MIB), layout=gantry.Layout(BLOCK))
        local = reader.register("k.0", reader.arena(MIB), layout=gantry.Layout(BLOCK))
        reads_nothing_and_counts(owner, reader, local, "a/prefill/k.0")
