"""What errors say to the one who made the call."""

import contextlib
import os
import signal
import socket
import subprocess
import threading
from pathlib import Path

import pytest

from conftest import BIN_DIR, program_for_all_users
from python_client_parts import BLOCK, arena, client, gantry, run_script, wait_until  # noqa: F401

NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")


def said(call, *arguments, **named):
    with pytest.raises(gantry.Error) as caught:
        call(*arguments, **named)
    return caught.value


def states_of(process):
    """Of its threads."""
    return {Path(task, "stat").read_text().rsplit(")", 1)[1].split()[0] for task in Path(f"/proc/{process}/task").iterdir()}


def gantryctl(*words, program=BIN_DIR / "gantryctl", **options):
    done = subprocess.run([program, *map(str, words)], capture_output=True, text=True, timeout=30, **options)
    return done.returncode, done.stderr


@pytest.mark.parametrize("call, code, words", [
    (lambda c, a, b: c.arena(4096, name="x" * 400), "invalid_argument", ["400 bytes", "249", "shorter"]),
    (lambda c, a, b: c.register("l", a.view(0, BLOCK), layout=gantry.Layout(2 * BLOCK)), "out_of_range", ["8192", "4096"]),
    (lambda c, a, b: c.register("a b", a), "invalid_argument", ['"a b"', "A-Za-z0-9"]),
    (lambda c, a, b: c.register("n" * 500, a), "invalid_argument", ['"nnnn', '"...']),
    (lambda c, a, b: c.register("l", 5), "invalid_argument", ["of the type int"]),
    (lambda c, a, b: c.register("l", a.view(0, 0)), "invalid_argument", ["has no bytes"]),
    (lambda c, a, b: c.register("l", a, access="write"), "invalid_argument", ["'write'", "remote_write"]),
    (lambda c, a, b: c.read(b, "w/k", local_blocks=[0], remote_blocks=[1], require_path="nvlink"), "invalid_argument",
     ['"nvlink"', ", ".join(gantry.PATHS[:-1]) + f" and {gantry.PATHS[-1]}"]),
    (lambda c, a, b: c.notify("w", b"x" * 70000), "invalid_argument", ["70000 bytes", "65536"]),
    (lambda c, a, b: c.adopt(999), "invalid_argument", ["descriptor 999"]),
    (lambda c, a, b: c.request("FETCH", "/v1/info"), "invalid_argument", ['"FETCH"', "PATCH"]),
    (lambda c, a, b: c.request("GET", "v1/info"), "invalid_argument", ['"v1/info"']),
])
def test_an_error_names_what_was_given_and_what_may_be(client, arena, call, code, words):
    buffer = client.register("k", arena.view(0, 16 * BLOCK), layout=gantry.Layout(BLOCK))
    error = said(call, client, arena, buffer)
    assert error.code == code
    for word in words:
        assert word in str(error), str(error)


def test_a_library_of_another_version_is_said_to_be_one():
    code, out, err = run_script("""
        import _ctypes, os
        os.environ["GANTRY_LIBRARY"] = _ctypes.__file__  # a library that lacks what the package calls
        import gantry
    """)
    assert code == 1 and "AttributeError" not in err
    assert "ImportError" in err and "has no gantry_client_open: it is of another version than this package" in err


def test_a_sidecar_that_stands_still_is_said_to(sidecar):
    client = gantry.Client(sidecar.run_dir, "w", timeout=0.5)
    os.kill(sidecar.process.pid, signal.SIGSTOP)
    assert wait_until(lambda: states_of(sidecar.process.pid) == {"T"})
    try:
        error = said(client.request, "GET", "/v1/info")
        code, text = gantryctl("--socket", sidecar.api_socket, "status")
    finally:
        os.kill(sidecar.process.pid, signal.SIGCONT)
    assert error.code == "deadline_exceeded"
    assert "did not answer within 500 ms" in error.message and "stands still" in error.hint
    assert code == 3 and "runs and did not answer within 10 s" in text
    assert "start gantry-sidecar" not in text


