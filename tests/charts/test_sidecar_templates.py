"""The library chart: the sidecar, what the pod and the workload need beside it, and how peers know each other."""

import subprocess

import pytest
from conftest import BIN_DIR, Refused, flags_of, pod_spec

CERTIFICATES = ["cert-manager.io/v1"]


@pytest.fixture
def pods(charts):
    """Renders the example; returns the spec of the decode pods."""
    def render(gantry=None, **options):
        rendered = charts.render(charts.example, values={"gantry-lib": gantry or {}}, **options)
        return pod_spec(rendered.one("Deployment", "decode"))
    return render


def sidecar_of(spec):
    container, = [each for each in spec["initContainers"] if each["name"] == "gantry-sidecar"]
    return container


def test_the_sidecar_is_native_and_probed_by_grpc(pods):
    container = sidecar_of(pods({"listen": {"healthPort": 7777}}))
    assert container["restartPolicy"] == "Always"
    assert container["startupProbe"]["grpc"] == {"port": 7777, "service": "readiness"}
    assert container["readinessProbe"]["grpc"] == {"port": 7777, "service": "readiness"}
    assert container["livenessProbe"]["grpc"] == {"port": 7777, "service": "liveness"}
    assert flags_of(container)["--health-listen"] == "0.0.0.0:7777"
    assert "readinessProbe" not in sidecar_of(pods({"probes": {"readiness": None}}))


def test_pods_pass_pod_security_restricted(pods):
    for gantry in ({}, {"shareProcessNamespace": True}, {"authentication": {"mode": "token"}}, NIXL):
        spec = pods(gantry)
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
        allowed = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
        assert all(set(volume) - {"name"} <= allowed for volume in spec["volumes"])
        security = sidecar_of(spec)["securityContext"]
        assert security["runAsNonRoot"] is True and security["runAsUser"] > 0
        assert security["allowPrivilegeEscalation"] is False and "privileged" not in security
        assert security["capabilities"] == {"drop": ["ALL"]} and security["readOnlyRootFilesystem"] is True
        assert security["seccompProfile"]["type"] == "RuntimeDefault"
        assert not any("hostPort" in port for port in sidecar_of(spec)["ports"])


NIXL = {"nixlPlugin": {"enabled": True, "path": "/nixl/plugins"}}


def test_nixls_backend_is_put_there_where_it_is_wanted_alone(pods):
    without, spec = pods(), pods(NIXL)
    assert "nixl" not in str(without)
    names = [each["name"] for each in spec["initContainers"]]
    assert names == [each["name"] for each in without["initContainers"][:-1]] + ["gantry-nixl-plugin", "gantry-sidecar"]
    assert spec["initContainers"][-2]["securityContext"] == sidecar_of(spec)["securityContext"]
    mounts = [each for each in spec["containers"][0]["volumeMounts"] if each["name"] == "gantry-nixl"]
    assert mounts == [{"name": "gantry-nixl", "mountPath": "/nixl/plugins/libplugin_GANTRY.so", "subPath": "libplugin_GANTRY.so", "readOnly": True}]
    with pytest.raises(Refused, match="nixlPlugin.path is empty"):
        pods({"nixlPlugin": {"enabled": True}})
    with pytest.raises(Refused, match="path"):
        pods({"nixlPlugin": {"enabled": True, "path": "relative"}})


def arguments_of(container):
    """As the kubelet gives them: with the pod's name in them."""
    return [argument.replace("$(GANTRY_POD_NAME)", "decode-0") for argument in container["args"]]


