"""The Python package: which side is to move the bytes, as it is asked for and as it is told."""

import socket
import threading

import cbor2
import pytest

from python_client_parts import MIB, gantry, pair  # noqa: F401


def forward(source, sink, kept):
    with source, sink:
        try:
            while data := source.recv(65536):
                kept += data
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # the other direction has ended


@pytest.fixture
def overheard(sidecar):
    """(a socket that stands before the sidecar's API, every byte that was said to it)"""
    path, said = sidecar.run_dir / "tap.sock", bytearray()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def accept():
            while True:
                try:
                    caller = listener.accept()[0]
                except OSError:
                    return
                server = socket.socket(socket.AF_UNIX)
                server.connect(str(sidecar.api_socket))
                for ends in ((caller.dup(), server.dup(), said), (server, caller, bytearray())):
                    threading.Thread(target=forward, args=ends, daemon=True).start()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield path, said
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(5)


def test_the_request_says_who_is_to_move_the_bytes(sidecar, overheard):
    path, said = overheard
    with gantry.Client(path, "w", handoff_socket=sidecar.handoff_socket) as client:
        memory = client.arena(MIB)
        local, _other = client.register("k", memory.view(0, 64)), client.register("r", memory.view(64, 64))
        for executor in ("any", "self", "peer"):
            for move in (client.read, client.write):
                del said[:]
                try:
                    move(local, "w/r", ranges=[(0, 0, 0, 0, 8)], executor=executor)
                except gantry.Error:
                    pass  # this sidecar is no peer of itself
                head, body = bytes(said)[bytes(said).index(b"POST /v1/transfers?"):].split(b"\r\n\r\n", 1)
                assert cbor2.loads(body).get("executor", "any") == executor
                assert b"executor" not in body or executor != "any"
        del said[:]
        for wrong in ("", "both", None, 1, ["self"]):
            with pytest.raises(gantry.Error) as caught:
                client.read(local, "w/r", ranges=[(0, 0, 0, 0, 8)], executor=wrong)
            assert (caught.value.code, caught.value.field) == ("invalid_argument", "executor")
        assert not said


def test_the_status_says_who_moved_the_bytes(pair):
    named = {"local_blocks": [0], "remote_blocks": [1]}
    for executor in ("any", "self"):
        transfer = pair.client.read(pair.buffer, "a/prefill/k.0", executor=executor, **named)
        assert transfer.wait(5).executor == "self"
        assert transfer.details()["executor"] == "self" and "requested_by" not in transfer.details()
