"""Two sidecars and eight workloads on one node, checked byte by byte while all of them die at random.

GANTRY_SOAK_SECONDS sets how long (60), GANTRY_SOAK_SEED what happens; a failure names the seed.
"""

import os
import random

import pytest

from soak_world import FLAGS, World

SOAK_SECONDS = float(os.environ.get("GANTRY_SOAK_SECONDS", "60"))


@pytest.mark.parametrize("seconds", [
    pytest.param(5, id="seconds"),
    pytest.param(SOAK_SECONDS, id="minutes", marks=[pytest.mark.soak, pytest.mark.timeout(SOAK_SECONDS + 120)])])
def test_soak(start_sidecar, seconds):
    seed = int(os.environ.get("GANTRY_SOAK_SEED", random.randrange(1 << 32)))
    world = World([start_sidecar(name, workers=2, flags=FLAGS) for name in ("a", "b")], seed)
    try:
        world.live_for(seconds)
        world.end()
        print(f"seed {seed}: {dict(sorted(world.counts.items()))}")
        assert world.counts["succeeded"] > 20 * seconds, f"seed {seed}: {world.counts}"
        world.assert_nothing_is_left()
    finally:
        world.close()
