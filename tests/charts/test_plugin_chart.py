"""The daemon set of the device plugin: secure by default, each flag a flag of the binary, nothing but the plugin unless asked for."""

import re
import subprocess

import pytest
from conftest import BIN_DIR, EVERYTHING, Refused, flags_of, pod_spec

# Flags of gantry-device-plugin, by its contract; its --help decides where it has been built.
CONTRACT = {"--resource", "--slots", "--kubelet-dir", "--pod-resources-dir", "--cdi-dir", "--cdi-spec-dirs", "--peer-dir",
            "--binding", "--missing-gpu", "--peer-gpu-visibility", "--rdma-devices", "--rdma-exclude", "--no-rdma",
            "--require-rdma", "--instance", "--metrics-listen", "--health-listen", "--settle-ms", "--reconcile-ms", "--log-level", "--dry-run",
            "--host-root"}
# A random instance is right for a pod; the others are for hands and tests. extraArgs gives them.
WITHOUT_A_VALUE = {"--instance", "--dry-run", "--host-root"}


def known_flags():
    plugin = BIN_DIR / "gantry-device-plugin"
    if not plugin.exists():
        return CONTRACT
    said = subprocess.run([plugin, "--help"], capture_output=True, text=True, timeout=20).stdout
    return set(re.findall(r"^\s+(?:-\w,)?(--[a-z-]+)", said, re.M)) - {"--help", "--version", "--print-config"}


def plugin_of(rendered):
    return pod_spec(rendered.one("DaemonSet"))["containers"][0]


def test_the_plugin_alone_is_installed_by_default(charts):
    rendered = charts.render(kinds=EVERYTHING)
    assert sorted(each["kind"] for each in rendered.objects) == ["DaemonSet", "Job", "NetworkPolicy", "ServiceAccount"]
    assert rendered.one("Job")["metadata"]["annotations"]["helm.sh/hook"] == "test"


def test_the_plugin_may_do_nothing_that_it_need_not(charts):
    spec = pod_spec(charts.render().one("DaemonSet"))
    assert not spec["hostNetwork"] and not spec["hostPID"] and "hostIPC" not in spec
    assert spec["automountServiceAccountToken"] is False
    assert spec["priorityClassName"] == "system-node-critical"
    container, = spec["containers"]
    security = container["securityContext"]
    assert security["runAsUser"] == 0
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert security["readOnlyRootFilesystem"] is True and security["allowPrivilegeEscalation"] is False
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert "privileged" not in security
    assert container["resources"]["limits"]["memory"] and container["resources"]["requests"]["cpu"]
    assert {"nvidia.com/gpu", "amd.com/gpu"} <= {each["key"] for each in spec["tolerations"]}


def test_the_service_account_has_no_token(charts):
    assert charts.render().one("ServiceAccount")["automountServiceAccountToken"] is False


def test_an_update_never_has_two_plugins_on_a_node(charts):
    strategy = charts.render().one("DaemonSet")["spec"]["updateStrategy"]
    assert strategy == {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}


def test_folders_of_the_host_are_folders_and_writable_only_where_needed(charts):
    spec = pod_spec(charts.render().one("DaemonSet"))
    paths = {each["name"]: each["hostPath"] for each in spec["volumes"]}
    assert all(each["type"] in ("Directory", "DirectoryOrCreate") for each in paths.values())
    mounts = {paths[each["name"]]["path"]: each for each in spec["containers"][0]["volumeMounts"]}
    assert all(path == each["mountPath"] for path, each in mounts.items()), "CDI files name paths of the host"
    assert {path: each["readOnly"] for path, each in mounts.items()} == {
        "/var/lib/kubelet/device-plugins": False, "/var/lib/kubelet/pod-resources": True, "/var/run/cdi": False,
        "/etc/cdi": True, "/run/gantry/gantry.dev-transfer": False}


def test_probes_ask_the_services_of_the_contract(charts):
    container = plugin_of(charts.render(values={"healthPort": 7777}))
    assert container["startupProbe"]["grpc"] == {"port": 7777, "service": "liveness"}
    assert container["livenessProbe"]["grpc"] == {"port": 7777, "service": "liveness"}
    assert container["readinessProbe"]["grpc"] == {"port": 7777, "service": "readiness"}
    assert flags_of(container)["--health-listen"] == "0.0.0.0:7777"


