"""Why workloads end is counted: gantry_workload_ends_total has each of its reasons."""

import pytest

from workloads import metric, start_workload, wait_for  # noqa: F401

REASONS = ("detached", "died", "expired", "deleted", "other")


def ends(sidecar):
    return {reason: metric(sidecar, f'gantry_workload_ends_total{{reason="{reason}"}}') for reason in REASONS}


def delete(sidecar, start_workload):  # noqa: F811
    start_workload(sidecar, "w")
    assert sidecar.ask("DELETE", "/v1/workloads/w")[0] in (200, 204)


def expire(sidecar, _):
    status, answer = sidecar.ask("PUT", "/v1/workloads/w", {"engine_id": "e", "ttl_ms": 300})
    assert status in (200, 201), answer


def replace(sidecar, _):
    for engine in ("one", "another"):
        status, answer = sidecar.ask("PUT", "/v1/workloads/w", {"engine_id": engine, "ttl_ms": 60_000})
        assert status in (200, 201), answer


# A process that is killed closes its socket first, so its end is mostly seen as that.
def kill(sidecar, start_workload):  # noqa: F811
    start_workload(sidecar, "w").kill()


@pytest.mark.parametrize("end, reasons", [
    (delete, {"deleted"}), (expire, {"expired"}), (replace, {"other"}),
    (kill, {"detached", "died"})])
def test_the_reason_is_counted(sidecar, start_workload, end, reasons):  # noqa: F811
    assert not any(ends(sidecar).values())
    end(sidecar, start_workload)
    wait_for(lambda: any(ends(sidecar).values()), 5, "the end to be counted")
    counted = {reason for reason, count in ends(sidecar).items() if count}
    assert len(counted) == 1 and counted <= reasons
