"""The numbers that docs/rest_api.yaml says of limits are those that the program has: one less is taken, one more refused."""

import re
import socket

import pytest
from conftest import ROOT, UnixConnection
from python_client_parts import gantry
from rest_contract import DOCUMENT, check_response

KIB, MIB = 1 << 10, 1 << 20


def said(response, pattern):
    text = DOCUMENT["components"]["responses"][response]["description"]
    return int(re.search(pattern, text)[1])


HEAD = said("HeadTooLarge", r"over (\d+) KiB") * KIB
HEADERS = said("HeadTooLarge", r"or (\d+) headers")
TARGET = said("TargetTooLong", r"over (\d+) KiB") * KIB
BODY = said("BodyTooLarge", r"over (\d+) MiB") * MIB
STREAMS = int(re.search(r"At most (\d+) streams", DOCUMENT["paths"]["/v1/events"]["get"]["description"])[1])


def send(sidecar, head, body=b""):
    """(status, code) of what these bytes are answered, which the document has."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(10)
        client.connect(str(sidecar.api_socket))
        client.sendall(head)
        try:
            client.sendall(body)
        except OSError:
            pass  # the answer came before the end
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += client.recv(65536)
        lines, _, rest = answer.partition(b"\r\n\r\n")
        length = int(re.search(rb"(?i)content-length: (\d+)", lines)[1])
        while len(rest) < length:
            rest += client.recv(65536)
        content_type = re.search(rb"(?i)content-type: (\S+)", lines)[1].decode()
        method, target = head.split(b" ", 2)[:2]
        status = int(lines.split(b" ")[1])
        value = check_response(method.decode(), target.split(b"?")[0].decode(), status, content_type, rest)
        return status, value.get("code")


def head_of(size, headers=1, target="/v1/info", name="X"):
    """A head of so many bytes and headers."""
    line = f"GET {target} HTTP/1.1\r\n"
    others = "".join(f"A{i}: b\r\n" for i in range(headers - 1))
    last = f"{name}: "
    fill = size - len(line) - len(others) - len(last) - 4
    return (line + others + last + "c" * max(fill, 1) + "\r\n\r\n").encode()


@pytest.mark.parametrize("size", [8 * KIB - 64, 8190, 8192, 8193, 8 * KIB + 64, HEAD])
@pytest.mark.parametrize("name", ["X", "Cookie", "User-Agent"])
def test_a_head_up_to_the_limit_is_taken_however_long_its_lines(sidecar, size, name):
    assert len(head_of(size, name=name)) == size
    assert send(sidecar, head_of(size, name=name)) == (200, None)
    assert send(sidecar, head_of(size, headers=HEADERS, name=name)) == (200, None)


def test_a_head_over_the_limit_is_431(sidecar):
    assert send(sidecar, head_of(HEAD + 1)) == (431, "head_too_large")
    assert send(sidecar, head_of(HEAD + 1, headers=3)) == (431, "head_too_large")
    assert send(sidecar, head_of(2 * HEAD)) == (431, "head_too_large")
    assert send(sidecar, head_of(0, headers=HEADERS + 1)) == (431, "head_too_large")
    assert send(sidecar, head_of(0, headers=HEADERS)) == (200, None)


def test_a_long_token_is_unknown_and_no_broken_request(sidecar):
    head = f"GET /v1/workloads HTTP/1.1\r\nAuthorization: Bearer {'f' * 9000}\r\n\r\n".encode()
    assert send(sidecar, head) == (401, "unauthenticated")


def test_a_long_list_of_media_types_is_read_to_its_end(sidecar):
    connection = UnixConnection(sidecar.api_socket)
    connection.request("GET", "/v1/info", headers={"Accept": ", ".join(["text/x"] * 1200 + ["application/cbor"])})
    assert connection.getresponse().getheader("Content-Type") == "application/cbor"
    connection.close()


def test_a_target_over_the_limit_is_414(sidecar):
    # A parameter that is not known is 400: it was read.
    query = "/v1/info?x="
    for more, expected in ((0, (400, "invalid_argument")), (1, (414, "target_too_long"))):
        target = query + "y" * (TARGET - len(query) + more)
        assert send(sidecar, f"GET {target} HTTP/1.1\r\n\r\n".encode()) == expected


def test_a_body_over_the_limit_is_413(sidecar):
    for more, expected in ((0, (400, "malformed_body")), (1, (413, "body_too_large"))):
        head = f"POST /v1/transfers HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: {BODY + more}\r\n\r\n"
        assert send(sidecar, head.encode(), b" " * (BODY + more)) == expected
    assert sidecar.ask("GET", "/v1/status")[1]["limits"]["body_bytes_max"] == BODY


def test_so_many_streams_there_are(sidecar):
    assert sidecar.ask("PUT", "/v1/workloads/w", {"engine_id": "x"})[0] == 201
    connections = []
    try:
        for number in range(STREAMS + 1):
            connections.append(UnixConnection(sidecar.api_socket))
            connections[-1].request("GET", "/v1/events?workload=w")
            assert connections[-1].getresponse().status == (200 if number < STREAMS else 429)
    finally:
        for each in connections:
            each.close()


SCHEMAS = DOCUMENT["components"]["schemas"]


def maximum(schema, field, key):
    return SCHEMAS[schema]["properties"][field][key]


VALUES = {  # of a field: where it is sent, and in what
    ("WorkloadRequest", "engine_id", "maxLength"): ("PUT", "/v1/workloads/w", {}),
    ("WorkloadRequest", "ttl_ms", "maximum"): ("PUT", "/v1/workloads/w", {"engine_id": "x"}),
    ("TransferRequest", "priority", "maximum"): ("POST", "/v1/transfers", {"workload": "w", "op": "read"}),
    ("TransferRequest", "user_data", "maxLength"): ("POST", "/v1/transfers", {"workload": "w", "op": "read"}),
    ("TransferRequest", "hold_consumers", "maximum"): ("POST", "/v1/transfers", {"workload": "w", "op": "read", "hold": "h"}),
    ("PollRequest", "max", "maximum"): ("POST", "/v1/completions:poll", {"workload": "w", "cursor": 0}),
}


@pytest.mark.parametrize("schema,field,key", VALUES)
def test_a_field_has_the_documented_maximum(sidecar, schema, field, key):
    assert sidecar.ask("PUT", "/v1/workloads/w", {"engine_id": "x"})[0] == 201
    method, target, body = VALUES[schema, field, key]
    most = maximum(schema, field, key)
    for value, is_refused in ((most, False), (most + 1, True)):
        problem = sidecar.ask(method, target, {**body, field: "y" * value if key == "maxLength" else value})[1]
        assert (problem.get("field") == f"/{field}") == is_refused, problem


LISTS = {  # the document's number, and the constant that it is
    ("BufferSpec", "pieces"): ("sidecar/registry/buffer_registry.h", "pieces_per_buffer_max"),
    ("BufferSpec", "verify"): ("sidecar/registry/buffer_registry.h", "nonces_per_request_max"),
    ("RegistrationRequest", "allocations"): ("sidecar/registry/buffer_registry.h", "allocations_per_request_max"),
    ("RegistrationRequest", "buffers"): ("sidecar/registry/buffer_registry.h", "buffers_per_request_max"),
    ("ViewRequest", "groups"): ("lib/wire/view_body.h", "kViewGroupsMax"),
    ("BlockSlices", None): ("lib/wire/view_body.h", "kSlicesMax"),
    ("Pairs", None): ("sidecar/transfer/engine_options.h", "references_max"),
    ("TransferRequests", None): ("lib/wire/transfers_body.h", "kTransfersPerBodyMax"),
}


@pytest.mark.parametrize("schema,field", LISTS)
def test_a_list_has_the_documented_length(schema, field):
    path, name = LISTS[schema, field]
    value = re.search(rf"\b{name} = ([\d']+);", (ROOT / path).read_text())[1]
    documented = SCHEMAS[schema]["properties"][field] if field else SCHEMAS[schema]["oneOf"][1]
    assert documented["maxItems"] == int(value.replace("'", ""))


def test_the_python_client_has_the_paths_of_the_document():
    assert list(gantry.PATHS) == DOCUMENT["components"]["schemas"]["Path"]["enum"]