def images_of_the_sidecar(rendered):
    """Of `helm test`'s pod, and of the container that is injected: an expression of CEL."""
    tested, = pod_spec(rendered.one("Job"))["containers"]
    patches = rendered.one("MutatingAdmissionPolicy")["spec"]["mutations"][1]["jsonPatch"]["expression"]
    # Once for pods that have init containers already, once for the others.
    injected, = set(re.findall(r'"image": dyn\("([^"]*)"\)', patches))
    policy, = set(re.findall(r'"imagePullPolicy": dyn\("([^"]*)"\)', patches))
    assert (tested["image"], tested["imagePullPolicy"]) == (injected, policy)
    return injected, policy


DIGEST = "sha256:" + "5" * 64


@pytest.mark.parametrize("image, sidecar, said", [
    ({"registry": "registry.example.com"}, {}, ("registry.example.com/gantry:0.1.0", "IfNotPresent")),
    ({"registry": "a", "repository": "b", "tag": "c", "pullPolicy": "Always"}, {}, ("a/b:c", "Always")),
    ({"registry": "a", "digest": DIGEST}, {}, (f"a/gantry@{DIGEST}", "IfNotPresent")),
    ({"registry": "a", "digest": DIGEST}, {"tag": "1.2.3"}, ("a/gantry:1.2.3", "IfNotPresent")),
    ({"registry": "a", "digest": DIGEST}, {"registry": "z"}, (f"z/gantry@{DIGEST}", "IfNotPresent")),
    ({"registry": "a", "tag": "1"}, {"registry": "z", "repository": "y", "digest": DIGEST, "pullPolicy": "Never"},
     (f"z/y@{DIGEST}", "Never")),
])
def test_the_sidecars_image_is_the_plugins_but_for_what_is_said_of_it(charts, image, sidecar, said):
    """The two lines of the README are enough for `helm test` and for injection."""
    values = {"image": image, "sidecar": {"image": sidecar}, "injection": {"enabled": True, "namespaces": ["chat"]}}
    assert images_of_the_sidecar(charts.render(values=values, kinds=EVERYTHING)) == said


def test_an_image_without_a_name_is_refused(charts):
    for image in ({"repository": ""}, {"tag": "", "digest": ""}):
        with pytest.raises(Refused, match="gantry-lib: image"):
            charts.render(charts.example, values={"gantry-lib": {"image": image}})


@pytest.mark.parametrize("file", ["everything", "shared-node"])
def test_every_argument_is_a_flag_of_the_plugin(charts, file):
    rendered = charts.render(files=[charts.main / "ci" / f"{file}-values.yaml"], kinds=EVERYTHING)
    assert set(flags_of(plugin_of(rendered))) <= known_flags()


def test_every_flag_of_the_plugin_has_a_value(charts):
    given = set()
    for file in ("everything", "shared-node"):
        rendered = charts.render(files=[charts.main / "ci" / f"{file}-values.yaml"], kinds=EVERYTHING)
        given |= set(flags_of(plugin_of(rendered)))
    assert given == known_flags() - WITHOUT_A_VALUE


def test_values_reach_the_plugin(charts):
    flags = flags_of(plugin_of(charts.render(values={
        "slots": 1000, "settleMs": 5000, "reconcileMs": 1000000, "rdma": {"devices": ["mlx5_0", "mlx5_1"], "exclude": ["mlx5_2"]}, "metricsPort": 0})))
    assert flags["--slots"] == "1000" and flags["--settle-ms"] == "5000" and flags["--reconcile-ms"] == "1000000"
    assert flags["--rdma-devices"] == "mlx5_0,mlx5_1" and flags["--rdma-exclude"] == "mlx5_2"
    assert flags["--metrics-listen"] == "" and "--no-rdma" not in flags
    assert flags["--peer-dir"] == "/run/gantry/gantry.dev-transfer"


def test_the_image_is_of_this_version_unless_it_is_named(charts):
    assert plugin_of(charts.render())["image"] == "localhost/gantry:0.1.0"
    digest = "sha256:" + "0" * 64
    named = charts.render(values={"image": {"registry": "r.example.com/x/", "tag": "7", "digest": digest}})
    assert plugin_of(named)["image"] == f"r.example.com/x/gantry@{digest}"
    assert plugin_of(charts.render(values={"image": {"tag": "7"}}))["image"].endswith(":7")


