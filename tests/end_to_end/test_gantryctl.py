"""gantryctl against real sidecars: what it shows, and its exit codes."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from bench_runs import running_bench
from conftest import BIN_DIR, ask
from workloads import wait_for

GANTRYCTL = str(BIN_DIR / "gantryctl")


def run(*words, **options):
    return subprocess.run([GANTRYCTL, *map(str, words)], capture_output=True, text=True, timeout=120, **options)


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


def test_lists_show_what_a_running_benchmark_does(running_bench):
    _, api_socket = running_bench
    at = ["--socket", api_socket]
    buffers = run("buffers", *at).stdout
    assert "bench-local" in buffers and "blocks" in buffers and "64 MiB" in buffers and "1024 x 64 KiB" in buffers
    assert "attached" in run("workloads", *at).stdout
    peers = run("peers", *at).stdout
    assert "remote" in peers and "up" in peers and "shm" in peers
    wait_for(lambda: any(each["state"] == "succeeded" for each in ask(api_socket, "GET", "/v1/transfers")[1]["transfers"]), 15)
    transfers = run("transfers", "--all", "--limit", "5", *at).stdout
    assert "bench-local" in transfers and "succeeded" in transfers and "100 %" in transfers


def test_a_workloads_name_is_escaped_in_requests(running_bench):
    _, api_socket = running_bench
    for command in ("buffers", "transfers"):
        done = run(command, "--workload", "a+b=c", "--socket", api_socket)
        assert "no workload 'a+b=c'" in done.stderr, (command, done.stdout, done.stderr)


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
