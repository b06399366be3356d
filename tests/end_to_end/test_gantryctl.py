"""gantryctl against real sidecars: what it shows, its exit codes, and that its benchmark cleans up after itself."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from conftest import BIN_DIR, ask
from gpu_workloads import gpus

GANTRYCTL = str(BIN_DIR / "gantryctl")
QUICK = ["--bytes", "16MiB", "--workers", "1", "-n", "2"]


def run(*words, **options):
    return subprocess.run([GANTRYCTL, *map(str, words)], capture_output=True, text=True, timeout=120, **options)


def processes_in(folder):
    """Command lines of the processes that name this folder."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and str(folder).encode() in (entry / "cmdline").read_bytes():
                found.append(entry.name)
        except OSError:
            pass
    return found


def wait_for(condition, seconds=15):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    return condition()


@pytest.fixture
def running_bench(folder, request):
    """A long benchmark in the background, and the API socket of the sidecar that it drives; a parameter is more options."""
    more = getattr(request, "param", [])
    process = subprocess.Popen([GANTRYCTL, "bench", "--bytes", "64MiB", "--workers", "1", "-n", "1000", *more],
                               env=os.environ | {"TMPDIR": str(folder)}, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)

    def first_transfer():
        for path in folder.glob("gantry-bench-*/local/api.sock"):
            try:
                if ask(path, "GET", "/v1/transfers")[1]["transfers"]:
                    return path
            except OSError:
                pass
        return None

    api_socket = wait_for(first_transfer, 30)
    assert api_socket, process.communicate(timeout=5)
    yield process, api_socket
    if process.poll() is None:
        process.terminate()
    process.communicate(timeout=20)


@pytest.mark.smoke
def test_status_of_a_healthy_sidecar(sidecar):
    shown = run("status", "--socket", sidecar.api_socket)
    assert shown.returncode == 0, shown.stderr
    assert "1 of 1 ready" in shown.stdout
    assert "path shm" in shown.stdout
    status = json.loads(run("--json", "status", "--socket", sidecar.api_socket).stdout)
    assert status["ready"] is True and status["name"] == "a"
    with open("/dev/full", "w") as full:
        unseen = subprocess.run([GANTRYCTL, "status", "--socket", sidecar.api_socket], stdout=full, stderr=subprocess.PIPE, text=True,
                                timeout=20)
    assert unseen.returncode == 1 and "standard output" in unseen.stderr, unseen


def test_the_environment_names_the_socket(sidecar):
    environment = os.environ | {"GANTRY_API_SOCKET": str(sidecar.api_socket)}
    assert run("workloads", env=environment).returncode == 0


@pytest.mark.parametrize("command", ["status", "buffers", "peers", "workloads", "transfers"])
def test_a_sidecar_that_is_gone_is_exit_code_3(sidecar, command):
    assert run(command, "--socket", sidecar.api_socket).returncode == 0
    sidecar.kill()
    gone = run(command, "--socket", sidecar.api_socket)
    assert gone.returncode == 3
    assert str(sidecar.api_socket) in gone.stderr


def test_doctor_ends_with_4_when_the_named_sidecar_is_gone(sidecar):
    report = run("doctor", "--json", "--socket", sidecar.api_socket)
    said = json.loads(report.stdout)
    assert (report.returncode == 0) == said["healthy"]
    findings = {finding["subject"]: finding for finding in said["findings"]}
    assert findings["sidecar"]["level"] == "ok"
    assert findings["path shm"]["level"] == "ok"
    for finding in said["findings"]:
        assert bool(finding["advice"]) == (finding["level"] != "ok"), finding
    sidecar.kill()
    assert run("doctor", "--socket", sidecar.api_socket).returncode == 4


@pytest.mark.skipif(next(Path("/sys/class").glob("infiniband/*"), None) is not None, reason="there is an RDMA device here")
def test_doctor_says_that_there_is_no_rdma_device_and_what_goes_without():
    said = {finding["subject"]: finding for finding in json.loads(run("doctor", "--json").stdout)["findings"]}
    assert said["RDMA"]["level"] == "ok" and "by tcp between nodes" in said["RDMA"]["said"], said["RDMA"]
    assert said["limit memlock"]["level"] == "ok" and "RDMA " not in "".join(said), said


