"""/metrics on the pod network, over IPv4 and IPv6: by itself, and no reason to end late."""

import re
import signal
import time
import urllib.error
import urllib.request

import pytest

from workloads import wait_for


def scraped(host, port, path="/metrics"):
    with urllib.request.urlopen(f"http://{host}:{port}{path}", timeout=10) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


@pytest.mark.parametrize("address,hosts", [("0.0.0.0", ["127.0.0.1"]), ("[::]", ["127.0.0.1", "[::1]"]), ("[::1]", ["[::1]"])])
def test_it_is_served_where_it_was_asked_for(start_sidecar, address, hosts):
    sidecar = start_sidecar("a", flags=["--metrics-listen", f"{address}:0"])
    port = wait_for(lambda: re.search('"metrics are served".*?"port":"?(\\d+)', sidecar.log), 10, "the port of the metrics")[1]
    for host in hosts:
        kind, text = scraped(host, port)
        assert kind == "text/plain; version=0.0.4; charset=utf-8"
        assert "\ngantry_buffers 0\n" in text and "\nprocess_open_fds " in text, text[:2000]
        # The same as on the REST socket, but for what changes by itself.
        names = re.findall(r"^# TYPE (\S+)", text, re.M)
        assert names == re.findall(r"^# TYPE (\S+)", sidecar.ask("GET", "/metrics")[1], re.M)
        with pytest.raises(urllib.error.HTTPError) as refused:
            scraped(host, port, "/v1/status")
        assert refused.value.code == 404
    begin = time.monotonic()
    sidecar.process.send_signal(signal.SIGTERM)
    assert sidecar.process.wait(10) == 0
    assert time.monotonic() - begin < 1.5, "some milliseconds, if nobody polls each two seconds"


def test_an_address_that_cannot_be_is_named(start_sidecar, folder):
    sidecar = start_sidecar("a", flags=["--metrics-listen", "localhost:0"], wait=False)
    assert sidecar.process.wait(10) == 1
    assert "localhost:0" in sidecar.log and "[::]:9464" in sidecar.log
