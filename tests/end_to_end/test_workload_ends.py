"""Why workloads end is counted: gantry_workload_ends_total has each of its reasons."""

import pytest

from conftest import wait_for
from workloads import metric

REASONS = ("detached", "died", "expired", "deleted", "other")


def ends(sidecar):
    return {reason: metric(sidecar, f'gantry_workload_ends_total{{reason="{reason}"}}') for reason in REASONS}


def close(sidecar, start_workload):
    start_workload(sidecar, "w")
    assert sidecar.ask("DELETE", "/v1/workloads/w")[0] in (200, 204)


def expire(sidecar, start_workload):
    status, answer = sidecar.ask("PUT", "/v1/workloads/w", {"engine_id": "e", "ttl_ms": 300})
    assert status in (200, 201), answer


def replace(sidecar, start_workload):
    for engine in ("one", "another"):
        status, answer = sidecar.ask("PUT", "/v1/workloads/w", {"engine_id": engine, "ttl_ms": 60_000})
        assert status in (200, 201), answer


# A process that is killed closes its socket first, so its end is mostly seen as that.
@pytest.mark.parametrize("end, reasons", [
    (close, {"deleted"}), (expire, {"expired"}), (replace, {"other"}),
    (lambda sidecar, start_workload: start_workload(sidecar, "w").kill(), {"detached", "died"})],
    ids=["deleted", "expired", "replaced", "killed"])
def test_the_reason_is_counted(sidecar, start_workload, end, reasons):
    assert not any(ends(sidecar).values())
    end(sidecar, start_workload)
    wait_for(lambda: any(ends(sidecar).values()), 5, "the end to be counted")
    counted = {reason for reason, count in ends(sidecar).items() if count}
    assert len(counted) == 1 and counted <= reasons