def test_the_sidecar_takes_its_arguments(pods):
    for gantry, kinds in (({}, []), ({"authentication": {"rules": "a * read\n"}, "flags": {"data-tls": True}}, CERTIFICATES),
                          ({"flags": {"no-rdma": True, "body-bytes-max": 1 << 36, "rdma-devices": ["a", "b"], "data-tls": False}}, [])):
        container = sidecar_of(pods(gantry, kinds=kinds))
        run = subprocess.run([BIN_DIR / "gantry-sidecar", *arguments_of(container), "--print-config"], capture_output=True,
                             text=True, timeout=20)
        assert run.returncode == 0, run.stderr
    assert "body-bytes-max=68719476736\n" in run.stdout and "no-rdma=true\n" in run.stdout and "data-tls=false\n" in run.stdout
    assert "rdma-devices=['a', 'b']" in run.stdout
    assert "rdma-hop-limit=64\n" in run.stdout, "a number of one byte is printed as a number"


def test_a_service_called_gantry_rdma_does_not_reach_the_sidecar(pods):
    # Kubernetes sets GANTRY_RDMA_PORT=tcp://... for it in every container; a flag wins over the environment.
    container = sidecar_of(pods())
    run = subprocess.run([BIN_DIR / "gantry-sidecar", *arguments_of(container), "--print-config"], capture_output=True, text=True,
                         timeout=20, env={"GANTRY_RDMA_PORT": "tcp://10.96.0.7:1"})
    assert run.returncode == 0, run.stderr


def test_the_pod_tells_the_sidecar_who_it_is(pods):
    container = sidecar_of(pods())
    fields = {each["name"]: each["valueFrom"]["fieldRef"]["fieldPath"] for each in container["env"]}
    assert fields == {"GANTRY_POD_NAME": "metadata.name", "GANTRY_POD_NAMESPACE": "metadata.namespace"}
    assert flags_of(container)["--name"] == "$(GANTRY_POD_NAME)"


def test_a_slot_is_asked_for_and_its_folder_of_peers_used(pods):
    container = sidecar_of(pods({"slot": {"resource": "gantry.dev/second"}}))
    assert container["resources"]["limits"]["gantry.dev/second"] == container["resources"]["requests"]["gantry.dev/second"] == 1
    assert container["resources"]["limits"]["memory"] == "4Gi"
    assert flags_of(container)["--node-dir"] == "/run/gantry/peers"
    assert "--require-slot" in flags_of(container) and "--node-uids" not in flags_of(container)
    users = sidecar_of(pods({"slot": {"nodeUids": ["65532", "1000680000-1000689999"]}}))
    assert flags_of(users)["--node-uids"] == "65532,1000680000-1000689999"
    without = sidecar_of(pods({"slot": {"enabled": False}}))
    assert "--require-slot" not in flags_of(without)
    assert "gantry.dev/transfer" not in without["resources"]["limits"] and "--node-dir" not in flags_of(without)


def test_claims_are_the_pods_and_the_sidecars(pods):
    spec = pods({"claims": [{"name": "gpus", "request": "a", "resourceClaimTemplateName": "t"},
                            {"name": "gpus", "request": "b", "resourceClaimTemplateName": "t"}, {"name": "nic", "resourceClaimName": "n"}]})
    assert spec["resourceClaims"] == [{"name": "gpus", "resourceClaimTemplateName": "t"}, {"name": "nic", "resourceClaimName": "n"}]
    assert sidecar_of(spec)["resources"]["claims"] == [{"name": "gpus", "request": "a"}, {"name": "gpus", "request": "b"}, {"name": "nic"}]
    assert "resourceClaims" not in pods()


def test_the_workload_finds_the_sidecar(pods):
    spec = pods()
    engine, = spec["containers"]
    mount, = [each for each in engine["volumeMounts"] if each["name"] == "gantry-run"]
    own, = [each for each in sidecar_of(spec)["volumeMounts"] if each["name"] == "gantry-run"]
    env = {each["name"]: each["value"] for each in engine["env"]}
    flags = flags_of(sidecar_of(spec))
    assert mount["mountPath"] == own["mountPath"] == flags["--run-dir"] == env["GANTRY_RUN_DIR"] == "/run/gantry"
    assert env["GANTRY_API_SOCKET"] == "/run/gantry/api.sock"
    # api.sock has mode 0660 and the sidecar's group, which is a group of every container.
    assert spec["securityContext"]["supplementalGroups"] == [sidecar_of(spec)["securityContext"]["runAsGroup"]]
    assert [each["name"] for each in engine["volumeMounts"]] == ["shm", "gantry-run"], "what the pod had is there still"


