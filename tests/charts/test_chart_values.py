"""The schemas of the values: a typo and a wrong type are refused wherever they stand, and every flag of the sidecar is known."""

import json
import re
import subprocess

import pytest
import yaml
from conftest import BIN_DIR, ROOT, Refused

# The library chart gives these itself: what they say follows from other values.
GIVEN_BY_THE_CHART = {"name", "run-dir", "node-dir", "node-uids", "require-slot", "health-listen", "metrics-listen", "peer-listen", "data-listen",
                      "peer-tls-cert", "peer-tls-key", "peer-tls-ca", "peer-tls-names", "peer-rules", "peer-token-file",
                      "peer-plaintext"}
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
], ids=lambda value: ".".join(value) if isinstance(value, tuple) else None)
def test_a_wrong_value_is_refused(charts, path, value, said):
    with pytest.raises(Refused, match=said):
        charts.render(values=nested(path, value))


@pytest.mark.parametrize("chart", ["gantry", "gantry-lib"])
def test_no_object_of_a_schema_takes_any_key(chart):
    schema = json.loads((ROOT / "charts" / chart / "values.schema.json").read_text())
    # Objects of Kubernetes' own kinds, values of a dependency, which has its own schema, and Helm's.
    free = {"kubernetesObject", "kubernetesObjects", "global", "sidecar", "extraObjects"}

    def look(part, name):
        if isinstance(part, dict):
            if "properties" in part:
                assert part.get("additionalProperties") is False, name
            elif part.get("type") == "object" and name not in free:
                assert isinstance(part.get("additionalProperties"), dict), name
            for key, value in part.items():
                if key in ("if", "then"):
                    continue  # conditions beside the object's own keys
                look(value, name if key in ("items", "oneOf", "properties", "additionalProperties") and name in free else key)
        elif isinstance(part, list):
            for each in part:
                look(each, name)

    look(schema, "top")


def flags_of_the_sidecar():
    """{flag: what --help says of its type} without those that are no settings."""
    said = subprocess.run([BIN_DIR / "gantry-sidecar", "--help"], capture_output=True, text=True, timeout=20).stdout
    flags = dict(re.findall(r"^\s+(?:-h,)?--([a-z-]+)\s(.*)", said, re.M))
    return {flag: flags[flag].strip() for flag in set(flags) - {"help", "version", "print-config"}}


def test_the_flags_of_the_schema_are_those_of_the_sidecar():
    schema = json.loads((ROOT / "charts" / "gantry-lib" / "values.schema.json").read_text())["properties"]["flags"]["properties"]
    flags = flags_of_the_sidecar()
    assert set(schema) == set(flags) - GIVEN_BY_THE_CHART
    for flag, rule in schema.items():
        bounds = re.match(r"U?INT:U?INT in \[(-?\d+) - (\d+)\]", flags[flag])
        choices = re.match(r"(TEXT|UINT):\{([^}]*)\}", flags[flag])
        if bounds:
            assert (rule["minimum"], rule["maximum"]) == tuple(map(int, bounds.groups())), flag
        elif choices:
            assert ",".join(map(str, rule["enum"])) == choices[2], flag
        elif flags[flag].startswith("TEXT=[]"):
            assert rule == {"$ref": "#/definitions/strings"}, flag
        else:
            kind = "integer" if flags[flag].startswith("UINT") else "string" if flags[flag].startswith("TEXT") else "boolean"
            assert rule["type"] == kind, flag
