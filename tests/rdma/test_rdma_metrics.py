"""What sidecars export of RDMA under load, as a Prometheus would scrape it. Recorded where GANTRY_TEST_RECORD names a folder:
recorded_metrics_test.py asks a real Prometheus about it, outside of the guest."""

import os
from pathlib import Path

from rdma_scene import MiB, assert_moved, folder, metric, new_memory, rdma_scene, start_sidecar, start_workload  # noqa: F401

SIZE = 4 * MiB
SCRAPES = 8


def record(sidecar, number):
    text = sidecar.ask("GET", "/metrics")[1]
    if to := os.environ.get("GANTRY_TEST_RECORD"):
        Path(to, f"{sidecar.name}-{number}.txt").write_text(text)
    return text


def moved(sidecar):
    """Bytes by operation, over all devices."""
    lines = sidecar.ask("GET", "/metrics")[1].splitlines()
    return {op: sum(float(line.split()[-1]) for line in lines if line.startswith("gantry_rdma_bytes_total{") and f'op="{op}"' in line)
            for op in ("read", "write")}


def test_every_scrape_of_a_load_tells_more(rdma_scene):  # noqa: F811
    scene = rdma_scene(size=SIZE)
    before = moved(scene.a)
    for scrape in range(SCRAPES):
        for operation in ("read", "write"):
            assert_moved(scene.move(operation))
        after = moved(scene.a)
        assert all(after[operation] == before[operation] + SIZE for operation in after), (before, after)
        before = after
        for sidecar in (scene.a, scene.b):
            assert "gantry_rdma_queue_pairs{" in record(sidecar, scrape)
