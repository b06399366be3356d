"""Standard streams that are closed at the start, and a standard error that nobody reads, or not any more."""

import contextlib
import ctypes
import fcntl
import itertools
import json
import os
import signal
import stat
import subprocess
import threading
import time
from pathlib import Path

import pytest

from conftest import BIN_DIR
from test_health import HEALTH, NOT_SERVING, SERVING, health
from workloads import LARGE, Scene, metric, new_memory, start_workload, wait_for, workers_of

SHUTDOWN_SECONDS = 3
CLOSINGS = {"stdin": "<&-", "stdout": ">&-", "stderr": "2>&-", "output": ">&- 2>&-", "all": "<&- >&- 2>&-"}
NUMBERS = {"stdin": {0}, "stdout": {1}, "stderr": {2}, "output": {1, 2}, "all": {0, 1, 2}}
each_closing = pytest.mark.parametrize("closed", CLOSINGS)


def closing(closed):
    """What a command line begins with, so that the program starts without these streams."""
    return ["sh", "-c", f'exec "$@" {CLOSINGS[closed]}', "sh"]


def null_fds(pid):
    """Which of the standard descriptors of a process are /dev/null; all of them are open."""
    paths = {fd: os.readlink(f"/proc/{pid}/fd/{fd}") for fd in (0, 1, 2)}
    return {fd for fd, path in paths.items() if path == "/dev/null"}


def log_in_files_of(pid):
    """The descriptors behind which there are lines of a log: in files and in shared memory."""
    found = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            if int(link.name) > 2 and stat.S_ISREG(link.stat().st_mode) and b'"process":"' in link.read_bytes():
                found.append(f"{link.name} -> {os.readlink(link)}")
        except OSError:
            pass  # it was closed meanwhile, or is of a kind that is not read
    return found


def say_much(sidecar, times):
    """Leases that come and go: each is a line of the log."""
    for i in range(times):
        status, lease = sidecar.ask("PUT", f"/v1/workloads/w{i}", {})
        assert status == 201, lease
        headers = {"Authorization": f"Bearer {lease['lease_token']}"}
        assert sidecar.ask("DELETE", f"/v1/workloads/w{i}", headers=headers)[0] == 204


@each_closing
def test_streams_that_are_closed_are_null_and_nothing_is_written_elsewhere(start_sidecar, closed):
    sidecar = start_sidecar("a", prefix=closing(closed), workers=2)
    say_much(sidecar, 3)
    killed = workers_of(sidecar)[0]
    os.kill(killed, signal.SIGKILL)  # the log says so, and another one starts
    workers = wait_for(lambda: len(alive := set(workers_of(sidecar)) - {killed}) == 2 and alive, 10, "another worker")
    for pid in [sidecar.process.pid, *workers]:
        assert null_fds(pid) == NUMBERS[closed] | {0}, "standard input was /dev/null before"
        assert log_in_files_of(pid) == []
    assert b"{" not in (sidecar.run_dir / "sidecar.lock").read_bytes()
    assert sidecar.stop() == 0


