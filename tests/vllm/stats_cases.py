"""The connector's stats and its Prometheus series, as vLLM handles them."""

import re
import time
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import msgspec
from gantry_vllm.metrics import COUNTERS, HISTOGRAMS, GantryPromMetrics
from gantry_vllm.stats import COUNTS, LISTS, PATHS, GantryStats, Read, Recorder
from prometheus_client import Counter, Gauge, Histogram, generate_latest
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.stats import NixlPromMetrics

PAGE = Path(__file__).parents[2] / "connectors" / "vllm" / "README.md"
A_READ = Read(transfer=0.5, post=0.001, sidecar=0.25, bytes=8 << 20, blocks=7, descriptors=42, path="shm")


def recorded(*reads, ended=None, **counts):
    """The stats of these reads; `ended`: when each of them did, in seconds."""
    recorder = Recorder(recomputes=True)
    for read, when in zip(reads, ended or [time.time()] * len(reads)):
        with mock.patch("time.time", return_value=when):
            recorder.read(read)
    recorder.count(**counts)
    return recorder.take()


class Stats(unittest.TestCase):

    def test_a_new_one_is_empty_and_has_all_names(self):
        stats = GantryStats()
        self.assertTrue(stats.is_empty())
        self.assertEqual(stats.data.keys(), {*LISTS, *COUNTS})

    def test_a_failure_alone_is_not_empty(self):
        for name in COUNTS:
            self.assertFalse(recorded(**{name: 1}).is_empty(), name)

    def test_reset_forgets(self):
        stats = recorded(A_READ, num_reconnects=1)
        stats.reset()
        self.assertTrue(stats.is_empty())

    def test_workers_add_up(self):
        both = recorded(A_READ, num_failed_blocks=2).aggregate(recorded(A_READ, A_READ, num_failed_blocks=3))
        self.assertEqual(both.data["bytes_transferred"], [8 << 20] * 3)
        self.assertEqual(both.data["num_failed_blocks"], 5)

    def test_it_travels_between_processes(self):
        data = recorded(A_READ, num_reconnects=1).to_dict()
        self.assertEqual(GantryStats.of(msgspec.msgpack.decode(msgspec.msgpack.encode(data))).data, data)

    def test_two_loggers_do_not_add_to_the_same_lists(self):
        data = recorded(A_READ).to_dict()
        GantryStats.of(data).aggregate(recorded(A_READ))
        self.assertEqual(len(data["path"]), 1)

    def test_an_unknown_path_is_no_new_series(self):
        self.assertEqual(recorded(Read(1, 1, 1, 1, 1, 1, "made up")).data["path"], ["other"])

    def test_the_line_of_the_log(self):
        line = recorded(A_READ, A_READ, ended=[10.0, 20.0], num_failed_transfers=1, num_recomputed_reqs=1,
                        num_recomputed_blocks=7).reduce()
        self.assertEqual(line["Num successful transfers"], 2)
        self.assertEqual(line["Num by shm"], 2)
        self.assertNotIn("Num by tcp", line)
        self.assertEqual(line["Avg xfer time (ms)"], 500)
        self.assertEqual(line["Avg sidecar time (ms)"], 250)
        self.assertEqual(line["P90 post time (ms)"], 1)
        self.assertEqual(line["Avg MB per transfer"], 8)
        self.assertEqual(line["Throughput (MB/s)"], 16)
        self.assertEqual(line["Avg number of blocks"], 7)
        self.assertEqual(line["Num failed transfers"], 1)
        self.assertEqual(line["Num recomputed reqs"], 1)
        self.assertEqual(line["Num recomputed blocks"], 7)
        self.assertEqual(line["Num KV expired reqs"], 0)

    def test_reads_that_overlap_are_one_busy_time(self):
        line = recorded(A_READ, A_READ, ended=[10.0, 10.25]).reduce()
        self.assertAlmostEqual(line["Throughput (MB/s)"], 16 / 0.75, places=3)

    def test_a_line_of_failures_alone_has_all_numbers(self):
        line = recorded(num_failed_transfers=3).reduce()
        self.assertEqual((line["Num successful transfers"], line["Throughput (MB/s)"], line["Num failed transfers"]), (0, 0, 3))


class Recording(unittest.TestCase):

    def test_nothing_is_none_and_what_was_taken_is_not_told_again(self):
        recorder = Recorder(recomputes=True)
        self.assertIsNone(recorder.take())
        recorder.read(A_READ)
        self.assertIsNotNone(recorder.take())
        self.assertIsNone(recorder.take())

    def test_only_a_policy_that_computes_again_counts_blocks_computed_again(self):
        for recomputes, again in ((True, 5), (False, 0)):
            recorder = Recorder(recomputes)
            recorder.failed_read(failed=2, again=5)
            data = recorder.take().data
            self.assertEqual((data["num_failed_transfers"], data["num_failed_blocks"]), (1, 2))
            self.assertEqual((data["num_recomputed_reqs"], data["num_recomputed_blocks"]), (int(recomputes), again))


