"""The hand-off socket and the registration request without the client library, which refuses most mistakes itself."""

import json
import socket


class RawWorkload:
    """A lease taken over REST and attached by hand. Requests act with its token."""

    def __init__(self, sidecar, name):
        self.sidecar, self.name = sidecar, name
        status, lease = sidecar.ask("PUT", f"/v1/workloads/{name}", {})
        assert status == 201, lease
        self.token = lease["lease_token"]
        self.connection = connect(sidecar)
        assert self.say({"type": "attach", "version": 1, "lease_token": self.token})["type"] == "ok"

    def say(self, message, fds=()):
        return say(self.connection, message, fds)

    def hand_over(self, *fds):
        """The tokens of these descriptors."""
        reply = self.say({"type": "fds", "count": len(fds)}, fds)
        assert reply["type"] == "ok", reply
        return reply["tokens"]

    def register(self, token, size, pieces=None, access=("remote_read",), name="kv", **fields):
        """POST /v1/buffers for one buffer over one allocation. (status, body)."""
        pieces = [(0, size)] if pieces is None else pieces
        return self.sidecar.ask("POST", "/v1/buffers", {
            "workload": self.name, "allocations": [{"kind": "host", "fd_token": token, "size": size}],
            "buffers": [{"name": name, "access": list(access), "pieces": [
                {"allocation": 0, "offset": offset, "length": length} for offset, length in pieces], **fields}],
        }, headers={"Authorization": f"Bearer {self.token}"})

    def close(self):
        self.connection.close()


def connect(sidecar):
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(5)
    connection.connect(str(sidecar.handoff_socket))
    return connection


def say(connection, message, fds=()):
    """Sends a message (an object, or bytes as they are) with descriptors. The reply; None: it was hung up."""
    payload = message if isinstance(message, bytes) else json.dumps(message).encode()
    try:
        socket.send_fds(connection, [payload], list(fds))
        reply = connection.recv(1 << 16)
    except (BrokenPipeError, ConnectionResetError):
        return None
    return json.loads(reply) if reply else None