@each_closing
def test_gantryctl_opens_what_is_closed(start_sidecar, closed):
    socket = start_sidecar("a").api_socket
    process = subprocess.Popen([*closing(closed), str(BIN_DIR / "gantryctl"), "--socket", str(socket), "transfers", "--watch"],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        wait_for(lambda: os.readlink(f"/proc/{process.pid}/exe").endswith("gantryctl") and null_fds_or_none(process.pid) == NUMBERS[closed], 20,
                 "its descriptors")
    finally:
        process.kill()
        process.communicate()


def null_fds_or_none(pid):
    try:
        return null_fds(pid)
    except OSError:
        return None


@pytest.fixture
def start_plugin(folder):
    """A device plugin whose kubelet never comes."""
    started = []

    def start(*flags, prefix=(), **streams):
        folders = [folder / name for name in ("kubelet", "pod-resources", "cdi", "peers")]
        for each in folders:
            each.mkdir(exist_ok=True)
        names = ("--kubelet-dir", "--pod-resources-dir", "--cdi-dir", "--peer-dir")
        command = [*prefix, str(BIN_DIR / "gantry-device-plugin"), *(f"{name}={each}" for name, each in zip(names, folders)), *flags]
        started.append(subprocess.Popen(command, **{"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


@each_closing
def test_the_device_plugin_opens_what_is_closed(start_plugin, closed):
    process = start_plugin(prefix=closing(closed))
    wait_for(lambda: os.readlink(f"/proc/{process.pid}/exe").endswith("gantry-device-plugin") and null_fds_or_none(process.pid) == NUMBERS[closed],
             20, "its descriptors")
    wait_for(lambda: "gantry-stop" in threads_of(process.pid), 20, "the thread that waits for SIGTERM")
    time.sleep(0.5)  # it says what it starts with
    assert log_in_files_of(process.pid) == []
    process.send_signal(signal.SIGTERM)
    assert process.wait(5) == 0


class StuckPipe:
    """A pipe that is full and that nobody reads, until read_all is called."""

    def __init__(self):
        self.reader, self.writer = os.pipe()
        flags = fcntl.fcntl(self.writer, fcntl.F_GETFL)
        fcntl.fcntl(self.writer, fcntl.F_SETFL, flags | os.O_NONBLOCK)
        try:
            while True:
                os.write(self.writer, b"\n" * 4096)
        except BlockingIOError:
            pass
        fcntl.fcntl(self.writer, fcntl.F_SETFL, flags)
        self.text = b""

    def close(self):
        for fd in (self.reader, self.writer):
            os.close(fd)

    def start_reading(self):
        def read():
            while chunk := os.read(self.reader, 1 << 16):
                self.text += chunk
        threading.Thread(target=read, daemon=True).start()

    def lines(self):
        return [json.loads(line) for line in self.text.decode().splitlines() if line.endswith("}")]


@pytest.fixture
def stuck():
    pipe = StuckPipe()
    yield pipe
    pipe.close()


@pytest.fixture
def start_stuck(start_sidecar, stuck):
    """start_stuck("a", ...): a sidecar whose standard error is `stuck`."""
    def start(name, **options):
        prefix = ["sh", "-c", f'exec "$@" 2>/proc/{os.getpid()}/fd/{stuck.writer}', "sh"]
        return start_sidecar(name, prefix=prefix, **options)
    return start


def test_a_standard_error_that_nobody_reads_stops_nothing(start_stuck, stuck, health, start_workload, new_memory):
    """A line for each lease is more than the queue takes: some are dropped, and the metric counts them."""
    flags = ["--shutdown-ms", str(SHUTDOWN_SECONDS * 1000), "--metrics-listen", "127.0.0.1:0"]
    sidecar = start_stuck("a", flags=flags)
    begin = time.monotonic()
    say_much(sidecar, 3000)
    assert time.monotonic() - begin < 20
    assert sidecar.ask("GET", "/readyz")[0] == sidecar.ask("GET", "/healthz")[0] == 200
    assert metric(sidecar, "gantry_log_lines_dropped_total") > 500
    worker, = workers_of(sidecar)
    os.kill(worker, signal.SIGKILL)
    wait_for(lambda: workers_of(sidecar) not in ([], [worker]), 10, "another worker")
    begin = time.monotonic()
    sidecar.process.send_signal(signal.SIGTERM)
    assert sidecar.process.wait(10) == 0
    assert time.monotonic() - begin < SHUTDOWN_SECONDS


def test_once_somebody_reads_again_the_log_goes_on_and_says_what_is_missing(start_stuck, stuck):
    sidecar = start_stuck("a")
    say_much(sidecar, 3000)
    dropped = metric(sidecar, "gantry_log_lines_dropped_total")
    stuck.start_reading()
    wait_for(lambda: any("were dropped" in line["message"] for line in stuck.lines()), 10, "the line that says so")
    say_much(sidecar, 100)
    assert sidecar.stop() == 0
    wait_for(lambda: "the sidecar has stopped" in stuck.text.decode(), 5, "the last line")
    assert sum(line["lines"] for line in stuck.lines() if "were dropped" in line["message"]) == dropped
    assert len([line for line in stuck.lines() if "workload" in line]) >= 100


def test_the_end_by_force_waits_for_no_reader(start_stuck, start_sidecar, start_workload, new_memory):
    """A worker stands still and with it the orderly stop."""
    starts = itertools.chain([start_stuck], itertools.repeat(start_sidecar))
    scene = Scene(lambda name, **options: next(starts)(name, **options), start_workload, new_memory, LARGE,
                  flags=["--shutdown-ms", "1000", "--quiesce-ms-max", "60000"])
    scene.hold()
    begin = time.monotonic()
    scene.a.process.send_signal(signal.SIGTERM)
    assert scene.a.process.wait(10) == 1, "ended by force"
    assert time.monotonic() - begin < 1 + 1


def test_the_device_plugin_waits_for_no_reader_either(start_plugin, stuck):
    process = start_plugin("--log-level=debug", stderr=stuck.writer)
    time.sleep(1)
    process.send_signal(signal.SIGTERM)
    assert process.wait(5) == 0


def threads_of(pid):
    """The names of a process's threads, with their ids."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            found[(task / "comm").read_text().strip()] = int(task.name)
    return found


PTRACE_SEIZE, PTRACE_INTERRUPT, WALL = 0x4206, 0x4207, 0x40000000


def stop_thread(pid, name):
    """One thread of a child stands still from now on, and the others go on. Call what is returned when the child was killed."""
    tid = threads_of(pid)[name]
    ptrace = ctypes.CDLL(None, use_errno=True).ptrace
    ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    for request in (PTRACE_SEIZE, PTRACE_INTERRUPT):
        if ptrace(request, tid, None, None) != 0:
            pytest.skip(f"this process may not trace: {os.strerror(ctypes.get_errno())}")
    os.waitpid(tid, WALL)
    return lambda: os.waitpid(tid, WALL)


@pytest.mark.thorough
def test_a_thread_that_stands_still_is_noticed(start_sidecar, health):
    sidecar = start_sidecar("a", flags=HEALTH)
    client = health(sidecar)
    reap = stop_thread(sidecar.process.pid, "gantry-house")
    assert client.check("liveness") == client.check("readiness") == SERVING
    wait_for(lambda: client.check("liveness") == client.check("readiness") == NOT_SERVING, 65, "that it is noticed")
    for route in ("/healthz", "/readyz"):
        status, problem = sidecar.ask("GET", route)
        assert (status, problem["code"]) == (500, "internal") and "housekeeping" in problem["detail"], problem
    os.kill(sidecar.process.pid, signal.SIGKILL)
    reap()
