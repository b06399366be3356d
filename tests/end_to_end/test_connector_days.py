"""The days of connectors, as tests/replay/replay runs them: every rank a process, every byte compared.

The quick variants run each day once, both ways; those marked soak have more requests.
"""

import os
import subprocess
import sys

import pytest

from conftest import ROOT

sys.path.insert(0, str(ROOT / "tests" / "replay"))
from connector_days import DAYS  # noqa: E402
from engines import WAYS, Day, Wrong  # noqa: E402
from paged_cache import Geometry  # noqa: E402

SOAK_REQUESTS = int(os.environ.get("GANTRY_REPLAY_REQUESTS", "30"))


@pytest.mark.parametrize("requests", [
    pytest.param(2, id="few"),
    pytest.param(SOAK_REQUESTS, id="many", marks=[pytest.mark.soak, pytest.mark.timeout(120 + 5 * SOAK_REQUESTS)])])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("day", DAYS)
def test_day(folder, day, way, requests):
    with Day(folder, way, requests) as today:
        DAYS[day](today)
        print(today.row())


def test_a_day_with_a_wrong_byte_is_not_passed(folder):
    """Behind the back of the connector one byte changes: of a block that was read, then of a guard."""
    geometry = Geometry(layers=2, kinds=("k", "v"), blocks=64, block_bytes=128)
    with Day(folder, "shm") as today:
        engine = today.engine(today.d, "decode", geometry)
        cache = engine.caches[0]
        cache.compute([3, 4, 9])
        today.assert_nothing_is_left()
        for offset in (geometry.offset(1) + 4 * 128 + 5, geometry.offset(2) - 1, geometry.bytes - 1):
            cache.memory.map[offset] ^= 1
            with pytest.raises(AssertionError):
                today.assert_nothing_is_left()
            cache.memory.map[offset] ^= 1
        cache.memory.map[geometry.offset(1) + 4 * 128 + 5] ^= 1
        assert cache.differs_at([4, 9]) == [geometry.offset(1) + 4 * 128] and cache.differs_at([3, 9]) == []


def test_a_step_that_takes_too_long_is_wrong(folder):
    with Day(folder, "shm") as today, pytest.raises(Wrong):
        today.until(lambda: False, "nothing", seconds=0.1)


def test_the_program():
    """Its table has a line for the day, and it says which days there are."""
    replay = ROOT / "tests" / "replay" / "replay"
    done = subprocess.run([sys.executable, replay, "tp-replicated", "--way", "shm", "--requests", "1"], capture_output=True, text=True,
                          timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["day", "tp-replicated"]
    refused = subprocess.run([sys.executable, replay, "none"], capture_output=True, text=True, timeout=100)
    assert refused.returncode == 2 and "vllm-pull" in refused.stderr