@as_root
def test_a_socket_that_another_user_may_not_use(sidecar):
    for folder in (sidecar.run_dir, *sidecar.run_dir.parents):
        if str(folder).startswith("/tmp/"):
            folder.chmod(0o755)
    code, out, err = run_script("""
        import gantry, os, sys
        os.setegid(65534)
        os.seteuid(65534)
        try:
            gantry.Client(sys.argv[1], "w")
        except gantry.Error as error:
            print(error)
        """, sidecar.run_dir, extra_groups=[])
    assert (code, err) == (0, "")
    assert out.startswith("peer_unavailable: ") and "Permission denied" in out
    assert f"user {NOBODY} may not use this socket" in out and "running" not in out
    code, text = gantryctl("--socket", sidecar.api_socket, "status", user=NOBODY, group=NOBODY, extra_groups=[],
                           program=program_for_all_users("gantryctl", sidecar.run_dir.parent))
    assert code == 3 and f"user {NOBODY} may not use this socket" in text and "start gantry-sidecar" not in text


def test_gantryctl_says_what_is_at_the_socket(sidecar, tmp_path):
    assert gantryctl("--socket", sidecar.run_dir, "status") == (0, "")
    code, text = gantryctl("--socket", tmp_path / "none.sock", "status")
    assert code == 3 and "start gantry-sidecar" in text
    code, text = gantryctl("--socket", sidecar.handoff_socket, "status")
    assert code == 3 and "the API socket is api.sock" in text
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "other.sock"))
        listener.listen()

        def answer():
            with listener.accept()[0] as caller, contextlib.suppress(BrokenPipeError):
                caller.recv(1024)
                caller.sendall(b"hello\r\n\r\n")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        code, text = gantryctl("--socket", tmp_path / "other.sock", "status")
        assert code == 3 and "ended the connection without an answer" in text


@pytest.mark.parametrize("words, says", [
    (["statu"], ["'statu' is no command", "status, buffers"]),
    (["buffers", "--workload", "a&b"], ["--workload", '"a&b"']),
    (["bench", "--bytes", "1GiB"], ["gantryctl: 'bench' is now the program gantry-bench"]),
])
def test_gantryctl_says_which_word_is_wrong(words, says):
    code, text = gantryctl(*words)
    assert code == 2
    for part in says:
        assert part in text, text


@pytest.mark.parametrize("flags, says", [
    (["--peer-listen", ":7580"], ["--peer-listen: ':7580'", "0.0.0.0:7580"]),
    (["--peer-listen", "7580"], ["--peer-listen: '7580'"]),
    (["--data-listen", "foo"], ["--data-listen: 'foo'"]),
    (["--health-listen", "300.1.1.1:9"], ["--health-listen: '300.1.1.1:9'"]),
    (["--metrics-listen", ":9464"], ["--metrics-listen: ':9464'"]),
    (["--rest-listen", "[::1]:x"], ["--rest-listen: '[::1]:x'"]),
    (["--name", "a b"], ['--name: "a b"']),
    (["--deadline-ms-max", "5"], ["30000", "(5)"]),
    (["--fds-max", "-1"], ["--fds-max", "-1"]),
    (["--peer-fds-max", "-1"], ["--peer-fds-max", "-1"]),
    (["--rdma-chunk-bytes", "-1"], ["--rdma-chunk-bytes", "-1"]),
    (["--shutdown-ms", str(2**62)], ["--shutdown-ms", "31536000000"]),
])
def test_the_sidecar_says_which_option_is_wrong(flags, says):
    done = subprocess.run([BIN_DIR / "gantry-sidecar", *flags], capture_output=True, text=True, timeout=20)
    assert done.returncode == 2
    for part in says:
        assert part in done.stderr, done.stderr
