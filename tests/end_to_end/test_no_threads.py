"""A sidecar that can make no thread and no process, as in a pod whose PID limit its engine has used up: it lives, says
resource_exhausted, and goes on by itself when there is room again.

The kernel refuses by RLIMIT_NPROC, as it does by pids.max: EAGAIN. Root is exempt, so the sidecar then runs as another user.
Cases of a real pids.max need a control group, which root can make where a controller of processes is mounted.
"""

import base64
import concurrent.futures
import os
import resource
import signal
import subprocess
import time
from pathlib import Path

import pytest

from conftest import program_for_all_users
from control_groups import PidsGroup, new_user
from held_blocks import HeldBlocks, put, read
from test_notifications import Reader, encoded, free_port
from test_peers_over_tcp import TCP, tcp_address
from test_vanished_peers import state_of
from workloads import (MiB, connect, metric, new_memory, start_workload, submit, totals_of, wait_for,
                       workers_of)


class Limited:
    """Starts sidecars as the user, and says how many more threads and processes they may make."""

    def __init__(self, start_sidecar, folder):
        self._start, self._folder = start_sidecar, folder
        is_root = os.geteuid() == 0
        self.user = new_user() if is_root else os.geteuid()
        self.as_user = ["setpriv", f"--reuid={self.user}", f"--regid={self.user}", "--clear-groups"] if is_root else []
        folder.chmod(0o755)

    def own(self, folder):
        """A folder of the user."""
        folder.mkdir(mode=0o700, exist_ok=True)
        os.chown(folder, self.user, -1)
        return folder

    def start(self, name, **options):
        self.own(self._folder / name)
        self.own(self._folder / "node")
        sidecar = self._start(name, prefix=self.as_user, **options)
        wait_for(lambda: "the sidecar is ready" in sidecar.log, 10)  # it makes its last threads while it answers
        return sidecar

    def allow(self, sidecar, free=0):
        """`free` more threads from now on; all of those that there are stay."""
        self._set(sidecar, self._tasks() + free if free else 1)

    def allow_all(self, sidecar):
        self._set(sidecar, "")

    def _set(self, sidecar, soft):
        hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]  # inherited
        limit = f"{soft or hard}:" if soft or hard != resource.RLIM_INFINITY else "unlimited:"
        subprocess.run([*self.as_user, "prlimit", f"--pid={sidecar.process.pid}", f"--nproc={limit}"], check=True)

    def _tasks(self):
        """Threads of all processes of the user, which is what the kernel counts."""
        count = 0
        for status in Path("/proc").glob("[0-9]*/status"):
            try:
                fields = dict(line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line)
            except OSError:
                continue
            if int(fields["Uid"].split()[0]) == self.user:
                count += int(fields["Threads"])
        return count


@pytest.fixture
def limited(start_sidecar, folder):
    return Limited(start_sidecar, folder)


def make_pair(start_limited, start, way):
    """Sidecar a, whose threads are limited, and b. The address of b, the same after a restart."""
    port = free_port()
    flags = ["--peer-listen", f"127.0.0.1:{port}"] if way == "tcp" else []
    a, b = start_limited("a", flags=TCP if flags else []), start("b", flags=flags)
    if flags:
        b.address = tcp_address(b)
    assert connect(a, b)["state"] == "up"
    return a, b


@pytest.fixture(params=["unix", "tcp"])
def pair(request, limited):
    return make_pair(limited.start, limited.start, request.param)


class InGroup:
    """As Limited, by pids.max."""

    def __init__(self, start_sidecar, group):
        self._start, self._group = start_sidecar, group

    def start(self, name, **options):
        sidecar = self._start(name, prefix=self._group.prefix, **options)
        wait_for(lambda: "the sidecar is ready" in sidecar.log, 10)
        return sidecar

    def allow(self, sidecar, free=0):
        self._group.allow(free)

    def allow_all(self, sidecar):
        self._group.set("max")


