"""Certificates by the real cert-manager: from the charts' objects to transfers through TLS, their renewals, and what is left of them."""

import pytest

from certmanager import CertManager
from cluster import SIDECAR, Refused, engine_spec, status_of, wait_for
from peer_certificates import Certificate, refusal, shown
from test_peer_authentication import secret_of, with_memory
from test_peers_on_a_node import SIZE, moves
from test_uninstall import objects

METRICS_PORT = 9464
ENCRYPTED = {"flags": {"data-tls": True}}
# What a node needs at most until it has a renewed secret in its pods, and they have read it.
RENEWED_SECONDS = 40


@pytest.fixture(scope="module")
def cert_manager(node, cluster):
    """There when a test begins, and not for other files' tests: what is installed then has certificates."""
    manager = CertManager(node, cluster)
    yield manager
    manager.uninstall()


@pytest.fixture
def manager(cert_manager):
    cert_manager.install()
    return cert_manager


@pytest.fixture
def certificate_of(cluster, tmp_path):
    return lambda namespace, name: Certificate(secret_of(cluster, namespace, name), tmp_path)


def sidecar_of(cluster, namespace, pod):
    return cluster.pod(namespace, pod)["spec"]["initContainers"][0]


def name_of(namespace, release):
    return f"spiffe://cluster.local/ns/{namespace}/gantry/{release}-gantry"


def encrypted_pair(workloads, namespace, certificates=None):
    """The release of two pods that know each other over tcp, and they, with memory."""
    release = workloads.start(namespace, {"a": {}, "b": {}}, ENCRYPTED | {"authentication": {"certificates": certificates or {}}})
    a, b = with_memory(*(workloads.engine(namespace, name) for name in "ab"))
    a.connect(b, over="tcp")
    return release, a, b


def metric(cluster, engine, series):
    return cluster.metrics(cluster.pod(engine.namespace, engine.pod), METRICS_PORT)[series]


def is_refused(cluster, engine, reason, by, own=None):
    """Who shows `own` to it, for that reason."""
    series = f'gantry_peer_refusals_total{{reason="{reason}"}}'
    before = metric(cluster, engine, series)
    return refusal(engine.address, by, own) is not None and metric(cluster, engine, series) == before + 1


def moved(cluster, engine, path):
    return metric(cluster, engine, f'gantry_transfer_bytes_total{{op="read",path="{path}"}}')


def test_the_cluster_says_whether_there_are_certificates(cluster, workloads, cert_manager):
    """By its definitions: a release from before has a token, and with an upgrade certificates; the token stays."""
    cert_manager.uninstall()
    namespace = workloads.namespace()
    release = workloads.start(namespace, {"before": {}})
    workloads.engine(namespace, "before")
    assert "--peer-token-file=/etc/gantry/peer-token/token" in sidecar_of(cluster, namespace, "before")["args"]
    assert secret_of(cluster, namespace, f"{release}-gantry-peer-token")

    cert_manager.install()
    workloads.upgrade(release, namespace, {"after": {}})
    workloads.engine(namespace, "after")
    assert "--peer-tls-cert=/etc/gantry/peer-certificate/tls.crt" in sidecar_of(cluster, namespace, "after")["args"]
    assert cert_manager.all(namespace, "certificates").keys() == {f"{release}-gantry-peer-{it}" for it in ("authority", "certificate")}
    assert secret_of(cluster, namespace, f"{release}-gantry-peer-token")


def test_pods_of_a_release_trust_each_other_and_nobody_else(cluster, workloads, manager, certificate_of):
    namespace = workloads.namespace()
    release, a, b = encrypted_pair(workloads, namespace)
    assert manager.unready(namespace) == {}
    secret = secret_of(cluster, namespace, f"{release}-gantry-peer-certificate")
    assert secret["metadata"]["annotations"]["cert-manager.io/issuer-name"] == f"{release}-gantry-peer-authority"
    ours = certificate_of(namespace, secret["metadata"]["name"])
    for engine in (a, b):
        assert shown(engine.address, ours, ours) == ([name_of(namespace, release)], ours.der)
    moves(a, b, "tcp")

    assert is_refused(cluster, b, "certificate_missing", ours)
    other = workloads.start(namespace, {"stranger": {}}, ENCRYPTED)
    workloads.start(namespace, {"nobody": {}}, {"authentication": {"mode": "token"}})
    for name in ("stranger", "nobody"):
        status, answer = workloads.engine(namespace, name).rest("PUT", "/v1/peers/b", {"address": f"{b.address}:9461"})
        assert answer.get("state") != "up", (name, status, answer)
    theirs = certificate_of(namespace, f"{other}-gantry-peer-certificate")
    assert is_refused(cluster, b, "certificate_untrusted", ours, theirs)


