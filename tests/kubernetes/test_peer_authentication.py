"""Secrets by which peers know each other over TCP: a token that outlives upgrades, and certificates that are there already."""

import base64
import subprocess

import pytest

from test_peers_on_a_node import SIZE, moves


def secret_of(cluster, namespace, name):
    return cluster.api("GET", f"/api/v1/namespaces/{namespace}/secrets/{name}")


def with_memory(*engines):
    for seed, engine in enumerate(engines):
        engine.do("allocate", "kv", SIZE, seed)
    return engines


def test_a_token_is_kept_over_upgrades_and_the_releases_end(cluster, installed, workloads):
    """Pods from before an upgrade and from after it know each other."""
    namespace = workloads.namespace()
    release = workloads.start(namespace, {"a": {}})
    (a,) = with_memory(workloads.engine(namespace, "a"))
    before = secret_of(cluster, namespace, f"{release}-gantry-peer-token")
    assert len(base64.b64decode(before["data"]["token"])) == 48

    workloads.upgrade(release, namespace, {"a": {}, "b": {}}, {"commonLabels": {"is": "upgraded"}})
    (b,) = with_memory(workloads.engine(namespace, "b"))
    after = secret_of(cluster, namespace, f"{release}-gantry-peer-token")
    assert after["metadata"]["labels"]["is"] == "upgraded"
    assert (after["data"], after["metadata"]["uid"]) == (before["data"], before["metadata"]["uid"])
    a.connect(b, over="tcp")
    moves(a, b, "tcp")

    installed.uninstall(release, namespace)
    assert secret_of(cluster, namespace, f"{release}-gantry-peer-token")["data"] == before["data"]
    workloads.upgrade(release, namespace, {"c": {}})
    assert secret_of(cluster, namespace, f"{release}-gantry-peer-token")["data"] == before["data"]


class Authority:
    """Certificates by openssl, as somebody has them who runs no cert-manager."""

    def __init__(self, folder):
        folder.mkdir()
        self.folder = folder
        self._openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", "ca.key",
                      "-out", "ca.crt", "-subj", "/CN=peers", "-days", "2")

    def secret(self, namespace, name):
        """One that sidecars of the namespace may have: by the name in the certificate."""
        self._openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", "tls.key",
                      "-out", "tls.csr", "-subj", "/CN=sidecar")
        (self.folder / "names").write_text(f"subjectAltName=URI:spiffe://cluster.local/ns/{namespace}/gantry/{name}\n"
                                           "extendedKeyUsage=serverAuth,clientAuth\n")
        self._openssl("x509", "-req", "-in", "tls.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
                      "-out", "tls.crt", "-extfile", "names")
        files = {file: base64.b64encode((self.folder / file).read_bytes()).decode() for file in ("tls.crt", "tls.key", "ca.crt")}
        return {"metadata": {"name": name}, "type": "kubernetes.io/tls", "data": files}

    def _openssl(self, *arguments):
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=self.folder)


@pytest.mark.parametrize("data_tls", [False, True], ids=["data in the clear", "data through TLS"])
def test_certificates_of_ones_own(cluster, workloads, tmp_path, data_tls):
    """From a Secret that the release names; one of another authority, and a pod without a certificate, are turned away."""
    namespace = workloads.namespace()
    for authority, name in ((Authority(tmp_path / "ours"), "ours"), (Authority(tmp_path / "theirs"), "theirs")):
        cluster.api("POST", f"/api/v1/namespaces/{namespace}/secrets", authority.secret(namespace, name))

    def by(name):
        return {"authentication": {"mode": "auto", "certificates": {"existingSecret": name}}, "flags": {"data-tls": data_tls}}
    a, b = with_memory(*workloads.engines(namespace, {"a": {}, "b": {}}, by("ours")))
    arguments = cluster.pod(namespace, "a")["spec"]["initContainers"][0]["args"]
    assert "--peer-tls-cert=/etc/gantry/peer-certificate/tls.crt" in arguments and "--peer-plaintext" not in arguments
    a.connect(b, over="tcp")
    moves(a, b, "tcp")

    strangers = [*workloads.engines(namespace, {"stranger": {}}, by("theirs")), *workloads.engines(namespace, {"nobody": {}})]
    for stranger in strangers:
        status, answer = stranger.rest("PUT", "/v1/peers/b", {"address": f"{b.address}:9461"})
        assert answer.get("state") != "up", (stranger.pod, status, answer)
