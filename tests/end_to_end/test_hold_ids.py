"""Ids of holds are any text, as engines choose the ids of their requests."""

import pytest

from python_client_parts import BLOCK, Pair, code_of, gantry, pair  # noqa: F401

LONG = "x" * 512


@pytest.mark.parametrize("id", ["cmpl-4f/0@host:1", "with blanks  and\ttabs\n", "50%2F?a=b&c#d", "Zürich 東京 🦀", ".", "..", "//", LONG,
                                "é" * 256, '"quoted"\\'], ids=ascii)
def test_any_text_is_an_id(pair, id):
    hold = pair.source_client.hold(id, gantry.HoldGroup(["k.0"], blocks=[3]), ttl=30, expected_consumers=1)
    hold.extend(20)
    assert [one["id"] for one in pair.source_client.request("GET", "/v1/holds?workload=prefill")["holds"]] == [id]
    pair.client.read(pair.buffer, "a/prefill/k.0", local_blocks=[1], remote_blocks=[3], hold=id).wait(5)
    ended = next(event for event in pair.source_client.events(timeout=10) if event.type == "hold")
    assert ended.subject == id and hold.release()


def test_what_is_no_id_is_refused(pair):
    groups = gantry.HoldGroup(["k.0"])
    for id in ("", LONG + "x", "é" * 257):
        assert code_of(pair.source_client.hold, id, groups, 5) == "invalid_argument"
        assert code_of(pair.client.read, pair.buffer, "a/prefill/k.0", local_blocks=[1], remote_blocks=[3],
                       hold=id) == "invalid_argument"
    body = {"workload": "prefill", "groups": [{"buffers": ["k.0"]}], "ttl_ms": 1000}
    assert code_of(pair.source_client.request, "PUT", "/v1/holds/%FF", body) == "invalid_argument"
