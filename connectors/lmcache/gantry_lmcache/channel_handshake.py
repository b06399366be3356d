"""The answer by which one server finds the memory of another, and the question for it."""

from __future__ import annotations

import ipaddress
import json
import re
import socket as sockets
from dataclasses import asdict, dataclass, fields
from typing import Any

import gantry
import zmq

PROTOCOL = 1
_KEY = "gantry_lmcache"
_TYPES = {"str": str, "int": int, "float": (int, float)}
_NAME = r"[A-Za-z0-9._:+=-]{1,128}"
_FORMS = {"life": _NAME, "peer": _NAME, "sidecar": _NAME, "workload": f"{_NAME}@{_NAME}", "buffer": f"{_NAME}@{_NAME}",
          "address": r"unix:/[^\0]{1,107}|\S{1,255}:\d{1,5}", "node_id": r"[!-~]{0,128}"}
_AGE_MAX = 1e9
_ANSWER_BYTES_MAX = 65_536


@dataclass(frozen=True)
class Handshake:
    """
    life      random, new for each process of the server: addresses of another process mean nothing
    age       seconds for which this process has answered
    peer, sidecar, address, node_id   its sidecar: name, generation, where other sidecars reach it, and its node
    workload  of the sidecar, "name@generation"
    buffer    of the workload, "name@generation": all of the server's L1 memory
    size      of the buffer, in bytes
    """

    life: str
    age: float
    peer: str
    sidecar: str
    address: str
    node_id: str
    workload: str
    buffer: str
    size: int


def question() -> bytes:
    return json.dumps({_KEY: PROTOCOL}).encode()


def answer(request: bytes, handshake: "Handshake | gantry.Error") -> bytes:
    """The answer to a question, or to what is none. Never raises."""
    try:
        asked = json.loads(request)
        version = asked.get(_KEY) if isinstance(asked, dict) else None
    except (ValueError, RecursionError):
        version = None
    if version != PROTOCOL:
        return _refusal("version_mismatch", f"the question is of protocol {version!r}, and this server speaks {PROTOCOL}")
    if isinstance(handshake, gantry.Error):
        return _refusal(handshake.code, handshake.message)
    return json.dumps({_KEY: PROTOCOL, **asdict(handshake)}).encode()


def handshake_of(reply: bytes) -> Handshake:
    """Raises gantry.Error for a refusal, and for what is no answer."""
    try:
        said = json.loads(reply)
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict) or said.get(_KEY) != PROTOCOL:
        raise gantry.Error("version_mismatch", f"the answer is none of protocol {PROTOCOL} of Gantry's transfer channel",
                           "start all servers with --p2p-transfer-engine gantry and one version of gantry-lmcache")
    if "code" in said:
        raise gantry.Error(str(said["code"]), f"the server answers: {said.get('message')}")
    values: dict[str, Any] = {}
    for field in fields(Handshake):
        values[field.name] = said.get(field.name)
        if not isinstance(values[field.name], _TYPES[str(field.type)]):  # type: ignore[arg-type]
            raise gantry.Error("version_mismatch", f"{field.name} of the answer is {values[field.name]!r}")
    for name, form in _FORMS.items():
        if not re.fullmatch(form, values[name]):
            raise gantry.Error("version_mismatch", f"{name} of the answer is {values[name][:200]!r}")
    if not 0 <= values["age"] < _AGE_MAX or values["size"] < 0:  # an age may be NaN
        raise gantry.Error("version_mismatch", f"age and size of the answer are {values['age']!r} and {values['size']!r}")
    return Handshake(**values)


def ask(context: "zmq.Context[Any]", url: str, seconds: float, any_host: bool = False) -> Handshake:
    """Asks the server at "HOST:PORT" who it is. Raises gantry.Error "peer_unavailable" where none answers in time.

    Raises "invalid_argument" where its sidecar is at another host than the server, unless `any_host`.
    """
    socket = context.socket(zmq.REQ)
    try:
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.IPV6, 1)
        socket.setsockopt(zmq.MAXMSGSIZE, _ANSWER_BYTES_MAX)
        socket.connect(endpoint(url))
        socket.send(question())
        if not socket.poll(int(seconds * 1000)):
            raise gantry.Error("peer_unavailable", f"the LMCache server at {url} does not answer within {seconds:g} s",
                               "check its --p2p-advertise-url, and that its port can be reached")
        parts = socket.recv_multipart()
        found = handshake_of(parts[0] if len(parts) == 1 else b"")
    except zmq.ZMQError as error:
        raise gantry.Error("peer_unavailable", f"the LMCache server at {url} cannot be asked: {error}",
                           "an advertised URL is HOST:PORT") from None
    finally:
        socket.close(linger=0)
    if not any_host:
        _check_host(url, found.address)
    return found


def endpoint(url: str) -> str:
    """ZMQ's name of "HOST:PORT". Raises gantry.Error for what is none."""
    bare = url.split("://", 1)[-1]
    host, _, port = bare.rpartition(":")
    if not host or not port.isdigit():
        raise gantry.Error("invalid_argument", f"{url!r} is not HOST:PORT")
    return f"tcp://{bare}"


def host_of(url: str) -> str:
    """The host of "HOST:PORT"; that of an IPv6 address keeps its brackets."""
    return url.split("://", 1)[-1].rpartition(":")[0]


def _refusal(code: str, message: str) -> bytes:
    return json.dumps({_KEY: PROTOCOL, "code": code, "message": message}).encode()


def _check_host(url: str, address: str) -> None:
    """The sidecar of this pod shows its token at the address, so a stranger's word is not enough for it."""
    host, asked = host_of(address), host_of(url)
    if address.startswith("unix:") or host == asked or (_is_number(host) and host.strip("[]") in _numbers_of(asked)):
        return
    raise gantry.Error("invalid_argument", f"the server at {url} says that its sidecar is at {address}, which is another host",
                       'where sidecars have addresses of their own, set peer_hosts to "any"')


def _is_number(host: str) -> bool:
    """A name that the other server chose is not resolved: that may take long, and the sidecar would resolve it again."""
    try:
        return bool(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        return False


def _numbers_of(host: str) -> set[str]:
    try:
        return {str(found[4][0]) for found in sockets.getaddrinfo(host.strip("[]"), None)}
    except (OSError, UnicodeError):
        return set()
