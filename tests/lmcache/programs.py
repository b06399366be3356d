"""LMCache's servers, its coordinator, an engine and bare channels as processes."""

import http.client
import json
import os
import pickle
import signal
import socket
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
BIN_DIR = Path(os.environ.get("GANTRY_BIN_DIR", ROOT / "build" / "release" / "bin"))
LIB_DIR = Path(os.environ.get("GANTRY_LIB_DIR", ROOT / "build" / "release" / "lib"))
START_SECONDS = 100
STOP_SECONDS = 20
LOOKUP_TIMEOUT = 3  # LMCache's
RESTART_WAIT = 8
LOAD_TIMEOUT = 17  # LMCache's, and 15 seconds more than READ_DEADLINE
READ_DEADLINE = 2
TCP = ("--peer-listen", "127.0.0.1:0", "--data-listen", "127.0.0.1:0")


class Failed(Exception):
    """A command raised in its process."""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def variables():
    """The environment of every process with LMCache."""
    return {**os.environ, "PYTHONPATH": f"{ROOT}/client/python:{ROOT}/connectors/lmcache", "GANTRY_LIBRARY": str(LIB_DIR / "libgantry.so"),
            "LMCACHE_TRACK_USAGE": "false", "LMCACHE_DISABLE_BANNER": "1", "OMP_NUM_THREADS": "1"}


def until(check, seconds, what):
    """The first result of `check` that is true."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = check()
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError(f"{what}: not within {seconds} s")


class Program:
    """`lmcache WORD...` with a log. start() returns at once; kill() and stop() may be called twice."""

    def __init__(self, environment, folder, name, port):
        self.name, self.port = name, port
        self.log_path = Path(folder) / f"{name}.log"
        self._lmcache = environment / "venv" / "bin" / "lmcache"
        self.process = None

    def run(self, *words):
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen([self._lmcache, *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=variables(),
                                            start_new_session=True)

    @property
    def log(self):
        return self.log_path.read_text(errors="replace")

    def lives(self):
        return self.process is not None and self.process.poll() is None

    def get(self, target):
        """The JSON of a GET at its HTTP port; None: it does not answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", target)
            return json.loads(connection.getresponse().read())
        except (OSError, ValueError, http.client.HTTPException):
            return None
        finally:
            connection.close()

    def wait_until(self, check, what, seconds=START_SECONDS):
        def checked():
            assert self.lives(), f"{self.name} has ended with {self.process.poll()}:\n{self.log[-4000:]}"
            return check()
        try:
            return until(checked, seconds, f"{self.name}: {what}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log[-4000:]}") from None

    def kill(self):
        if self.lives():
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def stop(self):
        """The exit code after SIGTERM."""
        if self.lives():
            self.process.terminate()
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()
                raise AssertionError(f"{self.name} does not end:\n{self.log[-4000:]}") from None
        return self.process.returncode


class Coordinator(Program):
    def __init__(self, environment, folder):
        super().__init__(environment, folder, "coordinator", free_port())

    def start(self):
        self.run("coordinator", "--host", "127.0.0.1", "--port", str(self.port), "--health-check-interval", "1", "--instance-timeout", "300")


class Server(Program):
    """`lmcache server` beside a sidecar. It keeps its name and ports when it is started again."""

    def __init__(self, environment, folder, name, sidecar, coordinator):
        super().__init__(environment, folder, name, free_port())
        self.sidecar, self._coordinator = sidecar, coordinator
        self._requests, self.channel = free_port(), free_port()

    @property
    def url(self):
        return f"tcp://127.0.0.1:{self._requests}"

    def start(self):
        params = {"run_dir": str(self.sidecar.run_dir), "read_deadline": READ_DEADLINE, "restart_wait": RESTART_WAIT}
        self.run("server", "--instance-id", self.name, "--host", "127.0.0.1", "--port", str(self._requests), "--http-port", str(self.port),
                 "--chunk-size", "16", "--supported-transfer-mode", "engine_driven", "--max-workers", "2",
                 "--l1-size-gb", "0.125", "--eviction-policy", "LRU", "--disable-metrics",
                 "--coordinator-url", f"http://127.0.0.1:{self._coordinator.port}", "--coordinator-advertise-ip", "127.0.0.1",
                 "--coordinator-heartbeat-interval", "0.5", "--p2p-advertise-url", f"127.0.0.1:{self.channel}",
                 "--p2p-lookup-timeout", str(LOOKUP_TIMEOUT), "--p2p-load-timeout", str(LOAD_TIMEOUT), "--p2p-transfer-engine", "gantry",
                 "--l2-adapter", json.dumps({"type": "plugin", "module_path": "gantry_lmcache", "class_name": "GantryChannel",
                                             "adapter_params": params}))

    def peers(self):
        """The names of the servers that it reads from."""
        return (self.get("/status") or {}).get("p2p_peers", [])


class Commands:
    """A Python program of this folder. Its commands are methods: process.store("one", tokens, 7)."""

    def __init__(self, environment, folder, name, program, **more):
        """`more`: environment variables."""
        self._name, self._log_path = name, Path(folder) / f"{name}.log"
        with open(self._log_path, "ab") as log:
            self.process = subprocess.Popen([environment / "venv" / "bin" / "python", HERE / program], stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE, stderr=log, env=variables() | more)

    def __getattr__(self, command):
        if command.startswith("_"):
            raise AttributeError(command)
        return lambda *arguments, **options: self._ask(command, arguments, options)

    def _ask(self, command, arguments, options):
        pickle.dump((command, arguments, options), self.process.stdin)
        self.process.stdin.flush()
        try:
            succeeded, answer = pickle.load(self.process.stdout)
        except EOFError:
            raise AssertionError(f"{self._name} ended with {self.process.wait()}:\n{self.log[-4000:]}") from None
        if not succeeded:
            raise Failed(answer)
        return answer

    @property
    def log(self):
        return self._log_path.read_text(errors="replace")

    def end(self, seconds=30):
        """Lets it end by itself."""
        self.process.stdin.close()
        self.process.wait(seconds)

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()
