"""The schemas of the values: a typo and a wrong type are refused wherever they stand, and every flag of the sidecar is known."""

import itertools
import json
import os
import re
import subprocess
import sys

import pytest
import yaml
from conftest import BIN_DIR, EVERYTHING, ROOT, Refused, flags_of, pod_spec

# Maps whose keys are the user's: labels and the like, and resources.
FREE = {"commonLabels", "commonAnnotations", "nodeSelector", "podLabels", "podAnnotations", "annotations", "labels",
        "alertLabels", "thresholds", "limits", "requests", "podSecurityContext", "sidecar"}


def maps(values, path=()):
    """Paths of all maps in the values whose keys the schema fixes; empty ones have nothing to tell them by."""
    yield path
    for key, value in values.items():
        if isinstance(value, dict) and key not in FREE:
            yield from maps(value, (*path, key))


def nested(path, value):
    for key in reversed(path):
        value = {key: value}
    return value


def values_of(chart):
    return yaml.safe_load((ROOT / "charts" / chart / "values.yaml").read_text())


MAIN = [path for path in maps(values_of("gantry"))]
LIBRARY = [("sidecar", *path) for path in maps(values_of("gantry-lib"))]


@pytest.mark.parametrize("path", MAIN + LIBRARY, ids=lambda path: ".".join(path) or "top")
def test_a_typo_is_refused(charts, path):
    with pytest.raises(Refused, match="Additional property enabeld is not allowed"):
        charts.render(values=nested(path, {"enabeld": True}))