def test_containers_may_be_chosen_and_must_be_there(pods):
    assert "env" in pods({"workloadContainers": ["engine"]})["containers"][0]
    with pytest.raises(Refused, match="workloadContainers names other, and the pod has engine"):
        pods({"workloadContainers": ["other"]})


def test_values_of_a_role_win_for_that_role_alone(charts):
    rendered = charts.render(charts.example, values={"roles": {"decode": {"gantry": {"flags": {"workers": 3}}}}})
    decode, prefill = (flags_of(sidecar_of(pod_spec(rendered.one("Deployment", name)))) for name in ("decode", "prefill"))
    assert decode["--workers"] == "3" and "--workers" not in prefill
    assert decode["--staging-bytes"] == "134217728" and "--staging-bytes" not in prefill


def test_a_token_is_made_and_kept_where_there_is_no_cert_manager(charts, pods):
    rendered = charts.render(charts.example)
    secret = rendered.one("Secret")
    assert secret["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    spec = pod_spec(rendered.one("Deployment", "prefill"))
    volume, = [each for each in spec["volumes"] if each["name"] == "gantry-peer-token"]
    assert volume["secret"]["secretName"] == secret["metadata"]["name"]
    assert set(secret["data"]) == {volume["secret"]["items"][0]["key"]}
    assert len(secret["data"]["token"]) >= 64
    flags = flags_of(sidecar_of(spec))
    assert flags["--peer-token-file"] == "/etc/gantry/peer-token/token" and flags["--peer-plaintext"] is None
    assert charts.render(charts.example).one("Secret")["data"] != secret["data"], "every release has its own"
    named = charts.render(charts.example, values={"gantry-lib": {"authentication": {"token": {"existingSecret": "mine"}}}})
    assert not named.all("Secret")


def test_certificates_are_used_where_cert_manager_is(charts):
    rendered = charts.render(charts.example, kinds=CERTIFICATES, namespace="chat")
    assert not rendered.all("Secret")
    certificate = rendered.one("Certificate", "-peer-certificate")
    assert certificate["spec"]["usages"] == ["digital signature", "server auth", "client auth"]
    assert certificate["spec"]["uris"] == ["spiffe://cluster.local/ns/chat/gantry/one-gantry"]
    for each in rendered.all("Certificate"):
        assert each["spec"]["secretTemplate"]["labels"] == {"gantry.dev/secret-of": "one"}, "the notes delete by it"
        assert each["spec"]["revisionHistoryLimit"] == 1, "older cert-managers keep the request of every renewal"
    issuer = rendered.one("Issuer", certificate["spec"]["issuerRef"]["name"])
    authority = rendered.one("Certificate", "-peer-authority")
    assert issuer["spec"]["ca"]["secretName"] == authority["spec"]["secretName"] and authority["spec"]["isCA"] is True
    assert "selfSigned" in rendered.one("Issuer", authority["spec"]["issuerRef"]["name"])["spec"]
    spec = pod_spec(rendered.one("Deployment", "prefill"))
    volume, = [each for each in spec["volumes"] if each["name"] == "gantry-peer-certificate"]
    assert volume["secret"]["secretName"] == certificate["spec"]["secretName"]
    mount, = [each for each in sidecar_of(spec)["volumeMounts"] if each["name"] == volume["name"]]
    flags = flags_of(sidecar_of(spec))
    assert flags["--peer-tls-ca"] == mount["mountPath"] + "/ca.crt" and "--peer-plaintext" not in flags
    assert flags["--peer-tls-names"] == "spiffe://cluster.local/ns/$(GANTRY_POD_NAMESPACE)/*"


def test_an_issuer_or_a_secret_of_ones_own_is_used(charts):
    issuer = {"name": "mesh", "kind": "ClusterIssuer", "group": "cert-manager.io"}
    rendered = charts.render(charts.example, kinds=CERTIFICATES, values={
        "gantry-lib": {"authentication": {"certificates": {"issuerRef": issuer}}}})
    assert not rendered.all("Issuer") and rendered.one("Certificate")["spec"]["issuerRef"] == issuer
    named = charts.render(charts.example, values={"gantry-lib": {"authentication": {"certificates": {"existingSecret": "mine"}}}})
    assert not named.all("Certificate") and not named.all("Secret")
    assert "mine" in str(pod_spec(named.one("Deployment", "prefill"))["volumes"])


def test_nobody_listens_without_peers_over_tcp(charts, pods):
    flags = flags_of(sidecar_of(pods({"peers": {"tcp": False}})))
    assert not {flag for flag in flags if flag.startswith("--peer-") or flag == "--data-listen"}
    assert not charts.render(charts.example, values={"gantry-lib": {"peers": {"tcp": False}}}).all("Secret")


@pytest.mark.parametrize("gantry, said", [
    ({"authentication": {"mode": "certificates"}}, "needs cert-manager"),
    ({"authentication": {"rules": "a * read"}}, "do nothing for a token"),
    ({"flags": {"data-tls": True}}, "data-tls needs authentication by certificates"),
    ({"containerName": "engine"}, "has a container engine already"),
])
def test_what_cannot_work_is_refused_with_the_reason(pods, gantry, said):
    with pytest.raises(Refused, match=said):
        pods(gantry)


def test_rules_reach_the_sidecar(charts):
    rules = "spiffe://cluster.local/ns/chat/*  engine-*  read\n"
    rendered = charts.render(charts.example, kinds=CERTIFICATES, values={"gantry-lib": {"authentication": {"rules": rules}}})
    assert rendered.one("ConfigMap", "-peer-rules")["data"] == {"rules": rules}
    spec = pod_spec(rendered.one("Deployment", "prefill"))
    assert flags_of(sidecar_of(spec))["--peer-rules"] == "/etc/gantry/peer-rules/rules"
    assert rendered.one("ConfigMap")["metadata"]["name"] in str(spec["volumes"])


def test_the_policy_guards_the_sidecars_ports_and_leaves_the_others_open(charts):
    rendered = charts.render(charts.example, values={"gantry-lib": {"networkPolicy": {"enabled": True}}})
    policy = rendered.one("NetworkPolicy")["spec"]
    labels = rendered.one("Deployment", "decode")["spec"]["template"]["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()
    peers, metrics, others = policy["ingress"]
    assert peers["from"] == [{"podSelector": policy["podSelector"]}] and "from" not in others
    assert [port["port"] for port in peers["ports"]] == [9461, 9462] and [port["port"] for port in metrics["ports"]] == [9464]
    opened = {port for each in others["ports"] if each["protocol"] == "TCP" for port in range(each["port"], each["endPort"] + 1)}
    assert set(range(1, 65536)) - opened == {9461, 9462, 9464}


def test_memlock_is_asked_for_by_the_annotation(charts):
    rendered = charts.render(charts.example, values={"gantry-lib": {"memlock": {"nriBytes": 1 << 40}}})
    annotations = rendered.one("Deployment", "decode")["spec"]["template"]["metadata"]["annotations"]
    said = "- type: memlock\n  soft: 1099511627776\n  hard: 1099511627776\n"
    assert {key: text.rstrip("\n") for key, text in annotations.items()} == {
        f"{domain}/container.gantry-sidecar": said.rstrip("\n") for domain in ("ulimits.noderesource.dev", "ulimits.nri.containerd.io")}
    assert "annotations" not in charts.render(charts.example).one("Deployment", "decode")["spec"]["template"]["metadata"]
