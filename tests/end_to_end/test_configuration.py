"""The settings of the sidecar: documented, printed, and refused when they are wrong."""

import concurrent.futures
import functools
import json
import os
import re
import subprocess
import sys

import grpc
import pytest

from conftest import BIN_DIR, ROOT

SIDECAR = BIN_DIR / "gantry-sidecar"
NOT_SETTINGS = {"--help", "--version", "--print-config", "--print-settings"}
HEADINGS = {"normal": "Settings that an installation decides", "tuning": "Tuning: for a load or a machine",
            "expert": "Expert: for a fault or a measurement"}


def run(*flags, env=None):
    return subprocess.run([SIDECAR, *flags], capture_output=True, text=True, timeout=20, env=env)


@functools.cache
def settings():
    """{flag: what --print-settings says of it}"""
    return {each["flag"]: each for each in json.loads(run("--print-settings", env={}).stdout)}


def test_the_reference_and_the_schema_of_the_chart_are_as_the_sidecar_says():
    check = subprocess.run([sys.executable, ROOT / "tools" / "settings", "--check"], capture_output=True, text=True, timeout=20,
                           env=os.environ | {"GANTRY_BIN_DIR": str(BIN_DIR)})
    assert check.returncode == 0, check.stderr


def test_help_has_every_setting_below_its_level():
    parts = re.split(r"^(\S.*):$", run("--help").stdout, flags=re.M)
    flags = {heading: set(re.findall(r"^\s+(?:-h,)?(--[a-z-]+)", text, re.M)) for heading, text in zip(parts[1::2], parts[2::2])}
    assert flags.pop("Options") == NOT_SETTINGS
    assert flags == {heading: {flag for flag, each in settings().items() if each["level"] == level} for level, heading in HEADINGS.items()}
    assert len(settings()) > 60


def test_each_help_is_one_or_two_short_sentences():
    for flag, each in settings().items():
        sentences = re.split(r"(?<=\.) ", each["help"])
        assert 1 <= len(sentences) <= 2 and each["help"].endswith("."), flag
        assert max(len(sentence.split()) for sentence in sentences) <= 20, (flag, sentences)
        assert not re.match(r"(Of|What|Who|Whoever|Likewise)\b", each["help"]), flag


def test_print_config_names_every_setting_with_its_default():
    values = {f"--{name}": value for name, value in re.findall(r"^([a-z-]+)=(.*)$", run("--print-config", env={}).stdout, re.M)}
    assert set(settings()) <= set(values)
    for flag, each in settings().items():
        if flag != "--name":
            # CLI11 writes an empty list as [], and as {} from 2.4 on.
            assert values[flag].strip('"').removesuffix("[]").removesuffix("{}") == each["default"], flag


def test_environment_is_read_and_a_flag_wins():
    env = {"GANTRY_RUN_DIR": "/tmp/from-environment", "GANTRY_TRANSFERS_MAX": "7"}
    assert 'run-dir="/tmp/from-environment"' in run("--print-config", env=env).stdout
    said = run("--print-config", "--run-dir", "/tmp/from-flag", env=env).stdout
    assert 'run-dir="/tmp/from-flag"' in said
    assert "transfers-max=7" in said


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


@pytest.mark.parametrize("words", [["gantry-sidecar", "--print-config"], ["gantry-sidecar", "--print-settings"],
                                   ["gantry-device-plugin", "--print-config"]], ids=" ".join)
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