@pytest.mark.parametrize("operation", ["read", "write"])
@pytest.mark.parametrize("order", ["random", "sequential"])
def test_bench_verifies_every_byte(folder, operation, order):
    measured = run("bench", "--json", "--op", operation, "--order", order, *QUICK,
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
        measured = run("bench", "--json", "--executor", executor, "--transport", transport, *QUICK,
                       env=os.environ | {"TMPDIR": str(folder)})
        assert measured.returncode == 0, measured.stderr
        report = json.loads(measured.stdout)
        assert (report["executor"], report["path"], report["verified"]) == (executor, transport, True), report


def test_bench_in_batches_moves_the_same(folder):
    report = json.loads(run("bench", "--json", "--batch", "10", "--block", "4KiB", "--bytes", "1MiB", "--workers", "1",
                            "-n", "1", env=os.environ | {"TMPDIR": str(folder)}).stdout)
    assert report["descriptors"] == 256 and report["batch"] == 10 and report["verified"] is True


@pytest.mark.parametrize("transport", ["shm", "ipc", "tcp"])
@pytest.mark.parametrize("operation", ["read", "write"])
@pytest.mark.parametrize("encoding", ["cbor", "json"])
def test_bench_of_many_buffers_verifies_every_byte(folder, gpus, transport, operation, encoding):
    measured = run("bench", "--json", "--transport", transport, "--op", operation, "--encoding", encoding, "--buffers", 16,
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


@pytest.mark.parametrize("transport", ["shm", "ipc"])
def test_bench_repeats_the_same_transfers_several_at_a_time(folder, gpus, transport):
    measured = run("bench", "--json", "--transport", transport, "--buffers", 4, "--batch", 20, "--inflight", 4, "--rounds", 6,
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
                                 if each["state"] == "succeeded"])[0]
    assert transfer["descriptors_in"] == 16 * 64


def test_bench_refuses_buffers_that_are_no_whole_blocks(folder):
    refused = run("bench", "--buffers", 3, *QUICK)
    assert refused.returncode == 2
    assert "--buffers" in refused.stderr


@pytest.mark.parametrize("how", [(), ("--busy-gaps",), ("--encoding", "json")])
def test_bench_latency_tells_the_stages(folder, how):
    measured = run("bench", "--latency", "--json", "--calls", "50", "--gap-ms", "2", "--workers", "1", *how,
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
    measured = run("bench", "--table", "--json", "--bytes", "1MiB", "--batches", "1,4", "--workers", "1",
                   env=os.environ | {"TMPDIR": str(folder)})
    assert measured.returncode == 0, measured.stderr
    rows = json.loads(measured.stdout)["rows"]
    cells = {(row["block"], row["batch"]) for row in rows}
    assert {(4096, 1), (4096, 4), (1 << 20, 1)} <= cells
    assert (1 << 20, 4) not in cells  # more than there is


def test_bench_without_a_sidecar_to_run_says_so(folder):
    failed = run("bench", "--sidecar", folder / "nothing", *QUICK)
    assert failed.returncode == 1
    assert "--sidecar" in failed.stderr


def test_lists_show_what_a_running_benchmark_does(running_bench):
    _, api_socket = running_bench
    at = ["--socket", api_socket]
    buffers = run("buffers", *at).stdout
    assert "bench-local" in buffers and "blocks" in buffers and "64 MiB" in buffers and "1024 x 64 KiB" in buffers
    assert "attached" in run("workloads", *at).stdout
    peers = run("peers", *at).stdout
    assert "remote" in peers and "up" in peers and "shm" in peers
    assert wait_for(lambda: any(each["state"] == "succeeded"
                                for each in ask(api_socket, "GET", "/v1/transfers")[1]["transfers"]))
    transfers = run("transfers", "--all", "--limit", "5", *at).stdout
    assert "bench-local" in transfers and "succeeded" in transfers and "100 %" in transfers


def test_metrics_count_what_a_running_benchmark_moves(running_bench):
    _, api_socket = running_bench

    def value_of(series):
        for line in ask(api_socket, "GET", "/metrics")[1].splitlines():
            if line.startswith(series + " "):
                return float(line.split()[-1])
        raise AssertionError(f"{series} is not exported")

    series = 'gantry_transfer_bytes_total{op="read",path="shm"}'
    assert wait_for(lambda: value_of(series) >= 2 * (64 << 20)), value_of(series)
    assert value_of('gantry_transfer_active_seconds_total{op="read",path="shm"}') > 0
    assert value_of('gantry_transfers_total{op="read",outcome="succeeded",path="shm"}') >= 2
    assert value_of("gantry_buffers") == 1
    assert value_of('gantry_peers{state="up"}') == 1
    assert value_of('gantry_workers{state="ready"}') == 1
    assert value_of("gantry_mapped_bytes") >= 64 << 20


def test_watch_prints_lines_where_there_is_no_terminal(running_bench):
    _, api_socket = running_bench
    watch = subprocess.Popen([GANTRYCTL, "transfers", "--watch", "--interval-ms", "50", "--socket", str(api_socket)],
                             stdout=subprocess.PIPE, text=True)
    try:
        line = watch.stdout.readline()
    finally:
        watch.terminate()
        watch.communicate(timeout=10)
    assert line.startswith("bench-local/") and "[" in line and "\x1b" not in line


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_benchmark_leaves_nothing(running_bench, folder, how):
    process, _ = running_bench
    assert processes_in(folder)
    process.send_signal(how)
    assert process.wait(20) == 130
    assert wait_for(lambda: not processes_in(folder))
    assert list(folder.iterdir()) == []


def test_a_killed_benchmark_leaves_no_process(running_bench, folder):
    process, _ = running_bench
    process.kill()
    process.wait(10)
    assert wait_for(lambda: not processes_in(folder)), processes_in(folder)
