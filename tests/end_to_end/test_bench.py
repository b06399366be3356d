"""gantry-bench: what it measures and verifies, its exit codes, and that it cleans up after itself."""

import json
import os
import signal

import pytest

from bench_runs import QUICK, bench, processes_in, running_bench
from conftest import ask
from gpu_workloads import gpus
from workloads import wait_for


@pytest.mark.parametrize("operation", ["read", "write"])
@pytest.mark.parametrize("order", ["random", "sequential"])
def test_bench_verifies_every_byte(folder, operation, order):
    measured = bench("--json", "--op", operation, "--order", order, *QUICK,
                     env=os.environ | {"TMPDIR": str(folder)})
    assert measured.returncode == 0, measured.stderr
    report = json.loads(measured.stdout)
    assert report["verified"] is True
    assert report["path"] == "shm"
    assert report["descriptors"] == 256
    assert report["gbps"] > 0 and report["ceiling_gbps"] > 0
    assert report["ratio"] == pytest.approx(report["gbps"] / report["ceiling_gbps"])
    assert list(folder.iterdir()) == []
    if order == "sequential":
        assert report["descriptors_merged"] == 1


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_bench_of_what_the_peer_executes(folder, transport):
    for executor in ("self", "peer"):
        measured = bench("--json", "--executor", executor, "--transport", transport, *QUICK,
                         env=os.environ | {"TMPDIR": str(folder)})
        assert measured.returncode == 0, measured.stderr
        report = json.loads(measured.stdout)
        assert (report["executor"], report["path"], report["verified"]) == (executor, transport, True), report


def test_bench_in_batches_moves_the_same(folder):
    report = json.loads(bench("--json", "--batch", "10", "--block", "4KiB", "--bytes", "1MiB", "--workers", "1",
                              "-n", "1", env=os.environ | {"TMPDIR": str(folder)}).stdout)
    assert report["descriptors"] == 256 and report["batch"] == 10 and report["verified"] is True


@pytest.mark.parametrize("transport", ["shm", "ipc", "tcp"])
@pytest.mark.parametrize("operation", ["read", "write"])
@pytest.mark.parametrize("encoding", ["cbor", "json"])
def test_bench_of_many_buffers_verifies_every_byte(folder, gpus, transport, operation, encoding):
    measured = bench("--json", "--transport", transport, "--op", operation, "--encoding", encoding, "--buffers", 16,
                     "--block", "32KiB", *QUICK, env=os.environ | {"TMPDIR": str(folder)})
    assert measured.returncode == 0, measured.stderr
    report = json.loads(measured.stdout)
    assert (report["path"], report["encoding"], report["verified"]) == (transport, encoding, True)
    assert (report["buffers"], report["blocks_per_buffer"], report["batch"], report["transfers"]) == (16, 32, 32, 1)
    assert report["descriptors"] == 512
    assert report["rest_over_engine"] > 1  # the sidecar's time is within the caller's
    for clock in ("engine", "moving"):
        assert report[f"{clock}_ratio"] == pytest.approx(report[f"{clock}_gbps"] / report["ceiling_gbps"])
    assert report["moving_gbps"] > report["engine_gbps"] > report["gbps"] > 0
    assert ("copy_costs" in report) == (transport == "ipc")
    assert all(set(costs) >= {"block_ns", "kernel_mb_s"} for costs in report.get("copy_costs", {}).values())


@pytest.mark.parametrize("transport", ["shm", "ipc"])
def test_bench_repeats_the_same_transfers_several_at_a_time(folder, gpus, transport):
    measured = bench("--json", "--transport", transport, "--buffers", 4, "--batch", 20, "--inflight", 4, "--rounds", 6,
                     *QUICK, env=os.environ | {"TMPDIR": str(folder)})
    assert measured.returncode == 0, measured.stderr
    report = json.loads(measured.stdout)
    assert report["transfers"] == 6 * 4 and report["descriptors"] == 6 * 256  # 64 ids in each buffer
    assert report["verified"] is True
    moved = report["bytes"] * report["rounds"]
    assert report["gbps"] == pytest.approx(moved / report["stages_us"]["wall"] / 1e3)


@pytest.mark.parametrize("running_bench", [["--buffers", "16", "--encoding", "json"]], indirect=True)
def test_the_buffers_of_a_benchmark_are_as_many_as_asked_for(running_bench):
    _, api_socket = running_bench
    buffers = ask(api_socket, "GET", "/v1/buffers")[1]["buffers"]
    assert {buffer["name"] for buffer in buffers} == {f"blocks-{i}" for i in range(16)}
    assert {buffer["layout"]["blocks"] for buffer in buffers} == {64}
    transfer = wait_for(lambda: [each for each in ask(api_socket, "GET", "/v1/transfers")[1]["transfers"]
                                 if each["state"] == "succeeded"], 15)[0]
    assert transfer["descriptors_in"] == 16 * 64


