"""What the end-to-end tests share: sidecars as real processes, and the programs beside them.

GANTRY_BIN_DIR names the folder of the programs (the tiers set it); without it, build/release/bin is used.
"""

import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# The costs of copies while none are measured: the defaults of GpuCopyCosts.
FALLBACK_COSTS = {name: int(value.replace("'", "")) for name, value in re.findall(
    r"^  uint64_t (\w+) = ([\d']+);$", (ROOT / "sidecar/worker/channel/gpu_copy_costs.h").read_text(), re.MULTILINE)}
# Measured ones would choose the means of copies by how busy the machine is.
os.environ.setdefault("GANTRY_GPU_COPY_COSTS",
                      ",".join(f"{name}={value}" for name, value in FALLBACK_COSTS.items() if name != "turn_us"))
BIN_DIR = Path(os.environ.get("GANTRY_BIN_DIR", ROOT / "build" / "release" / "bin"))
READY_SECONDS = 20
STOP_SECONDS = 20


def pytest_generate_tests(metafunc):
    """What is of the vendor's driver is tested on NVIDIA's alone; what is marked so, on AMD's, too."""
    if "gpus" in metafunc.fixturenames and metafunc.definition.get_closest_marker("both_vendors"):
        metafunc.parametrize("gpus", ["nvidia", "amd"], indirect=True)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """What is marked amd_runs(name=value) is run on AMD's with these parameters alone: the others are nothing of the vendor's."""
    def runs(item):
        wanted, parameters = item.get_closest_marker("amd_runs"), item.callspec.params if hasattr(item, "callspec") else {}
        return not wanted or parameters.get("gpus") != "amd" or all(parameters[name] == value for name, value in wanted.kwargs.items())

    items[:] = [item for item in items if runs(item)]
    for item in items:
        choose_marks(item)


def choose_marks(item):
    """Keeps "smoke" and "thorough" where the case has their parameters. Nothing is both; the second vendor is thorough."""
    parameters = item.callspec.params if hasattr(item, "callspec") else {}

    def applies(mark):
        return mark.name not in ("smoke", "thorough") or all(parameters.get(name) == value for name, value in mark.kwargs.items())

    item.own_markers[:] = [mark for mark in item.own_markers if applies(mark)]
    if item.get_closest_marker("smoke"):
        item.own_markers[:] = [mark for mark in item.own_markers if mark.name != "thorough"]
    elif item.get_closest_marker("both_vendors") and parameters.get("gpus") == "amd":
        item.add_marker("thorough")


class UnixConnection(http.client.HTTPConnection):
    """An HTTP connection over a Unix socket."""

    def __init__(self, path, timeout=30):
        super().__init__("localhost", timeout=timeout)
        self._path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def ask(api_socket, method, target, body=None, headers=None):
    """One request. Returns (status, body): JSON as an object, anything else as text."""
    connection = UnixConnection(api_socket)
    try:
        headers = dict(headers or {})
        if body is not None and not isinstance(body, (bytes, str)):
            body = json.dumps(body)
            headers.setdefault("Content-Type", "application/json")
        connection.request(method, target, body=body, headers=headers)
        answer = connection.getresponse()
        text = answer.read().decode()
        is_json = "json" in (answer.getheader("Content-Type") or "")
        return answer.status, json.loads(text) if is_json and text else text
    finally:
        connection.close()


class SidecarProcess:
    """One gantry-sidecar. Not started by the constructor; stop() and kill() may be called twice."""

    def __init__(self, name, folder, node_dir=None, workers=1, flags=(), prefix=(), address=None, program=BIN_DIR / "gantry-sidecar"):
        """`prefix`: what the command line begins with. `address`: for peers, when it is not the node directory's."""
        self.name = name
        self.prefix, self.address, self.program = list(prefix), address, program
        self.run_dir = Path(folder) / name
        self.node_dir = Path(node_dir) if node_dir else Path(folder) / "node"
        self.workers = workers
        self.flags = list(flags)
        self.process = None

    @property
    def api_socket(self):
        return self.run_dir / "api.sock"

    @property
    def handoff_socket(self):
        return self.run_dir / "handoff.sock"

    @property
    def peer_address(self):
        return self.address or f"unix:{self.node_dir}/{self.name}.peer.sock"

    @property
    def log(self):
        return (self.run_dir / "log").read_text(errors="replace")

    def start(self, wait=True):
        self.run_dir.mkdir(parents=True, exist_ok=True)
        self.node_dir.mkdir(parents=True, exist_ok=True)
        command = [*self.prefix, str(self.program), "--name", self.name, "--run-dir", str(self.run_dir),
                   "--node-dir", str(self.node_dir), "--workers", str(self.workers), *self.flags]
        with open(self.run_dir / "log", "ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        if wait:
            self.wait_until_ready()
        return self

    def wait_until_ready(self, seconds=READY_SECONDS):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise AssertionError(f"{self.name} ended with {self.process.returncode}:\n{self.log}")
            try:
                if self.ask("GET", "/readyz")[0] == 200:
                    return
            except OSError:
                pass
            time.sleep(0.02)
        raise AssertionError(f"{self.name} is not ready after {seconds} s:\n{self.log}")

    def ask(self, method, target, body=None, headers=None):
        return ask(self.api_socket, method, target, body, headers)

    def stop(self):
        """SIGTERM; returns the exit code."""
        if self.process is None:
            return None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"{self.name} did not stop within {STOP_SECONDS} s:\n{self.log}") from None

    def kill(self):
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def program_for_all_users(name, folder):
    """The program's path, or that of a copy in the folder where others cannot go to it, as below /root. They can to the folder."""
    program = BIN_DIR / name
    if all(parent.stat().st_mode & 0o001 for parent in program.resolve().parents):
        return program
    return Path(shutil.copy(program, folder))


def short_folder():
    """Made in the one that the tier looks into at its end, or in /tmp. The caller removes it."""
    root = os.environ.get("GANTRY_TEST_ROOT")
    root = root if root and os.path.isdir(root) else None  # a guest has the variable and not the folder
    return tempfile.mkdtemp(prefix="" if root else "gantry-", dir=root or "/tmp")


@pytest.fixture
def folder():
    """A folder with a short path, because a Unix socket's path is limited to 107 bytes."""
    path = Path(short_folder())
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def start_sidecar(folder):
    """start_sidecar("a", workers=2): a running sidecar; all of a test's sidecars share one node folder."""
    started = []

    def start(name, wait=True, **options):
        sidecar = SidecarProcess(name, folder, **options)
        started.append(sidecar)
        return sidecar.start(wait)

    yield start
    for sidecar in started:
        sidecar.kill()


@pytest.fixture
def sidecar(start_sidecar):
    return start_sidecar("a")
