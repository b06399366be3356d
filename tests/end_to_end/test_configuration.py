"""The settings of the sidecar: documented, printed, and refused when they are wrong."""

import concurrent.futures
import re
import subprocess
from pathlib import Path

import grpc
import pytest

from conftest import BIN_DIR, ROOT

SIDECAR = BIN_DIR / "gantry-sidecar"
NOT_SETTINGS = {"--help", "--version", "--print-config"}


def run(*flags, env=None):
    return subprocess.run([SIDECAR, *flags], capture_output=True, text=True, timeout=20, env=env)


def settings():
    return set(re.findall(r"^\s+(--[a-z-]+)", run("--help").stdout, re.M)) - NOT_SETTINGS


def test_every_setting_is_in_the_operations_page_and_no_other():
    page = Path(ROOT, "docs", "operations.md").read_text()
    documented = set(re.findall(r"^\| `(--[a-z-]+)` \|", page, re.M))
    documented -= {"--rest-listen", "--metrics-listen"} - settings()
    assert documented == settings()


def test_print_config_names_every_setting():
    printed = set(re.findall(r"^([a-z-]+)=", run("--print-config").stdout, re.M))
    assert {name[2:] for name in settings()} <= printed


def test_environment_is_read_and_a_flag_wins():
    env = {"GANTRY_RUN_DIR": "/tmp/from-environment", "GANTRY_TRANSFERS_MAX": "7"}
    assert 'run-dir="/tmp/from-environment"' in run("--print-config", env=env).stdout
    printed = run("--print-config", "--run-dir", "/tmp/from-flag", env=env).stdout
    assert 'run-dir="/tmp/from-flag"' in printed
    assert "transfers-max=7" in printed


@pytest.mark.smoke
def test_wrong_settings_are_usage_errors():
    for flags in (["--workers", "-1"], ["--workers", "many"], ["--transfers-max", "0"], ["--nonsense"],
                  ["--log-level", "loud"], ["--rdma-inline-bytes", "1025"],
                  ["--deadline-ms-default", "10", "--deadline-ms-max", "5"]):
        result = run(*flags)
        assert result.returncode == 2, flags
        assert result.stderr, flags


def test_an_mtu_that_packets_do_not_have_is_refused_with_those_that_they_have():
    for bytes in ("0", "256", "512", "1024", "2048", "4096"):
        assert f"rdma-mtu={bytes}\n" in run("--print-config", "--rdma-mtu", bytes).stdout
    for bytes in ("1500", "128", "8192", "-256", "4k"):
        result = run("--print-config", "--rdma-mtu", bytes)
        assert result.returncode == 2, bytes
        assert "--rdma-mtu" in result.stderr, bytes
    assert "1500 not in {0,256,512,1024,2048,4096}" in run("--rdma-mtu", "1500").stderr


def test_rest_beyond_loopback_is_refused(tmp_path):
    result = run("--run-dir", str(tmp_path / "run"), "--rest-listen", "0.0.0.0:0")
    assert result.returncode == 1
    assert "loopback" in result.stderr


def test_a_run_directory_belongs_to_one_sidecar(sidecar):
    first = sidecar
    result = run("--run-dir", str(first.run_dir))
    assert result.returncode == 1
    assert "another sidecar" in result.stderr


@pytest.mark.parametrize("words", [["gantry-sidecar", "--print-config"], ["gantry-device-plugin", "--print-config"]], ids=" ".join)
def test_settings_that_cannot_be_printed_are_an_error(words):
    with open("/dev/full", "w") as full:
        ended = subprocess.run([BIN_DIR / words[0], *words[1:]], stdout=full, stderr=subprocess.PIPE, text=True, timeout=20)
    assert ended.returncode == 1 and "standard output" in ended.stderr, ended


class NoPods(grpc.GenericRpcHandler):
    """A kubelet whose answers are empty."""

    def service(self, handler_call_details):
        return grpc.unary_unary_rpc_method_handler(lambda request, context: b"")


def test_a_dry_run_that_cannot_be_printed_is_an_error(folder):
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(1), handlers=[NoPods()])
    server.add_insecure_port(f"unix:{folder}/kubelet.sock")
    server.start()
    command = [BIN_DIR / "gantry-device-plugin", "--dry-run", "--pod-resources-dir", folder, "--cdi-dir", folder, "--peer-dir", folder]
    try:
        printed = subprocess.run(command, capture_output=True, text=True, timeout=20)
        assert (printed.returncode, printed.stdout) == (0, "[]\n"), printed
        with open("/dev/full", "w") as full:
            ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=20)
        assert ended.returncode == 1 and "standard output" in ended.stderr, ended
    finally:
        server.stop(None)
