"""A real Prometheus scrapes what sidecars with RDMA devices exported under load (test_rdma_metrics.py), on the host and after the
guest, and answers what dashboards and alerts ask about RDMA. GANTRY_TEST_RECORD names the folder of the records."""

import os
import re
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "monitoring"))
from monitoring_files import RDMA_QUESTIONS, alerts  # noqa: E402
from prometheus_server import SCRAPE_SECONDS, Prometheus, questions  # noqa: E402
from replayed_metrics import Replay, records  # noqa: E402

PODS = {"a": ("chat", "prefill-0"), "b": ("chat", "decode-0")}
SECONDS_EACH = 2 * SCRAPE_SECONDS  # of a record, so that none is missed
# What the load makes larger than zero.
MOVING = ["gantry-transfers: Ports, A", "gantry-transfers: Throughput by device, A", "gantry-transfers: Chunks registered, A",
          "gantry-transfers: Queue pairs and connections, A"]


def recorded(name):
    """The texts of one sidecar, in order."""
    assert "GANTRY_TEST_RECORD" in os.environ, "nothing was recorded: run this by make test-rdma-full"
    return records(os.environ["GANTRY_TEST_RECORD"], name)


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory):
    """That has scraped all records."""
    replays = [Replay(recorded(name), SECONDS_EACH) for name in PODS]
    server = Prometheus(tmp_path_factory.mktemp("prometheus"))
    try:
        for replay, pod in zip(replays, PODS.values()):
            server.add_target(replay.address, *pod)
        deadline = time.monotonic() + 60
        while not all(replay.at_the_last() for replay in replays):
            assert time.monotonic() < deadline, "Prometheus does not scrape"
            time.sleep(0.1)
        yield server
    finally:
        server.close()
        for replay in replays:
            replay.close()


def asked():
    return {name: expression for name, expression in questions().items()
            if any(re.fullmatch(pattern, name) for pattern in RDMA_QUESTIONS)}


def test_every_expression_about_rdma_has_an_answer(prometheus):
    assert {name for name in asked() if name.startswith("GantryRdma")} == {name for name in alerts() if name.startswith("GantryRdma")}
    assert [name for name, expression in asked().items() if not prometheus.values(expression)] == []


def test_what_the_load_does_is_seen(prometheus):
    assert [name for name in MOVING if not any(value > 0 for value in prometheus.values(asked()[name]))] == []
    # Every port was up.
    assert set(prometheus.values('gantry_rdma_port_active{device!="none"}')) == {1.0}


def test_the_rules_about_rdma_are_evaluated_and_none_fires(prometheus):
    rules = {rule["name"]: rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]
             if rule["name"].startswith("GantryRdma")}
    assert {name: (rule["health"], rule.get("lastError"), rule["alerts"]) for name, rule in rules.items()} == {
        name: ("ok", None, []) for name in alerts() if name.startswith("GantryRdma")}


def test_a_metric_that_nobody_exports_is_silent(prometheus):
    """Or else the tests above could not fail."""
    known = asked()["gantry-transfers: Chunks registered, A"]
    assert prometheus.values(known)
    assert not prometheus.values(known.replace("gantry_chunks", "gantry_chunks_registered"))
