"""The numbers of the Python package: what arrives is what was said, or it is refused."""

import inspect
import math
import time
from array import array

import pytest

from python_client_parts import BLOCK, arena, client, gantry, pair  # noqa: F401

NOBODY = "w/k"


@pytest.fixture
def buffer(client, arena):
    return client.register("k", arena.view(0, 16 * BLOCK), layout=gantry.Layout(BLOCK))


@pytest.fixture
def never(client, arena, buffer):
    """A fence that nobody reaches."""
    return (client.register("counters", arena.view(20 * BLOCK, BLOCK)), 0, 1)


def refusal(call, *arguments, **named):
    with pytest.raises(gantry.Error) as caught:
        call(*arguments, **named)
    return caught.value.code, caught.value.field


def transfers_of(client):
    return client.request("GET", "/v1/transfers?workload=w")["transfers"]


@pytest.mark.parametrize("left", [0, 0.0, -0.0, -1e-9, -5, -math.inf])
def test_without_time_left_nothing_is_sent(client, buffer, never, left):
    start = time.monotonic()
    blocks = {"local_blocks": [0], "remote_blocks": [1]}
    for call in (client.read, client.write):
        assert refusal(call, buffer, NOBODY, **blocks, fence=never, deadline=left) == ("deadline_exceeded", "deadline")
    assert refusal(client.notify, "w", b"late", deadline=left) == ("deadline_exceeded", "deadline")
    assert time.monotonic() - start < 1
    assert transfers_of(client) == [] and client.poll_events()[0] == []


def test_a_short_deadline_is_a_short_one(pair):
    memory = pair.client.arena(4096)
    fence = (pair.client.register("counters", memory), 0, 1)
    pair.client.read(pair.buffer, "a/prefill/k.0", local_blocks=[0], remote_blocks=[1]).wait(20)  # the peer is up
    for deadline in (1e-12, 0.0001, 0.05):
        def read_and_wait():
            pair.client.read(pair.buffer, "a/prefill/k.0", local_blocks=[0], remote_blocks=[1], fence=fence,
                             deadline=deadline).wait(5)

        start = time.monotonic()
        assert refusal(read_and_wait)[0] == "deadline_exceeded"
        assert time.monotonic() - start < 1 + deadline


@pytest.mark.parametrize("number, field, call", [
    (number, field, call) for field, call, numbers in [
        ("deadline", lambda c, b, n: c.read(b, NOBODY, local_blocks=[0], remote_blocks=[1], deadline=n), (math.inf, math.nan)),
        ("deadline", lambda c, b, n: c.notify("w", b"", deadline=n), (math.inf, math.nan)),
        ("ttl", lambda c, b, n: c.hold("h", gantry.HoldGroup(["k"]), n), (0, -1, math.inf, math.nan)),
        ("ttl", lambda c, b, n: c.hold("h", gantry.HoldGroup(["k"]), 9).extend(n), (0, -1, math.inf, math.nan)),
        ("expected_consumers",
         lambda c, b, n: c.hold("h", gantry.HoldGroup(["k"]), 9, expected_consumers=n), (0, -1, 2**63)),
        ("priority", lambda c, b, n: c.read(b, NOBODY, local_blocks=[0], remote_blocks=[1], priority=n),
         (11, -11, 2**32, 2**32 + 5, 2**70, -2**32)),
        ("block_ratio", lambda c, b, n: c.view("w", pairs=["k"], block_ratio=(n, 1)), (0, -1, 2**32)),
        ("block_ratio", lambda c, b, n: c.view("w", pairs=["k"], block_ratio=(1, n)), (0, -1, 2**32)),
        ("local_blocks/1", lambda c, b, n: c.read(b, NOBODY, local_blocks=array("q", [3, n]), remote_blocks=[0, 1]), (-1, -2**63)),
        ("local_blocks/1", lambda c, b, n: c.read(b, NOBODY, local_blocks=array("Q", [3, n]), remote_blocks=[0, 1]), (2**63,)),
        ("blocks", lambda c, b, n: c.hold("h", gantry.HoldGroup(["k"], [3, n]), 9), (-1, 2**64, 0.5)),
        ("/groups/0/blocks/1", lambda c, b, n: c.hold("h", gantry.HoldGroup(["k"], [3, n]), 9), (2**63,)),
        ("blocks/1", lambda c, b, n: c.hold("h", gantry.HoldGroup(["k"], array("q", [3, n])), 9), (-1,)),
        ("fence/offset", lambda c, b, n: c.timeline().wait(gantry.Fence(c.timeline(), n, 1), 0), (-8, 2**64)),
        ("fence/value", lambda c, b, n: c.timeline().wait(gantry.Fence(c.timeline(), 0, n), 0), (0, -1, 2**64)),
        ("timeout", lambda c, b, n: (lambda t: t.wait(gantry.Fence(t, 0, 1), n))(c.timeline()), (-1, math.nan)),
        ("layout/block_bytes", lambda c, b, n: c.register("l", b._views, layout=gantry.Layout(n)), (0, -1)),
        ("layout/block_stride", lambda c, b, n: c.register("l", b._views, layout=gantry.Layout(BLOCK, n)), (0, -1)),
        ("layout/blocks", lambda c, b, n: c.register("l", b._views, layout=gantry.Layout(BLOCK, BLOCK, n)), (0, -1)),
        ("require_path", lambda c, b, n: c.read(b, NOBODY, local_blocks=[0], remote_blocks=[1], require_path=n), ("", [])),
    ] for number in numbers])
def test_a_number_that_would_become_another_one_is_refused(client, buffer, number, field, call):
    code, where = refusal(call, client, buffer, number)
    assert (code, where) == ("invalid_argument", field)
    assert transfers_of(client) == []


@pytest.mark.parametrize("timeout", [0, -1, math.nan])
def test_a_client_has_some_time_for_a_request(sidecar, timeout):
    assert refusal(gantry.Client, sidecar.run_dir, "w", timeout=timeout) == ("invalid_argument", "timeout")
    for enough in (None, math.inf, 1):
        gantry.Client(sidecar.run_dir, "w", timeout=enough).close()


def test_a_block_that_does_not_fit_is_named_with_both_sizes(client, arena):
    with pytest.raises(gantry.Error) as caught:
        client.register("l", arena.view(0, 4096), layout=gantry.Layout(8192))
    assert caught.value.code == "out_of_range"
    assert "8192 bytes" in caught.value.message and "4096 bytes" in caught.value.message


def test_whole_milliseconds_stay_what_they_are():
    native = inspect.getmodule(gantry.Client).native
    assert [native.milliseconds(ms / 1000) for ms in range(5000)] == list(range(5000))
    assert [native.lifetime_ms(seconds, "ttl") for seconds in (1e-12, 0.0001, 0.07, 3600)] == [1, 1, 70, 3_600_000]