@pytest.fixture
def pids_group():
    try:
        made = PidsGroup()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    yield made
    made.remove()


@pytest.fixture
def in_group(pids_group, start_sidecar):  # in this order: the sidecars end before the group
    return InGroup(start_sidecar, pids_group)


def peer_of(sidecar, name="b"):
    return sidecar.ask("GET", f"/v1/peers/{name}")[1]


def lives(sidecar):
    return sidecar.process.poll() is None and sidecar.ask("GET", "/readyz")[0] == 200


def check_that_a_peer_comes_back(limited, a, b):
    limited.allow(a)
    b.kill()
    wait_for(lambda: state_of(a, "b") == "down", 8, "noticing")
    b.start()
    peer = wait_for(lambda: lives(a) and (p := peer_of(a))["error"]["code"] == "resource_exhausted" and p, 8,
                    lambda: f"the reason {peer_of(a)}")
    assert peer["state"] == "down" and "thread" in peer["error"]["detail"], peer
    limited.allow_all(a)
    wait_for(lambda: state_of(a, "b") == "up", 8, "the reconnection")


def test_a_peer_that_comes_back_stays_down_until_there_is_a_thread_for_it(pair, limited):
    check_that_a_peer_comes_back(limited, *pair)


@pytest.mark.parametrize("way", ["unix", "tcp"])
def test_a_peer_that_comes_back_below_a_limit_of_the_pod(way, in_group, start_sidecar):
    check_that_a_peer_comes_back(in_group, *make_pair(in_group.start, start_sidecar, way))


@pytest.mark.parametrize("free", [0, 1])
def test_a_new_peer_is_refused_or_waits_for_its_threads(limited, free):
    a, b = limited.start("a"), limited.start("b")
    limited.allow(a, free)
    status, answer = a.ask("PUT", "/v1/peers/b", {"address": b.peer_address})
    if free == 0:
        assert (status, answer["code"]) == (429, "resource_exhausted"), answer
        assert "thread" in answer["detail"] and "pids.max" in answer["hint"], answer
        assert a.ask("GET", "/v1/peers")[1]["peers"] == [], "nothing is left of it"
    else:  # one for its link and none for its session
        assert answer["state"] != "up" and answer["error"]["code"] == "resource_exhausted", answer
    assert lives(a)
    limited.allow_all(a)
    assert connect(a, b)["state"] == "up"


@pytest.mark.parametrize("way", ["unix", "tcp"])
def test_a_peer_that_can_take_no_session_takes_it_later(way, limited):
    """The other side: gRPC would have no thread for a call, and is not given the connection."""
    flags = TCP if way == "tcp" else []
    a, b = limited.start("a", flags=flags), limited.start("b", flags=flags)
    limited.allow(b)
    peer = a.ask("PUT", "/v1/peers/b", {"address": tcp_address(b) if flags else b.peer_address})[1]
    assert peer["state"] != "up", peer
    assert peer["error"]["code"] == "peer_unavailable", peer
    assert "there is no thread for its calls" in b.log, b.log
    assert lives(b)
    limited.allow_all(b)
    wait_for(lambda: state_of(a, "b") == "up", 8, "the connection")


@pytest.mark.thorough
@pytest.mark.parametrize("way", ["unix", "tcp"])
def test_many_peers_are_refused_again_and_again_and_come_up_in_the_end(way, limited):
    """gRPC counts each thread that it cannot make against its limit (1 088) for ever, and may wait for ever where peers connect at once."""
    flags = TCP if way == "tcp" else []
    a, b = limited.start("a", flags=flags), limited.start("b", flags=flags)
    address = tcp_address(b) if flags else b.peer_address
    limited.allow(b)
    with concurrent.futures.ThreadPoolExecutor(120) as pool:
        list(pool.map(lambda number: a.ask("PUT", f"/v1/peers/p{number}", {"address": address}), range(120)))
    time.sleep(12)  # some 1 200 attempts
    limited.allow_all(b)

    def states():
        return {peer["state"] for peer in a.ask("GET", "/v1/peers")[1]["peers"]}
    wait_for(lambda: states() == {"up"}, 30, lambda: f"the connections {states()}")


