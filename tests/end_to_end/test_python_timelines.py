"""Timelines without a GPU: fences of the host's own work."""

import gc
import weakref

import pytest

from python_client_parts import BLOCK, Pair, client, gantry


def test_a_fence_is_reached_when_it_is_made(start_sidecar):
    pair = Pair(start_sidecar)
    timeline = pair.client.timeline()
    for block in range(3):
        fence = timeline.signal()
        assert fence.value == block + 1
        transfer = pair.client.read(pair.buffer, "a/prefill/k.0", local_blocks=[block], remote_blocks=[block], fence=fence)
        assert transfer.wait(10).state == "succeeded"
        assert pair.target[block * BLOCK:(block + 1) * BLOCK] == pair.source[block * BLOCK:(block + 1) * BLOCK]


def test_one_that_was_not_signalled_yet_is_waited_for(start_sidecar):
    pair = Pair(start_sidecar)
    timeline = pair.client.timeline()
    first = timeline.signal()
    later = first._replace(value=first.value + 1)
    transfer = pair.client.read(pair.buffer, "a/prefill/k.0", local_blocks=[0], remote_blocks=[0], fence=later)
    assert transfer.poll().state == "queued"
    assert timeline.signal() == later
    assert transfer.wait(10).state == "succeeded"


def test_a_transfer_keeps_the_timeline_of_its_fence(start_sidecar):
    pair = Pair(start_sidecar)
    timeline = pair.client.timeline()
    kept = weakref.ref(timeline)
    fence = timeline.signal()
    later = fence._replace(value=fence.value + 1)
    transfer = pair.client.read(pair.buffer, "a/prefill/k.0", local_blocks=[0], remote_blocks=[0], fence=later, deadline=20)
    del timeline, fence, later
    gc.collect()
    assert transfer.poll().state == "queued"
    kept().signal()
    assert transfer.wait(10).state == "succeeded"
    del transfer
    gc.collect()
    assert kept() is None


def test_of_no_gpu_streams_do_not_signal(client):
    timeline = client.timeline()
    with pytest.raises(gantry.Error) as error:
        timeline.signal(0)
    assert (error.value.code, error.value.field) == ("invalid_argument", "stream")
    for wrong in (-1, "0", 2**31, object()):
        with pytest.raises(gantry.Error) as error:
            client.timeline(wrong)
        assert (error.value.code, error.value.field) == ("invalid_argument", "device"), wrong


def test_its_buffer_is_nobody_elses(client):
    client.timeline().signal()
    timeline = client.timeline()
    buffers = client.request("GET", "/v1/buffers?workload=w")["buffers"]
    mine = [each for each in buffers if each["name"].startswith("gantry.timeline-")]
    assert mine and all(each["access"] == [] for each in mine), buffers
    del timeline