def test_bench_refuses_buffers_that_are_no_whole_blocks(folder):
    refused = bench("--buffers", 3, *QUICK)
    assert refused.returncode == 2
    assert "--buffers" in refused.stderr


@pytest.mark.parametrize("how", [(), ("--busy-gaps",), ("--encoding", "json")])
def test_bench_latency_tells_the_stages(folder, how):
    measured = bench("--latency", "--json", "--calls", "50", "--gap-ms", "2", "--workers", "1", *how,
                     env=os.environ | {"TMPDIR": str(folder)})
    assert measured.returncode == 0, measured.stderr
    report = json.loads(measured.stdout)
    assert report["encoding"] == ("json" if "json" in how else "cbor")
    back_to_back, paced = report["loops"]
    assert paced["busy_gaps"] == ("--busy-gaps" in how)
    assert back_to_back["gap_ms"] == 0 and paced["gap_ms"] == 2
    for loop in (back_to_back, paced):
        assert loop["calls"] == 50
        quantiles = loop["latency_us"]
        assert 0 < quantiles["p50"] <= quantiles["p90"] <= quantiles["p99"] <= quantiles["p999"]
        assert set(loop["stages_us"]) == {"http", "admit", "queue", "move", "engine"}
        assert set(loop["alone_us"]) == {"echo"} and loop["alone_us"]["echo"]["p50"] > 0


def test_bench_table_has_the_grid(folder):
    measured = bench("--table", "--json", "--bytes", "1MiB", "--batches", "1,4", "--workers", "1",
                     env=os.environ | {"TMPDIR": str(folder)})
    assert measured.returncode == 0, measured.stderr
    rows = json.loads(measured.stdout)["rows"]
    cells = {(row["block"], row["batch"]) for row in rows}
    assert {(4096, 1), (4096, 4), (1 << 20, 1)} <= cells
    assert (1 << 20, 4) not in cells  # more than there is


def test_bench_without_a_sidecar_to_run_says_so(folder):
    failed = bench("--sidecar", folder / "nothing", *QUICK)
    assert failed.returncode == 1
    assert failed.stderr.startswith("gantry-bench: there is no sidecar to run") and "--sidecar" in failed.stderr


@pytest.mark.parametrize("words, says", [
    (["--bytes", "abc"], ["--bytes: 'abc'", "64KiB"]),
    (["--block", "-5"], ["--block: '-5'"]),
    (["--batches", "1,,2"], ["--batches: ''"]),
    (["--batch", "-1"], ["--batch", "-1"]),
    (["status"], ["not expected: status"]),
])
def test_bench_says_which_word_is_wrong(words, says):
    refused = bench(*words)
    assert refused.returncode == 2
    for part in says:
        assert part in refused.stderr, refused.stderr


def test_metrics_count_what_a_running_benchmark_moves(running_bench):
    _, api_socket = running_bench

    def value_of(series):
        for line in ask(api_socket, "GET", "/metrics")[1].splitlines():
            if line.startswith(series + " "):
                return float(line.split()[-1])
        raise AssertionError(f"{series} is not exported")

    series = 'gantry_transfer_bytes_total{op="read",path="shm"}'
    wait_for(lambda: value_of(series) >= 2 * (64 << 20), 15, lambda: f"{value_of(series)} bytes of {2 * (64 << 20)}")
    assert value_of('gantry_transfer_active_seconds_total{op="read",path="shm"}') > 0
    assert value_of('gantry_transfers_total{op="read",outcome="succeeded",path="shm"}') >= 2
    assert value_of("gantry_buffers") == 1
    assert value_of('gantry_peers{state="up"}') == 1
    assert value_of('gantry_workers{state="ready"}') == 1
    assert value_of("gantry_mapped_bytes") >= 64 << 20


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_benchmark_leaves_nothing(running_bench, folder, how):
    process, _ = running_bench
    assert processes_in(folder)
    process.send_signal(how)
    assert process.wait(20) == 130
    wait_for(lambda: not processes_in(folder), 15, lambda: f"the end of {processes_in(folder)}")
    assert list(folder.iterdir()) == []


def test_a_killed_benchmark_leaves_no_process(running_bench, folder):
    process, _ = running_bench
    process.kill()
    process.wait(10)
    wait_for(lambda: not processes_in(folder), 15, lambda: f"the end of {processes_in(folder)}")