@pytest.mark.parametrize("path, value, said", [
    (("slots",), 0, "greater than or equal"), (("slots",), "64", "Expected: integer"), (("binding",), "both", "must be one of"),
    (("missingGpu",), "ignore", "must be one of"), (("peerGpuVisibility",), "all", "must be one of"),
    (("resource",), "transfer", "pattern"), (("resource",), "gantry.dev/a/b", "pattern"),
    (("resource",), "gantry.dev/Transfer", "pattern"), (("resource",), "1.dev/x", "pattern"), (("resource",), "gantry/x", "pattern"),
    (("peerDir",), "run/gantry", "pattern"),
    (("cdiDir",), "/var/run/cdi/", "pattern"), (("healthPort",), 65536, "less than or equal"), (("metricsPort",), -1, "valid"),
    (("image", "digest"), "sha256:abc", "pattern"), (("image", "pullPolicy"), "always", "must be one of"),
    (("logLevel",), "trace", "must be one of"), (("tolerations",), [{"keys": "x"}], "Additional property keys"),
    (("daemonSet", "updateStrategy", "type"), "Recreate", "const|must be|valid"),
    (("monitoring", "sidecarMonitor", "interval"), "often", "pattern"), (("injection", "failurePolicy"), "Retry", "must be one of"),
    (("sidecar", "flags", "staging-bytes"), "64MiB", "Expected: integer"), (("sidecar", "flags", "rdma-mtu"), 1500, "must be one of"),
    (("sidecar", "flags", "gpu-copies"), "fast", "must be one of"), (("sidecar", "flags", "run-dir"), "/x", "Additional property"),
    (("sidecar", "authentication", "mode"), "none", "must be one of"), (("sidecar", "runDir"), "run", "pattern"),
    (("sidecar", "claims"), [{"name": "gpus"}], "oneOf|one and only one"), (("sidecar", "slot", "resource"), "slot", "pattern"),
    (("sidecar", "probes", "startup"), {"periodSecond": 1}, "Additional property"),
    (("sidecar", "authentication", "certificates", "duration"), "90 days", "pattern"),
    (("resource",), "gantry.dev/" + "x" * 64, "pattern"), (("resource",), "gantry..dev/x", "pattern"), (("resource",), "a" * 120 + ".b/x", "120"),
    (("resource",), "kubernetes.io/x", "Must not"), (("resource",), "requests.gantry.dev/x", "Must not"),
    (("listenAddress",), "0.0.0.0:80", "pattern"), (("listenAddress",), "::1::2", "pattern"), (("listenAddress",), "localhost", "pattern"),
    (("sidecar", "listen", "address"), "[::", "pattern"), (("sidecar", "flags", "data-host"), "[::1]", "pattern"),
    (("sidecar", "flags", "rest-listen"), ":9000", "pattern"),
    (("settleMs",), 5001, "less than or equal"), (("reconcileMs",), 9, "greater than or equal"), (("cdiSpecDirs",), ["etc/cdi"], "pattern"),
    (("fullnameOverride",), "Gantry", "pattern"), (("fullnameOverride",), "a-.b", "pattern"), (("nameOverride",), "a_b", "pattern"),
    (("namespaceOverride",), "a.b", "pattern"), (("serviceAccount", "name"), "a/b", "pattern"), (("priorityClassName",), "High", "pattern"),
    (("commonLabels",), {"a": "x" * 64}, "pattern"), (("commonLabels",), {"a": "-x"}, "pattern"), (("commonLabels",), {"a b": "x"}, "pattern"),
    (("commonLabels",), {"a": 1}, "Expected: string"), (("podLabels",), {"a": True}, "Expected: string"),
    (("podAnnotations",), {"example.com/port": 9465}, "Expected: string"), (("commonAnnotations",), {"-": "x"}, "pattern"),
    (("nodeSelector",), {"a": "b/c"}, "pattern"), (("monitoring", "rules", "alertLabels"), {"a-b": "c"}, "pattern"),
    (("monitoring", "dashboards", "labels"), {"a": "b c"}, "pattern"), (("injection", "podLabel", "value"), "x" * 64, "pattern"),
    (("injection", "podLabel", "key"), "a/b/c", "pattern"), (("injection", "namespaces"), ["a", "a"], "unique"),
    (("injection", "namespaces"), ["A"], "pattern"),
    (("resources", "limits"), {"memory": "4Gb"}, "pattern"), (("resources", "limits"), {"cpu": -1}, "greater than or equal"),
    (("resources", "requests"), {"memory": "1 Gi"}, "pattern"), (("sidecar", "resources", "requests"), {"cpu": "half"}, "pattern"),
    (("image", "registry"), "https://registry.example.com", "pattern"), (("image", "repository"), "Gantry", "pattern"),
    (("image", "tag"), "0.1.0+x", "pattern"), (("imagePullSecrets",), [{"name": "A"}], "pattern"),
    (("sidecar", "runDir"), "/" + "r" * 94, "94"), (("sidecar", "commonLabels"), {"a": "x" * 64}, "pattern"),
    (("sidecar", "authentication", "token", "key"), "a/b", "pattern"), (("sidecar", "authentication", "certificates", "peerNames"), ["a,b"], "pattern"),
    (("sidecar", "authentication", "certificates", "issuerRef"), {"kind": "Issuer"}, "dependency|name"),
    (("sidecar", "claims"), [{"name": "a.b", "resourceClaimName": "c"}], "pattern"),
    (("extraEnv",), [{"name": "X", "value": 1000000}], "Expected: string"),
    (("sidecar", "extraEnv"), [{"name": "X", "value": True}], "Expected: string"),
], ids=lambda value: ".".join(value) if isinstance(value, tuple) else None)
def test_a_wrong_value_is_refused(charts, path, value, said):
    with pytest.raises(Refused, match=said):
        charts.render(values=nested(path, value))


PORTS = ["peerPort", "dataPort", "healthPort", "metricsPort"]


def listening(**values):
    """Values of the injected sidecar."""
    return {"injection": {"enabled": True, "namespaces": ["chat"]}, "sidecar": values}