def test_the_network_policy_lets_nobody_in_but_to_probes_and_metrics(charts):
    policy = charts.render(values={"networkPolicy": {"metricsFrom": [{"podSelector": {}}]}}).one("NetworkPolicy")["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"] and policy["egress"] == []
    assert [[port["port"] for port in rule["ports"]] for rule in policy["ingress"]] == [[9466], [9465]]
    assert policy["ingress"][1]["from"] == [{"podSelector": {}}]
    labels = charts.render().one("DaemonSet")["spec"]["template"]["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()


def test_labels_are_the_usual_ones_and_reach_every_object(charts):
    rendered = charts.render(values={"commonLabels": {"team": "x"}, "namespaceOverride": "elsewhere"})
    for each in rendered.objects:
        labels = each["metadata"]["labels"]
        assert labels["team"] == "x" and labels["helm.sh/chart"] == "gantry-0.1.0", each["kind"]
        assert {"app.kubernetes.io/" + part for part in ("name", "instance", "version", "part-of", "managed-by")} <= set(labels)
        assert each["metadata"]["namespace"] == "elsewhere", each["kind"]
    selected = rendered.one("DaemonSet")["spec"]["selector"]["matchLabels"]
    assert "helm.sh/chart" not in selected and "team" not in selected, "a selector cannot be changed by an upgrade"


def test_pod_labels_cannot_take_the_selector_away(charts):
    daemon_set = charts.render(values={"podLabels": {"app.kubernetes.io/name": "x", "mine": "y"}}).one("DaemonSet")["spec"]
    assert daemon_set["selector"]["matchLabels"].items() <= daemon_set["template"]["metadata"]["labels"].items()
    assert daemon_set["template"]["metadata"]["labels"]["mine"] == "y"


def test_extra_objects_are_templates_as_maps_and_as_text(charts):
    rendered = charts.render(files=[charts.main / "ci" / "everything-values.yaml"], kinds=EVERYTHING)
    assert rendered.one("ConfigMap", "one-gantry-extra") and rendered.one("ConfigMap", "one-gantry-text")


def test_the_test_pod_asks_for_a_slot_and_is_restricted(charts):
    job = charts.render(values={"resource": "gantry.dev/x", "tests": {"resources": {"limits": {"nvidia.com/gpu": 1}}}}).one("Job")
    container, = pod_spec(job)["containers"]
    assert container["resources"] == {"requests": {"gantry.dev/x": 1}, "limits": {"gantry.dev/x": 1, "nvidia.com/gpu": 1}}
    assert container["securityContext"]["runAsNonRoot"] is True
    assert not charts.render(values={"tests": {"enabled": False}}).all("Job")


def test_a_test_that_fails_leaves_nothing_for_long(charts):
    """Helm removes what succeeded and what stands in the way; Kubernetes the rest: a Job, and with it its pod."""
    job = charts.render(values={"tests": {"activeDeadlineSeconds": 7}}).one("Job")
    assert job["metadata"]["annotations"]["helm.sh/hook-delete-policy"] == "before-hook-creation,hook-succeeded"
    assert 0 < job["spec"]["ttlSecondsAfterFinished"] <= 600, "its reader needs a while"
    # Of the Job: a pod's own counts from when it is on a node, and one that finds none would wait for ever.
    assert job["spec"]["activeDeadlineSeconds"] == 7 and "activeDeadlineSeconds" not in pod_spec(job)
    assert job["spec"]["backoffLimit"] == 0 and pod_spec(job)["restartPolicy"] == "Never"


def test_kubernetes_before_1_29_is_refused(charts):
    with pytest.raises(Refused, match="incompatible with Kubernetes"):
        charts.render(version="1.28.9")


def test_no_other_pod_is_taken_for_the_daemon_sets(charts):
    """A daemon set adopts every pod that its selector selects, and deletes the younger ones on a node."""
    rendered = charts.render(kinds=EVERYTHING, values={"commonLabels": {"team": "chat"}})
    selector = rendered.one("DaemonSet")["spec"]["selector"]["matchLabels"]
    assert selector.items() <= rendered.one("DaemonSet")["spec"]["template"]["metadata"]["labels"].items()
    labels = rendered.one("Job")["spec"]["template"]["metadata"]["labels"]
    assert not selector.items() <= labels.items()
    assert labels["app.kubernetes.io/component"] == "test" and labels["team"] == "chat"
