"""Two sidecars that meet over TCP, with certificates and with a token; and those that must not."""

import json
import re
import socket
import subprocess
import time

import pytest
from certificates import Authority
from conftest import BIN_DIR
from workloads import UP_MS, wait_for

TCP = ["--peer-listen", "127.0.0.1:0"]


def address_of(sidecar, what):
    """host:port that the sidecar's log says of `what`."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        found = re.search(f'"{what}","address":"([^"]+)"', sidecar.log)
        if found:
            return found.group(1)
        time.sleep(0.02)
    raise AssertionError(sidecar.log)


def tcp_address(sidecar):
    return address_of(sidecar, "the peer API listens on TCP")


def meet(initiator, owner, wait_ms=UP_MS):
    """Answers when the peer is up, or after that time."""
    status, peer = initiator.ask("PUT", f"/v1/peers/{owner.name}?wait_ms={wait_ms}", {"address": tcp_address(owner)})
    assert status == 201, peer
    return peer


def refusals(sidecar):
    text = sidecar.ask("GET", "/metrics")[1]
    return {reason: int(float(count))
            for reason, count in re.findall(r'^gantry_peer_refusals_total\{reason="(\w+)"\} (\S+)', text, re.M)}


def assert_refused(initiator, owner, code, reason=None):
    peer = meet(initiator, owner, wait_ms=5_000)
    assert peer["state"] != "up"
    assert peer["error"]["code"] == code, peer
    if reason:
        deadline = time.monotonic() + 3
        while refusals(owner)[reason] == 0 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert refusals(owner)[reason] > 0, refusals(owner)


@pytest.fixture
def authority(folder):
    return Authority(folder, "authority")


def test_without_certificates_on_loopback(start_sidecar):
    a, b = start_sidecar("a", flags=TCP), start_sidecar("b", flags=TCP)
    peer = meet(a, b)
    assert peer["state"] == "up", peer
    assert peer["generation"] == b.ask("GET", "/v1/status")[1]["generation"]
    assert peer["rtt_us"] > 0
    reasons = {path["path"]: path["reason"] for path in peer["paths"] if not path["available"]}
    assert "over TCP" in reasons["shm"]
    began = time.monotonic()
    assert a.ask("DELETE", "/v1/peers/b")[0] == 204
    assert time.monotonic() - began < 2
    assert a.ask("GET", "/v1/peers/b")[0] == 404


def test_with_certificates(start_sidecar, authority):
    a = start_sidecar("a", flags=TCP + authority.issue("a", "URI:spiffe://test/a,IP:127.0.0.1"))
    b = start_sidecar("b", flags=TCP + authority.issue("b", "URI:spiffe://test/b,IP:127.0.0.1"))
    assert meet(a, b)["state"] == "up"
    assert meet(b, a)["state"] == "up"
    assert sum(refusals(b).values()) == 0


def test_the_log_of_certificates_is_json_and_tells_of_handshakes_that_failed(start_sidecar, authority, folder):
    """A certificate without a host's name, as cert-manager makes it, is nothing to tell; one that nobody trusts is."""
    names = ["--peer-tls-names", "spiffe://test/*"]
    a = start_sidecar("a", flags=TCP + authority.issue("a", "URI:spiffe://test/a") + names)
    b = start_sidecar("b", flags=TCP + authority.issue("b", "URI:spiffe://test/b") + names)
    stranger = start_sidecar("c", flags=Authority(folder, "other").issue("c", "URI:spiffe://test/c") + names)
    assert meet(a, b)["state"] == "up"
    assert_refused(stranger, b, "peer_unavailable", None)

    def told(sidecar):
        """Of handshakes that failed; every line is JSON, and none an error."""
        lines = [json.loads(line) for line in sidecar.log.splitlines()]
        assert [line for line in lines if line["level"] == "error"] == []
        return [line["said"] for line in lines if line["message"] == "a TLS handshake with a peer failed"]
    wait_for(lambda: any("certificate verify failed" in said for said in told(stranger)), 10, "the stranger's log")
    with socket.create_connection(tcp_address(b).rsplit(":", 1)) as not_tls:
        not_tls.sendall(b"GET / HTTP/1.1\r\n\r\n")
        not_tls.recv(100)
    wait_for(lambda: told(b), 10, "the owner's log")
    assert len(told(b)) == 1 and "http request" in told(b)[0], b.log
    assert told(a) == []