@pytest.mark.parametrize("values, said", [
    ({"metricsPort": 9466}, "healthPort and metricsPort are both 9466"),
    *[(listening(listen={one: 7000, two: 7000}), f"listen.{min(one, two)} and listen.{max(one, two)} are both 7000")
      for one, two in itertools.combinations(PORTS, 2)],
    (listening(flags={"rest-listen": "127.0.0.1:9464"}), "flags.rest-listen and listen.metricsPort are both 9464"),
    ({"listenAddress": "127.0.0.1"}, "listenAddress is 127.0.0.1, which only the pod itself reaches"),
    (listening(listen={"address": "::1"}), "listen.address is ::1, which only the pod itself reaches"),
    ({"resource": "gantry.dev/" + "x" * 48}, "at most 47 letters behind the slash"),
    ({"kubeletDir": "/" + "k" * 71}, "at most 6 letters behind the slash"),
    ({"extraArgs": ["--log-level=debug"]}, "extraArgs has --log-level, which the chart gives already"),
    ({"extraArgs": ["--instance=a", "--instance=b"]}, "extraArgs has --instance"),
    (listening(extraArgs=["--run-dir=/x"]), "extraArgs has --run-dir"),
    (listening(flags={"rest-listen": "localhost:9000"}), "rest-listen"),
    (listening(slot={"nodeUids": ["9-1"]}), "nodeUids has 9-1"), (listening(slot={"nodeUids": ["9999999999"]}), "nodeUids has 9999999999"),
], ids=str)
def test_what_would_fail_in_the_pod_is_refused_with_a_sentence(charts, values, said):
    with pytest.raises(Refused, match=re.escape(said)):
        charts.render(values=values, kinds=EVERYTHING)


@pytest.mark.parametrize("values", [
    {"metricsPort": 0, "healthPort": 9465}, {"resource": "gantry.dev/" + "x" * 47}, {"commonAnnotations": {"a": "x" * 4000}},
    {"commonLabels": {"example.com/a.b_c": ""}}, {"resources": {"limits": {"memory": 1e9, "cpu": "1.5", "ephemeral-storage": "1e3"}}},
    {"image": {"registry": "[fd00::1]:5000/a", "repository": "host.example:80/b/c__d"}}, {"listenAddress": "[$(POD_IP)]"},
    listening(peers={"tcp": False}, listen={"peerPort": 7000, "dataPort": 7000}), {"extraArgs": ["--instance=a"]},
    listening(flags={"data-host": "fd00::1", "rest-listen": "[::1]:9000"}),
    {"extraArgs": ["--peer-gid", "1", "--workers", "1"]},
], ids=str)
def test_what_works_is_let_through(charts, values):
    assert charts.render(values=values, kinds=EVERYTHING).one("DaemonSet")


@pytest.mark.parametrize("address, written", [("::", "[::]"), ("[::]", "[::]"), ("fd00::1", "[fd00::1]"), ("10.0.0.1", "10.0.0.1")])
def test_addresses_have_the_brackets_that_they_need(charts, address, written):
    plugin = flags_of(pod_spec(charts.render(values={"listenAddress": address}).one("DaemonSet"))["containers"][0])
    assert (plugin["--metrics-listen"], plugin["--health-listen"]) == (f"{written}:9465", f"{written}:9466")
    spec = pod_spec(charts.render(charts.example, values={"gantry-lib": {"listen": {"address": address}}}).one("Deployment", "decode"))
    sidecar = flags_of(spec["initContainers"][0])
    assert [sidecar[f"--{name}-listen"] for name in ("peer", "data", "health", "metrics")] == [f"{written}:{port}" for port in range(9461, 9465)]


def test_a_port_of_another_container_is_refused(charts):
    """They share the pod's address. The engine of the example has 8000."""
    with pytest.raises(Refused, match="the container engine and the sidecar have the port 8000 both"):
        charts.render(charts.example, values={"gantry-lib": {"listen": {"dataPort": 8000}}})


def test_half_a_processor_is_injected_as_half_a_processor(charts):
    policy = charts.render(values=listening(resources={"requests": {"cpu": 0.5}}), kinds=EVERYTHING).one("MutatingAdmissionPolicy")
    assert '"cpu": dyn(0.5)' in policy["spec"]["mutations"][1]["jsonPatch"]["expression"]


