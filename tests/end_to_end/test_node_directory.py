"""The folder that the device plugin mounts for the sidecars of a namespace: everybody may write there, nobody is believed.

Sidecars of different pods run as different users and meet there all the same; a stranger, who may open the folder as well,
gets neither in between nor in the way.
"""

import ctypes
import errno
import os
import signal
import socket
import stat

import pytest

from workloads import MiB, connect, new_memory, start_workload, submit

DECODE, PREFILL, STRANGER = 10_001, 10_002, 10_003
BOTH = f"--node-uids={DECODE}-{PREFILL}"
SIZE = 8 * MiB

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become other users")


def as_user(uid):
    return ["setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups", "--no-new-privs"]


def by(uid, action):
    """What `action` returns when a process of that user does it; its OSError as the number."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            try:
                answer = str(action())
            except OSError as error:
                answer = f"errno {error.errno}"
            os.write(writer, answer.encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as said:
        answer = said.read()
    os.waitpid(child, 0)
    return answer


@pytest.fixture
def peers(folder):
    """Made as the plugin makes it."""
    folder.chmod(0o755)
    path = folder / "peers"
    path.mkdir()
    path.chmod(0o1777)
    return path


@pytest.fixture
def start(folder, peers, start_sidecar):
    """start("decode", uid): a sidecar in its own run directory, as that user."""
    def start(name, uid, flags=(BOTH,), wait=True):
        run_dir = folder / name
        run_dir.mkdir(exist_ok=True)
        os.chown(run_dir, uid, uid)
        return start_sidecar(name, wait=wait, node_dir=peers, flags=flags, prefix=as_user(uid))
    return start


@pytest.fixture
def listening():
    """listening(path, uid): a socket of that user which accepts, until the test ends."""
    children = []

    def listen(path, uid):
        ready, done = os.pipe()
        child = os.fork()
        if child == 0:
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)
            os.setresuid(uid, uid, uid)
            server = socket.socket(socket.AF_UNIX)
            server.bind(str(path))
            os.chmod(path, 0o666)
            server.listen(8)
            os.write(done, b"!")
            signal.pause()
        assert os.read(ready, 1) == b"!"
        children.append(child)

    yield listen
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_sidecars_of_two_users_move_bytes_by_shm(start, peers, new_memory, start_workload):
    a, b = start("decode", DECODE), start("prefill", PREFILL)
    assert {(peers / f"{each}.peer.sock").stat().st_uid for each in ("decode", "prefill")} == {DECODE, PREFILL}
    connect(a, b)
    connect(b, a)
    source, target = new_memory(SIZE, filled=True), new_memory(SIZE)
    start_workload(a, "reader").register(target, ("kv", 0, SIZE))
    start_workload(b, "owner").register(source, ("kv", 0, SIZE))
    for operation, sidecar, workload, remote in (("read", a, "reader", "prefill/owner/kv"),
                                                 ("write", b, "owner", "decode/reader/kv")):
        source.fill()
        assert target.differs_from(source)
        status, view = submit(sidecar, workload, operation, "kv", remote, SIZE, 20_000)
        assert (status, view["state"], view["path"]) == (200, "succeeded", "shm"), view
        assert not target.differs_from(source)
    assert a.stop() == b.stop() == 0
    assert list(peers.iterdir()) == [], "what they made there goes with them"


def why_no_peer(sidecar, name, address):
    """The error of a peer that must not come up."""
    status, peer = sidecar.ask("PUT", f"/v1/peers/{name}", {"address": address})
    assert status == 201 and peer["state"] != "up", peer
    return peer["error"]


def test_who_is_not_named_is_no_peer_in_either_direction(start):
    a, b = start("decode", DECODE, flags=()), start("prefill", PREFILL)
    assert why_no_peer(b, "decode", a.peer_address)["code"] == "peer_unavailable", "its sockets are for its own user"
    error = why_no_peer(start("third", DECODE), "stranger", start("stranger", STRANGER).peer_address)
    assert error["code"] == "permission_denied"
    assert f"uid {STRANGER}" in error["detail"] and "--node-uids" in error["hint"]


def test_a_stranger_who_connects_is_turned_away(start, peers):
    a = start("decode", DECODE)

    def reads(name, kind, first):
        with socket.socket(socket.AF_UNIX, kind) as door:
            door.settimeout(3)
            door.connect(str(peers / name))
            door.send(first)
            return len(door.recv(64))

    doors = [("decode.peer.sock", socket.SOCK_STREAM, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\4" + bytes(5)),
             ("decode.fds.sock", socket.SOCK_SEQPACKET, b"fds of-no-session")]
    for door in doors:
        assert by(STRANGER, lambda: reads(*door)) in ("0", f"errno {errno.ECONNRESET}", f"errno {errno.EPIPE}"), door
        assert int(by(PREFILL, lambda: reads(*door))) > 0, "a user who is named gets an answer to the same"
    assert a.log.count(f"uid {STRANGER}") == len(doors)


def test_a_stranger_who_listens_under_the_name_of_a_peer_is_no_peer(start, peers, listening):
    a = start("decode", DECODE)
    listening(peers / "prefill.peer.sock", STRANGER)
    error = why_no_peer(a, "prefill", f"unix:{peers}/prefill.peer.sock")
    assert error["code"] == "permission_denied" and f"uid {STRANGER}" in error["detail"], error
    b = start("prefill", PREFILL, wait=False)
    assert b.process.wait(10) == 1
    assert f"prefill.peer.sock' of user {STRANGER}" in b.log, b.log


def test_nobody_takes_away_the_sockets_of_another(start, peers):
    start("decode", DECODE)
    for name in ("decode.peer.sock", "decode.fds.sock", "decode.peer.lock"):
        assert by(STRANGER, lambda: os.unlink(peers / name)) == f"errno {errno.EPERM}", name
        assert by(STRANGER, lambda: os.rename(peers / name, peers / "gone")) == f"errno {errno.EPERM}", name


def refused(start, name="prefill"):
    """The log of a sidecar that must not start."""
    sidecar = start(name, PREFILL, wait=False)
    assert sidecar.process.wait(10) == 1, sidecar.log
    return sidecar.log


@pytest.mark.parametrize("name", ["prefill.peer.lock", "prefill.peer.sock", "prefill.fds.sock"])
def test_a_link_in_the_place_of_a_file_is_not_followed(start, peers, folder, name):
    for victim in (folder / "victim", folder / "absent"):
        if victim.name == "victim":
            victim.write_text("precious")
            os.chown(victim, PREFILL, PREFILL)
            victim.chmod(0o600)
        by(STRANGER, lambda: os.symlink(victim, peers / name))
        assert name in refused(start)
        assert (peers / name).is_symlink()
        (peers / name).unlink()
    assert (victim := folder / "victim").read_text() == "precious"
    assert stat.S_IMODE(victim.stat().st_mode) == 0o600
    assert not (folder / "absent").exists()


@pytest.mark.parametrize("kind", ["file", "fifo", "folder"])
def test_a_name_that_a_stranger_took_is_said_with_whose_it_is(start, peers, kind):
    path = peers / "prefill.peer.lock"
    make = {"file": lambda: os.close(os.open(path, os.O_CREAT, 0o666)), "fifo": lambda: os.mkfifo(path, 0o666),
            "folder": lambda: os.mkdir(path, 0o777)}
    assert by(STRANGER, lambda: (os.umask(0), make[kind]())[1]) == "None"
    log = refused(start)
    assert "prefill.peer.lock" in log and f"user {STRANGER}" in log and "--name" in log, log
    assert start("other-name", PREFILL).ask("GET", "/readyz")[0] == 200


def test_a_folder_where_users_can_take_each_others_sockets_is_refused(start, peers):
    peers.chmod(0o777)
    assert "sticky bit" in refused(start)
    peers.chmod(0o1777)
    start("prefill", PREFILL)


@pytest.mark.parametrize("uids", ["nobody", "5-4", "-1", "1,,x", "4294967295", "99999999999"])
def test_users_that_are_none_are_a_usage_error(start, uids):
    sidecar = start("prefill", PREFILL, flags=[f"--node-uids={uids}"], wait=False)
    assert sidecar.process.wait(10) == 2
    assert "--node-uids" in sidecar.log
