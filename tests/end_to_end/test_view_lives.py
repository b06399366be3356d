"""Views of one life of a workload: another life of it is refused, at the view and at each transfer."""

import pytest

from python_client_parts import BLOCK, MIB, Pair, code_of, gantry, pair  # noqa: F401


def new_life(pair, with_buffers):
    pair.source_client.close()
    client = gantry.Client(pair.a.run_dir, "prefill")
    arena = client.arena(MIB)
    return client, arena, client.register("k.0", arena, layout=gantry.Layout(BLOCK)) if with_buffers else None


def test_the_life_that_is_there_is_viewed(pair):
    view = pair.client.view(f"prefill@{pair.source_client.generation}", peer="a")
    details = view.details()
    assert (details["remote_workload"], details["remote_generation"]) == ("prefill", pair.source_client.generation)
    pair.client.read(view, local_blocks=[1], remote_blocks=[2]).wait(5)
    assert pair.target[BLOCK:2 * BLOCK] == pair.source[2 * BLOCK:3 * BLOCK]
    assert code_of(pair.client.view, "prefill@0123456789abcdef", peer="a") == "stale_generation"
    for wrong in ("prefill@", "prefill@0", "prefill@xyz", "pre/fill@1"):
        assert code_of(pair.client.view, wrong, peer="a") == "invalid_argument"


@pytest.mark.parametrize("with_buffers", [True, False])
def test_another_life_is_refused_by_the_view_and_its_transfers(pair, with_buffers):
    name = f"prefill@{pair.source_client.generation}"
    fenced, plain = pair.client.view(name, peer="a"), pair.client.view("prefill", peer="a")
    pair.client.read(fenced, local_blocks=[1], remote_blocks=[2]).wait(5)
    kept = new_life(pair, with_buffers)
    for _ in range(2):
        assert code_of(pair.client.read, fenced, local_blocks=[1], remote_blocks=[2]) == "stale_generation"
    assert code_of(pair.client.view, name, peer="a") == "stale_generation"
    if with_buffers:
        pair.client.read(plain, local_blocks=[1], remote_blocks=[2]).wait(5)
    kept[0].close()
    assert code_of(pair.client.read, fenced, local_blocks=[1], remote_blocks=[2]) == "unregistered"


def test_another_life_at_the_same_sidecar_is_refused(sidecar):
    with gantry.Client(sidecar.run_dir, "decode") as reader:
        _local = reader.register("k", reader.arena(MIB), layout=gantry.Layout(BLOCK))
        old = gantry.Client(sidecar.run_dir, "prefill")
        _first = old.register("k", old.arena(MIB), layout=gantry.Layout(BLOCK))
        name = f"prefill@{old.generation}"
        view = reader.view(name)
        reader.read(view, local_blocks=[0], remote_blocks=[1]).wait(5)
        old.close()
        with gantry.Client(sidecar.run_dir, "prefill") as new:
            assert code_of(reader.read, view, local_blocks=[0], remote_blocks=[1]) == "stale_generation"
            _second = new.register("k", new.arena(MIB), layout=gantry.Layout(BLOCK))
            assert code_of(reader.read, view, local_blocks=[0], remote_blocks=[1]) == "stale_generation"
            assert code_of(reader.view, name) == "stale_generation"
