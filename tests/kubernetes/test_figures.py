"""How long pods wait for Gantry on a node, and what its plugin costs at rest: figures for docs/benchmarks.md, bounded loosely."""

import os
import statistics
import time

import pytest

from cluster import SIDECAR, PLUGIN_LABELS, engine_spec, status_of, wait_for

RUNS = 7


def seconds_to_start(cluster, workloads, namespace, name, **pod):
    """From the creation of a pod until its sidecar has started, which is when the workload's container may be created."""
    workloads.start(namespace, {name: pod})
    created = time.monotonic()
    def started():
        status = status_of(cluster.pod(namespace, name), SIDECAR)
        return status is not None and status.get("started")
    wait_for(started, 30, lambda: cluster.story_of(namespace))
    return time.monotonic() - created


@pytest.mark.parametrize("period", [1, 2])
def test_from_a_pods_creation_to_its_sidecars_start(cluster, workloads, record, period):
    """By the startup probe's period, whose default is 2."""
    namespace = workloads.namespace()
    runs = []
    for run in range(RUNS):
        name = f"pod-{run}"
        runs.append(seconds_to_start(cluster, workloads, namespace, name, gantry={"probes": {"startup": {"periodSeconds": period}}}))
        cluster.delete_pod(namespace, name)
    record(f"pod_to_started_sidecar_median_{period}_s_probe", statistics.median(runs), "s")
    record(f"pod_to_started_sidecar_max_{period}_s_probe", max(runs), "s")
    assert max(runs) < 15, runs


def test_what_binding_a_slot_takes(cluster, workloads, record, fake_gpus):
    namespace = workloads.namespace()
    before = _prestart(cluster)
    for run in range(RUNS):
        workloads.start(namespace, {f"pod-{run}": {"spec": engine_spec(gpus=1 if run < 4 else 0)}})
        cluster.wait_until_ready(namespace, f"app=pod-{run}")
    count, seconds = (now - then for now, then in zip(_prestart(cluster), before))
    assert count == RUNS
    record("prestart_mean", seconds / count, "s")
    assert seconds / count < 1


def _prestart(cluster):
    metrics = cluster.plugin_metrics()
    return [metrics[f'gantry_dp_prestart_duration_seconds_{part}{{outcome="succeeded"}}'] for part in ("count", "sum")]


def test_what_the_plugin_takes_at_rest(cluster, installed, node_files, record):
    process = node_files.process(cluster.plugin(), "device-plugin")

    def processor_seconds():
        fields = (process / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    start = processor_seconds()
    time.sleep(10)
    record("plugin_processor_at_rest", (processor_seconds() - start) / 10 * 100, "% of one")
    resident = int((process / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    record("plugin_resident_at_rest", resident / (1 << 20), "MiB")
    assert resident < 64 << 20
    assert processor_seconds() - start < 0.5
