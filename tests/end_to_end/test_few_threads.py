"""The start of the sidecar and of the device plugin where few threads can be made: they serve, or end with exit code 1 and say
which limit is too low. gRPC by itself would end the process by SIGABRT or wait without end.

RLIMIT_NPROC limits a user as pids.max limits a pod. Root is exempt, so each process runs as a user of its own. A real pids.max
needs a control group for each process, which root can make where a controller of processes is mounted.
"""

import concurrent.futures
import contextlib
import json
import os
import signal
import subprocess
import time

import grpc
import pytest

from conftest import program_for_all_users
from control_groups import PidsGroup, new_user

LIMITS = range(1, 41)
END_SECONDS = 20

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root starts processes as other users")


def own(folder, user):
    folder.mkdir(mode=0o700)
    os.chown(folder, user, -1)
    return folder


def as_user(user):
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]


@contextlib.contextmanager
def limit_of_a_user(limit, user):
    yield [*as_user(user), "prlimit", f"--nproc={limit}:"]


@contextlib.contextmanager
def limit_of_a_pod(limit, user):
    group = PidsGroup(limit)
    try:
        yield [*group.prefix, *as_user(user)]
    finally:
        group.remove()


def groups_or_skip():
    try:
        PidsGroup().remove()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")


@pytest.fixture(params=["user", "pod"])
def limited(request):
    """limited(limit, user): a context whose value is what a command begins with that runs as the user below the limit."""
    if request.param == "pod":
        groups_or_skip()
    return {"user": limit_of_a_user, "pod": limit_of_a_pod}[request.param]


def start(command, log):
    with open(log, "wb") as file:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file)


def lines_of(log):
    return [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{") and line.endswith("}")]


def outcome(process, log, done):
    """Until the process has ended or `done` is true of its log lines. What is wrong with it, or None, and if it lived."""
    deadline = time.monotonic() + END_SECONDS
    while process.poll() is None and not done(lines_of(log)):
        if time.monotonic() >= deadline:
            process.kill()
            process.wait()
            return "it neither serves nor ends", True
        time.sleep(0.02)
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(END_SECONDS)
            return f"it stopped with {code}" if code else None, True
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return "it does not stop", True
    why = json.dumps([line for line in lines_of(log) if line["message"].endswith("cannot start")])
    says_it = '"resource_exhausted"' in why and "pids.max" in why
    return None if process.returncode == 1 and says_it else f"it ended with {process.returncode}: {log.read_text()}", False


def check_all(attempt):
    """attempt(limit, user) for each limit, some of them at once."""
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(lambda limit: attempt(limit, new_user()), LIMITS))
    wrong = {limit: what for limit, (what, _) in zip(LIMITS, outcomes) if what}
    assert not wrong, wrong
    assert not outcomes[0][1], "one thread is too few for anything"


@needs_root
@pytest.mark.parametrize("flags", [(), ("--health-listen", "127.0.0.1:0"),
                                   ("--peer-listen", "127.0.0.1:0", "--health-listen", "127.0.0.1:0")],
                         ids=["plain", "health", "peers-and-health"])
def test_a_sidecar_serves_or_says_which_limit_is_too_low(folder, limited, flags):
    folder.chmod(0o755)
    program = program_for_all_users("gantry-sidecar", folder)

    def attempt(limit, user):
        place, log = own(folder / str(limit), user), folder / f"{limit}.log"
        command = [str(program), "--name", "a", "--run-dir", str(place), "--node-dir", str(place), "--workers", "1", *flags]
        with limited(limit, user) as prefix:
            return outcome(start([*prefix, *command], log), log,
                           lambda lines: any(line["message"] == "the sidecar is ready" for line in lines))

    check_all(attempt)


@pytest.fixture
def start_kubelet():
    """start_kubelet(folder): a kubelet that takes each plugin and asks it nothing."""
    servers = []

    def begin(folder):
        server = grpc.server(concurrent.futures.ThreadPoolExecutor(1))
        register = grpc.unary_unary_rpc_method_handler(lambda request, context: b"")
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("v1beta1.Registration", {"Register": register})])
        assert server.add_insecure_port(f"unix:{folder}/kubelet.sock")
        server.start()
        os.chmod(folder / "kubelet.sock", 0o777)
        servers.append(server)

    yield begin
    for server in servers:
        server.stop(None)


@needs_root
@pytest.mark.parametrize("flags", [(), ("--health-listen=127.0.0.1:0",)], ids=["plain", "health"])
def test_the_device_plugin_serves_or_says_which_limit_is_too_low(folder, start_kubelet, limited, flags):
    """One that can make no server for the kubelet says so, and tries again: the kubelet need not be there at its start either."""
    folder.chmod(0o755)
    program = program_for_all_users("gantry-device-plugin", folder)

    def attempt(limit, user):
        place, log = own(folder / str(limit), user), folder / f"{limit}.log"
        folders = {flag: own(place / flag, user) for flag in ("kubelet-dir", "pod-resources-dir", "cdi-dir", "peer-dir")}
        start_kubelet(folders["kubelet-dir"])
        command = [str(program), *(f"--{flag}={path}" for flag, path in folders.items()), *flags]

        def done(lines):
            messages = {line["message"] for line in lines}
            refused = any(line["message"] == "the plugin is not registered" and "resource_exhausted" in json.dumps(line) for line in lines)
            return "the device plugin runs" in messages and ("the plugin is registered" in messages or refused)

        with limited(limit, user) as prefix:
            return outcome(start([*prefix, *command], log), log, done)

    check_all(attempt)