def is_shown(engines, certificate):
    """Whether all of them show it, and take who shows it."""
    return all(refusal(it.address, certificate, certificate) is None and shown(it.address, certificate, certificate)[1] == certificate.der
               for it in engines)


def wait_until_shown(engines, current, old):
    """The certificate that replaces `old`: that of the secret, `current`, shown by all of them."""
    def replaced():
        now = current()
        return now if now.der != old.der and is_shown(engines, now) else None
    return wait_for(replaced, RENEWED_SECONDS, "sidecars that show a renewed certificate")


def reconnect(a, b):
    assert a.rest("DELETE", f"/v1/peers/{b.pod}")[0] in (200, 204)
    a.connect(b, over="tcp")


def never_restarted(cluster, *engines):
    return all(status_of(cluster.pod(it.namespace, it.pod), name)["restartCount"] == 0 for it in engines for name in ("engine", SIDECAR))


def test_a_certificate_is_renewed_in_time_under_load(cluster, workloads, manager, certificate_of, record):
    """Twenty seconds after it was made: no transfer fails, and new connections show the new one."""
    namespace = workloads.namespace()
    release, a, b = encrypted_pair(workloads, namespace, {"duration": "1h", "renewBefore": "59m40s"})
    current = lambda: certificate_of(namespace, f"{release}-gantry-peer-certificate")  # noqa: E731
    first = current()
    a.do("start_load", "read", "kv", "b/b/kv", SIZE)
    second = wait_until_shown((a, b), current, first)
    assert second.authorities == first.authorities
    done = a.do("look_at_load")["succeeded"]
    wait_for(lambda: a.do("look_at_load")["succeeded"] > done + 10, 20, "more transfers")
    load = a.do("stop_load")
    assert load["failed"] == {}, load
    assert moved(cluster, a, "tcp") and not moved(cluster, a, "shm")
    record("longest_gap_while_certificates_are_renewed", load["longest_gap"], "s")
    reconnect(a, b)
    moves(a, b, "tcp")
    assert never_restarted(cluster, a, b)
    wait_for(lambda: len(manager.all(namespace, "certificaterequests")) == 2, 20, "the end of the requests of earlier renewals")


def test_an_authority_is_renewed_and_is_replaced(cluster, workloads, manager, certificate_of):
    """Renewed it keeps its key: peers with a certificate from before are no strangers. With its secret deleted they are."""
    namespace = workloads.namespace()
    release, a, b = encrypted_pair(workloads, namespace)
    authority, certificate = f"{release}-gantry-peer-authority", f"{release}-gantry-peer-certificate"
    current = lambda: certificate_of(namespace, certificate)  # noqa: E731
    old, its_authority = current(), certificate_of(namespace, authority)
    a.do("start_load", "read", "kv", "b/b/kv", SIZE)

    def renewed(remake):
        """What the sidecars show when there is another authority, and a certificate by it."""
        before, authority_before = current(), certificate_of(namespace, authority)
        remake()
        wait_for(lambda: secret_of(cluster, namespace, authority) and certificate_of(namespace, authority).der != authority_before.der
                 and not manager.unready(namespace), 30, lambda: f"a new authority: {manager.unready(namespace)}")
        manager.renew(namespace, certificate)
        return wait_until_shown((a, b), current, before)

    new = renewed(lambda: manager.renew(namespace, authority))
    assert certificate_of(namespace, authority).der != its_authority.der and new.authorities != old.authorities
    assert refusal(a.address, new, old) is None and refusal(a.address, old, new) is None
    newest = renewed(lambda: cluster.api("DELETE", f"/api/v1/namespaces/{namespace}/secrets/{authority}"))
    assert all(is_refused(cluster, engine, "certificate_untrusted", newest, new) for engine in (a, b))

    done = a.do("look_at_load")["succeeded"]
    wait_for(lambda: a.do("look_at_load")["succeeded"] > done + 10, 20, "more transfers")
    assert a.do("stop_load")["failed"] == {}, "what is connected stays so"
    reconnect(a, b)
    moves(a, b, "tcp")
    assert never_restarted(cluster, a, b)