class Prometheus(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        labels = {0: ["tiny", "0"], 1: ["tiny", "1"]}
        cls.metrics = GantryPromMetrics(SimpleNamespace(kv_transfer_config=None),
                                        {Gauge: Gauge, Counter: Counter, Histogram: Histogram}, ["model_name", "engine"], labels)
        cls.at_the_start = cls.series()
        cls.metrics.observe(recorded(A_READ, num_failed_blocks=3, num_kv_expired_reqs=2).to_dict(), 1)
        cls.later = cls.series()

    @staticmethod
    def series():
        lines = [line.rsplit(" ", 1) for line in generate_latest().decode().splitlines() if line.startswith("vllm:gantry_")]
        return {name: float(value) for name, value in lines if "_created" not in name}

    def value(self, name, labels='engine="1",model_name="tiny"'):
        return self.later[f"{name}{{{labels}}}"]

    def test_all_series_are_there_from_the_start(self):
        for name in [f"{name}_count" for _, name, _, _ in HISTOGRAMS] + [f"{name}_total" for _, name, _ in COUNTERS]:
            for engine in "01":
                self.assertEqual(self.at_the_start[f'{name}{{engine="{engine}",model_name="tiny"}}'], 0)
        for path in PATHS:
            self.assertEqual(self.at_the_start[f'vllm:gantry_path_bytes_total{{engine="0",model_name="tiny",path="{path}"}}'], 0)
        self.assertEqual(self.at_the_start.keys(), self.later.keys())

    def test_the_page_has_each_metric_with_its_type_and_labels(self):
        page = PAGE.read_text()
        rows = {name: (kind, set(re.findall(r"`(\w+)`", labels)))
                for name, kind, labels in re.findall(r"^\| `(vllm:\w+)` \| (\w+) \|([^|]*)\|", page, re.MULTILINE)}
        kinds = {name + ("_total" if kind == "counter" else ""): (kind, set()) for name, kind in re.findall(
            r"^# TYPE (vllm:gantry_\w+?)(?:_total)? (counter|histogram)$", generate_latest().decode(), re.MULTILINE)}
        for series in self.later:
            base = re.sub(r"_(bucket|count|sum)$", "", series.split("{")[0])
            kinds[base][1].update(set(re.findall(r'(\w+)="', series)) - {"le", "engine", "model_name"})
        self.assertEqual(rows, kinds)

    def test_nixls_metrics_are_there_but_for_those_that_the_page_explains(self):
        NixlPromMetrics(SimpleNamespace(kv_transfer_config=None), {Gauge: Gauge, Counter: Counter, Histogram: Histogram},
                        ["model_name", "engine"], {0: ["tiny", "0"]})
        kinds = {prefix: set(re.findall(rf"^# TYPE vllm:{prefix}_(\w+) (counter|histogram)$", generate_latest().decode(), re.MULTILINE))
                 for prefix in ("nixl", "gantry")}
        missing = {name.removesuffix("_total") for name, _ in kinds["nixl"] - kinds["gantry"]}
        self.assertGreater(len(kinds["nixl"]), 6)
        self.assertEqual(missing, {"num_notifications_after_expiry"})
        self.assertIn("`vllm:nixl_num_notifications_after_expiry` has no counterpart", PAGE.read_text())

    def test_what_was_observed_is_counted_for_its_engine_alone(self):
        self.assertEqual(self.value("vllm:gantry_xfer_time_seconds_sum"), 0.5)
        self.assertEqual(self.value("vllm:gantry_sidecar_time_seconds_sum"), 0.25)
        self.assertEqual(self.value("vllm:gantry_post_time_seconds_sum"), 0.001)
        self.assertEqual(self.value("vllm:gantry_bytes_transferred_sum"), 8 << 20)
        self.assertEqual(self.value("vllm:gantry_num_blocks_sum"), 7)
        self.assertEqual(self.value("vllm:gantry_num_descriptors_sum"), 42)
        self.assertEqual(self.value("vllm:gantry_num_failed_blocks_total"), 3)
        self.assertEqual(self.value("vllm:gantry_num_kv_expired_reqs_total"), 2)
        self.assertEqual(self.value("vllm:gantry_path_bytes_total", 'engine="1",model_name="tiny",path="shm"'), 8 << 20)
        self.assertEqual(self.value("vllm:gantry_path_transfers_total", 'engine="1",model_name="tiny",path="tcp"'), 0)
        self.assertFalse([name for name, value in self.later.items() if 'engine="0"' in name and value])
