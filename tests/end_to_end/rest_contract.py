"""docs/rest_api.yaml as something to check responses with, and a client that does so with each one."""

import array
import json
import mmap
import os
import re
import socket
from pathlib import Path

import cbor2
import jsonschema
import referencing
import yaml

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = yaml.safe_load((ROOT / "docs" / "rest_api.yaml").read_text())
METHODS = ("get", "put", "patch", "post", "delete")
REGISTRY = referencing.Registry().with_resource(
    "urn:rest", referencing.Resource(DOCUMENT, referencing.jsonschema.DRAFT202012))


def validate(value, schema):
    """Raises if the value is not as the schema says; references are to the document."""
    absolute = json.loads(json.dumps(schema).replace('"#/components', '"urn:rest#/components'))
    jsonschema.Draft202012Validator(absolute, registry=REGISTRY).validate(value)


def operations():
    """(path template, method, operation) of everything that is documented."""
    for path, item in DOCUMENT["paths"].items():
        for method in METHODS:
            if method in item:
                yield path, method, item[method]


def operation_of(method, target):
    path = target.split("?")[0]
    for template, each, operation in operations():
        pattern = "/".join("[^/]+" if part.startswith("{") else re.escape(part) for part in template.split("/"))
        if each == method.lower() and re.fullmatch(pattern, path):
            return operation
    raise AssertionError(f"{method} {path} is not documented")


def response_of(operation, status):
    response = operation["responses"].get(str(status))
    assert response is not None, f"{operation['operationId']}: {status} is not documented"
    reference = response.get("$ref", "").rsplit("/", 1)[-1]
    return DOCUMENT["components"]["responses"][reference] if reference else response


def check_response(method, target, status, content_type, body):
    """The status, the media type, the shape and (of a problem) the code are documented. Returns the value."""
    response = response_of(operation_of(method, target), status)
    if "content" not in response:
        assert body == b"", body
        return None
    assert content_type in response["content"], f"{content_type} is not documented for {status}"
    schema = response["content"][content_type]["schema"]
    if "json" in content_type:
        value = json.loads(body)
    elif "cbor" in content_type:
        value = cbor2.loads(body)
    else:
        return body.decode()
    validate(value, schema)
    if content_type == "application/problem+json":
        assert f"`{value['code']}`" in response["description"], f"{value['code']} is not documented for {status}"
        assert value["status"] == status and value["type"] == f"urn:gantry:error:{value['code']}"
    return value


class CheckedClient:
    """Asks over a connection that stays open, in JSON or CBOR, and checks each answer against the document."""

    def __init__(self, connection, cbor=False, token=None):
        self.connection = connection
        self.media_type = "application/cbor" if cbor else "application/json"
        self.token = token
        self.seen = set()

    def __call__(self, method, target, body=None, headers=None):
        """Returns (status, value)."""
        headers = {"Accept": self.media_type, **(headers or {})}
        if self.token:
            headers.setdefault("Authorization", f"Bearer {self.token}")
        if body is not None and not isinstance(body, bytes):
            body = cbor2.dumps(body) if "cbor" in self.media_type else json.dumps(body).encode()
        if body is not None:
            headers.setdefault("Content-Type", self.media_type)
        self.connection.request(method, target, body=body, headers=headers)
        answer = self.connection.getresponse()
        text = answer.read()
        self.seen.add((operation_of(method, target)["operationId"], answer.status))
        return answer.status, check_response(method, target, answer.status, answer.getheader("Content-Type"), text)


class Lease:
    """A workload's hand-off connection: attaches, hands descriptors over and holds the lease."""

    def __init__(self, handoff_socket, token):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(10)
        self.socket.connect(str(handoff_socket))
        self.ask({"type": "attach", "version": 1, "lease_token": token})

    def ask(self, message, fds=()):
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        self.socket.sendmsg([json.dumps(message).encode()], rights)
        reply = json.loads(self.socket.recv(65536))
        assert reply["type"] == "ok", reply
        return reply

    def hand_over(self, fd):
        return self.ask({"type": "fds", "count": 1}, [fd])["tokens"][0]

    def close(self):
        self.socket.close()


class Memory:
    """A sealed memfd and its bytes."""

    def __init__(self, size):
        import fcntl
        self.size = size
        self.fd = os.memfd_create("contract", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, size)
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        self.bytes = mmap.mmap(self.fd, size)

    def close(self):
        self.bytes.close()
        os.close(self.fd)