def test_releases_of_two_namespaces_know_each_other_by_one_issuer(cluster, workloads, manager):
    """Where both admit the other's namespace."""
    manager.make_cluster_issuer("everyone")
    ours, theirs = workloads.namespace(), workloads.namespace()
    by_everyone = {"issuerRef": {"name": "everyone", "kind": "ClusterIssuer", "group": "cert-manager.io"}}
    both = {"peerNames": [f"spiffe://cluster.local/ns/{namespace}/*" for namespace in (ours, theirs)]}

    def start(namespace, name, certificates):
        return with_memory(*workloads.engines(namespace, {name: {}}, ENCRYPTED | {"authentication": {"certificates": certificates}}))[0]
    a, b = start(ours, "a", by_everyone | both), start(theirs, "b", by_everyone | both)
    a.connect(b, over="tcp")
    moves(a, b, "tcp")
    own_namespace_alone = start(ours, "c", by_everyone)
    status, answer = own_namespace_alone.rest("PUT", "/v1/peers/b", {"address": f"{b.address}:9461"})
    assert answer.get("state") != "up", (status, answer)


def left(cluster, manager, namespace):
    """Of what cert-manager has there, and the secrets."""
    kinds = {kind: manager.all(namespace, kind).keys() for kind in ("issuers", "certificates", "certificaterequests")}
    secrets = cluster.api("GET", f"/api/v1/namespaces/{namespace}/secrets")["items"]
    return {kind: names for kind, names in kinds.items() if names}, {it["metadata"]["name"] for it in secrets}


def test_the_plugins_chart_injects_certificates_and_leaves_the_secrets_alone(cluster, installed, workloads, manager, certificate_of):
    """Pods that go on without the release know those of the next one: it has the same authority."""
    namespace = workloads.namespace()
    values = {"injection": {"enabled": True, "namespaces": [namespace]}, "sidecar": {**installed.values()["sidecar"], **ENCRYPTED}}

    def pod(name):
        manifest = {"metadata": {"name": name, "labels": {"app": name, "gantry.dev/inject": "true"}}, "spec": engine_spec()}

        def injected():
            made = cluster.api("POST", f"/api/v1/namespaces/{namespace}/pods", manifest, dryRun="All")
            return "initContainers" in made["spec"]
        wait_for(injected, 30, "the policy to be in force")
        cluster.api("POST", f"/api/v1/namespaces/{namespace}/pods", manifest)
        return with_memory(workloads.engine(namespace, name))[0]

    names = {"gantry-peer-certificate", "gantry-peer-authority"}
    try:
        installed.install_gantry(**values)
        a, b = pod("a"), pod("b")
        a.connect(b, over="tcp")
        moves(a, b, "tcp")
        before = certificate_of(namespace, "gantry-peer-certificate")
        assert is_shown((a, b), before) and manager.unready(namespace) == {}

        installed.uninstall("gantry", "gantry")
        wait_for(lambda: left(cluster, manager, namespace) == ({}, names), 30, lambda: f"the end of {left(cluster, manager, namespace)}")
        wait_for(lambda: not objects(cluster), 30, lambda: f"the end of {objects(cluster)}")
        assert objects(cluster, label="gantry.dev/secret-of") == {f"Secret/{namespace}/{name}" for name in names}

        installed.install_gantry(**values)
        c = pod("c")
        assert certificate_of(namespace, "gantry-peer-certificate").authorities == before.authorities
        c.connect(a, over="tcp")
        moves(c, a, "tcp")
    finally:
        installed.install_gantry()
    cluster.kubectl("--namespace", namespace, "delete", "secret", "--selector", "gantry.dev/secret-of=gantry")
    wait_for(lambda: left(cluster, manager, namespace) == ({}, set()), 30, lambda: f"the end of {left(cluster, manager, namespace)}")


def test_what_cert_manager_refuses_is_said_by_helm(workloads, manager):
    """By its webhook, which the API server asks."""
    with pytest.raises(Refused, match="renewBefore"):
        workloads.start(workloads.namespace(), {"a": {}}, {"authentication": {"certificates": {"duration": "1h", "renewBefore": "2h"}}})


def test_what_has_certificates_is_removed_before_cert_manager(cluster, workloads, installed, manager):
    """Without its definitions helm can do nothing for a release that has some; pods go on."""
    namespace = workloads.namespace()
    release = workloads.start(namespace, {"a": {}, "b": {}})
    a, b = with_memory(*(workloads.engine(namespace, name) for name in "ab"))
    a.connect(b, over="tcp")
    manager.uninstall()
    moves(a, b, "tcp")
    said = cluster.refusal("helm", "upgrade", release, installed.workloads, "--namespace", namespace, "--reuse-values")
    assert 'no matches for kind "Certificate"' in said
    assert "failed to delete release" in cluster.refusal("helm", "uninstall", release, "--namespace", namespace)
    manager.install()
    installed.uninstall(release, namespace)
    assert not cluster.helm("list", "--all", "--short", "--namespace", namespace)
    assert left(cluster, manager, namespace)[0] == {}