def test_a_notification_needs_no_thread_of_its_own(pair, limited, start_workload, new_memory):
    a, b = pair
    writer, reader = start_workload(a, "prefill"), start_workload(b, "decode")
    source, target = new_memory(MiB, filled=True), new_memory(MiB)
    writer.register(source, ("src", 0, MiB))
    reader.register(target, ("dst", 0, MiB))
    receiver = Reader(b, "decode")
    limited.allow(a)
    for text in (b"one", b"two"):
        body = {"workload": "prefill", "op": "write", "local": ["src"], "remote": ["b/decode/dst"],
                "ranges": [[0, 0, 0, 0, MiB]], "notify": {"to": "decode", "message": encoded(text)}}
        status, view = a.ask("POST", "/v1/transfers?wait_ms=0", body)
        assert status in (200, 202), view
        assert base64.b64decode(receiver.next("notification")["notification"]["message"]) == text
    assert not target.differs_from(source) and lives(a)


@pytest.mark.parametrize("way", ["unix", "tcp"])
def test_reads_of_held_blocks_begin_and_end(way, limited, start_workload, new_memory):
    scene = HeldBlocks(way, limited.start, start_workload, new_memory)
    put(scene.p)
    limited.allow(scene.d)
    status, view = read(scene.d, [1, 2])
    assert (status, view["state"]) == (200, "succeeded"), view
    assert scene.arrived(1, 2) and lives(scene.d)
    scene.nobody_reads()


@pytest.mark.parametrize("free", [0, 1])
def test_a_copy_worker_is_started_again_when_there_is_room(limited, free):
    """With one free it is started, and has none for its copies: that says nothing of a GPU's driver."""
    a = limited.start("a")
    (worker,) = workers_of(a)
    limited.allow(a)
    os.kill(worker, signal.SIGKILL)
    wait_for(lambda: "died" in a.log, 5, "noticing")
    if free:
        limited.allow(a, free)
        wait_for(lambda: "exit code 68" in a.log, 8, lambda: f"its end: {a.log}")
    else:
        wait_for(lambda: "copy worker cannot be started" in a.log, 8)
    assert a.process.poll() is None and not workers_of(a)
    limited.allow_all(a)
    wait_for(lambda: workers_of(a), 15, "the worker")
    assert lives(a) and "signal 6" not in a.log


def test_requests_that_cannot_wait_say_so_and_the_others_are_answered(limited, start_workload):
    a = limited.start("a")
    start_workload(a, "w")
    limited.allow(a)
    pool = concurrent.futures.ThreadPoolExecutor(24)
    polls = [pool.submit(a.ask, "POST", "/v1/completions:poll", {"workload": "w", "cursor": 0, "wait_ms": 2000}) for _ in range(24)]
    for _ in range(20):
        assert a.ask("GET", "/v1/status")[0] == 200
    answers = [poll.result() for poll in polls]
    assert {status for status, _ in answers} == {200, 429}, answers
    assert {answer["code"] for status, answer in answers if status == 429} == {"resource_exhausted"}
    assert lives(a)


def test_it_stops_in_order(pair, limited):
    a, _ = pair
    limited.allow(a)
    assert a.stop() == 0, a.log


def test_it_says_why_it_cannot_start(limited, folder):
    why = limited.own(folder / "a") / "why"
    why.touch()
    os.chown(why, limited.user, -1)
    program = program_for_all_users("gantry-sidecar", folder)
    ended = subprocess.run([*limited.as_user, "prlimit", "--nproc=1:", str(program), "--name", "a",
                            "--run-dir", str(folder / "a"), "--termination-log", str(why)], capture_output=True, timeout=20)
    assert ended.returncode == 1, (ended.returncode, ended.stdout, ended.stderr)
    assert "no thread can be started" in why.read_text()