def test_the_plugin_takes_the_resources_that_the_schema_takes(tmp_path):
    """And the socket's path is as long as the chart counts."""
    plugin = BIN_DIR / "gantry-device-plugin"
    rule = json.loads((ROOT / "charts" / "gantry" / "values.schema.json").read_text())["definitions"]["resourceName"]

    def said(*arguments):
        run = subprocess.run([plugin, *arguments], capture_output=True, text=True, timeout=20)
        return run.returncode, run.stderr

    for resource in ["gantry.dev/transfer", "a.b/c", "a.1/c.d-e", "gantry.dev/" + "x" * 63, "gantry.dev/" + "x" * 64, "a..b/x", "a.-b/c", "a-.b/c",
                     "a.b/-c", "a.b/c.", "a/b", "kubernetes.io/x", "node.kubernetes.io/x", "requests.a.b/x", "a" * 120 + ".b/x", "A.b/c", "1.b/c"]:
        taken = (re.search(rule["pattern"], resource) and len(resource) <= rule["maxLength"] and not re.search(rule["not"]["pattern"], resource))
        assert (said("--resource", resource, "--print-config")[0] == 0) == bool(taken), resource
    folder = "/" + "k" * 30  # as long as /var/lib/kubelet/device-plugins
    status, error = said("--resource", "gantry.dev/" + "x" * 48, "--kubelet-dir", folder, "--peer-dir", str(tmp_path), "--instance", "12345678")
    assert status != 0 and "has 108 bytes; a Unix socket takes 107" in error, error


def test_the_bounds_of_the_plugin_are_those_of_the_schema():
    said = subprocess.run([BIN_DIR / "gantry-device-plugin", "--help"], capture_output=True, text=True, timeout=20).stdout
    schema = json.loads((ROOT / "charts" / "gantry" / "values.schema.json").read_text())["properties"]
    for flag, value in (("slots", "slots"), ("settle-ms", "settleMs"), ("reconcile-ms", "reconcileMs")):
        least, most = re.search(rf"--{flag} INT:INT in \[(\d+) - (\d+)\]", said).groups()
        assert (schema[value]["minimum"], schema[value]["maximum"]) == (int(least), int(most)), flag


@pytest.mark.parametrize("chart", ["gantry", "gantry-lib"])
def test_no_object_of_a_schema_takes_any_key(chart):
    schema = json.loads((ROOT / "charts" / chart / "values.schema.json").read_text())
    # Objects of Kubernetes' own kinds, values of a dependency, which has its own schema, and Helm's.
    free = {"kubernetesObject", "kubernetesObjects", "valueFrom", "global", "sidecar", "extraObjects"}

    def look(part, name):
        if isinstance(part, dict):
            if "properties" in part:
                assert part.get("additionalProperties") is False, name
            elif part.get("type") == "object" and name not in free:
                assert isinstance(part.get("additionalProperties"), dict), name
            for key, value in part.items():
                if key in ("if", "then", "not"):
                    continue  # conditions beside the object's own keys
                look(value, name if key in ("items", "oneOf", "properties", "additionalProperties") and name in free else key)
        elif isinstance(part, list):
            for each in part:
                look(each, name)

    look(schema, "top")


def test_the_flags_of_the_schema_are_those_of_the_sidecar():
    check = subprocess.run([sys.executable, ROOT / "tools" / "settings", "--check"], capture_output=True, text=True, timeout=20,
                           env=os.environ | {"GANTRY_BIN_DIR": str(BIN_DIR)})
    assert check.returncode == 0, check.stderr


@pytest.mark.parametrize("flag, value", [("--run-dir", "/x"), ("--require-slot", True), ("--peer-listen", "[::]:1")])
def test_a_flag_that_the_chart_gives_itself_is_refused(charts, flag, value):
    with pytest.raises(Refused, match=f"Additional property {flag[2:]}"):
        charts.render(values={"sidecar": {"flags": {flag[2:]: value}}})