def test_with_a_token(start_sidecar, folder):
    (folder / "token").write_text("0123456789abcdef0123456789abcdef\n")
    (folder / "wrong-token").write_text("0123456789abcdef0123456789abcdeX\n")
    b = start_sidecar("b", flags=TCP + ["--peer-token-file", str(folder / "token")])
    a = start_sidecar("a", flags=["--peer-token-file", str(folder / "token")])
    assert meet(a, b)["state"] == "up"
    wrong = start_sidecar("wrong", flags=["--peer-token-file", str(folder / "wrong-token")])
    assert_refused(wrong, b, "unauthenticated", "token_wrong")
    assert_refused(start_sidecar("none"), b, "unauthenticated", "token_missing")
    assert a.ask("GET", "/v1/peers/b")[1]["state"] == "up"


def test_certificates_of_strangers_and_expired_ones_get_nothing(start_sidecar, folder, authority):
    b = start_sidecar("b", flags=TCP + authority.issue("b", "IP:127.0.0.1"))
    flags = Authority(folder, "stranger").issue("s", "URI:spiffe://test/s")
    flags[-1] = str(authority.certificate)  # it trusts b, but b does not trust it
    assert_refused(start_sidecar("s", flags=flags), b, "peer_unavailable", "certificate_untrusted")
    expired = start_sidecar("e", flags=authority.issue("e", "URI:spiffe://test/e", days=-1))
    assert_refused(expired, b, "peer_unavailable", "certificate_expired")
    assert_refused(start_sidecar("plain"), b, "peer_unavailable")


def test_an_owner_with_another_name_is_not_talked_to(start_sidecar, authority):
    b = start_sidecar("b", flags=TCP + authority.issue("b", "DNS:elsewhere.svc"))
    a = start_sidecar("a", flags=authority.issue("a", "URI:spiffe://test/a"))
    assert_refused(a, b, "peer_unavailable")
    c = start_sidecar("c", flags=authority.issue("c", "URI:spiffe://test/c") + ["--peer-tls-names", "x,*.svc"])
    assert meet(c, b)["state"] == "up"


def test_rules_decide_by_name(start_sidecar, folder, authority):
    (folder / "rules").write_text("# who           what\nspiffe://test/a  engine-*  read\n")
    b = start_sidecar("b", flags=TCP + authority.issue("b", "IP:127.0.0.1") + ["--peer-rules", str(folder / "rules")])
    assert meet(start_sidecar("a", flags=authority.issue("a", "URI:spiffe://test/a")), b)["state"] == "up"
    other = start_sidecar("o", flags=authority.issue("o", "URI:spiffe://test/o"))
    assert_refused(other, b, "permission_denied", "name_not_allowed")


def refuses_to_start(tmp_path, *flags):
    result = subprocess.run([BIN_DIR / "gantry-sidecar", "--run-dir", str(tmp_path / "run"), "--workers", "1", *flags],
                            capture_output=True, text=True, timeout=20)
    assert result.returncode == 1, result.stderr
    return result.stderr


def test_beyond_loopback_needs_protection(tmp_path):
    token = tmp_path / "token"
    token.write_text("0123456789abcdef\n")
    assert "--peer-tls-cert" in refuses_to_start(tmp_path, "--peer-listen", "0.0.0.0:0")
    assert "--peer-plaintext" in refuses_to_start(tmp_path, "--peer-listen", "0.0.0.0:0",
                                                  "--peer-token-file", str(token))


def test_settings_that_contradict_each_other_are_refused(tmp_path):
    assert "all of its three files" in refuses_to_start(tmp_path, "--peer-tls-cert", "/nonexistent")
    assert "certificates" in refuses_to_start(tmp_path, "--peer-rules", "/nonexistent")
    assert "--peer-plaintext" in refuses_to_start(tmp_path, "--peer-plaintext")


def test_addresses_are_checked(start_sidecar):
    a = start_sidecar("a")
    for address in ("10.0.0.1", "10.0.0.1:0", "fd00::1:7000", "bad_host!:7000", "1.2.3:70", "unix:relative"):
        status, problem = a.ask("PUT", "/v1/peers/x", {"address": address})
        assert (status, problem["code"]) == (400, "invalid_argument"), (address, problem)
    status, problem = a.ask("PUT", "/v1/peers/x", {"address": "peer.example:7000"})
    assert (status, problem["code"]) == (403, "permission_denied")
    assert "--peer-tls-cert" in problem["hint"]


def test_health_has_a_port_of_its_own(start_sidecar):
    a = start_sidecar("a", flags=["--health-listen", "127.0.0.1:0"])
    port = int(address_of(a, "health is served").split(":")[1])
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5))
        assert connection.recv(9)[3:4] == b"\x04"  # SETTINGS
