"""The MutatingAdmissionPolicy: its expressions, evaluated by CEL's own runtime, make of a pod what the library chart makes of it."""

import copy
import json
import re

import pytest
from cel_expr_python import cel
from conftest import EVERYTHING, Refused, flags_of

POLICY = ["admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"]
INJECTION = {"injection": {"enabled": True, "namespaces": ["chat", "search"]}}
CLAIMS = {"claims": [{"name": "gpus", "resourceClaimName": "g"}], "shareProcessNamespace": True,
          "nixlPlugin": {"enabled": True, "path": "/nixl/plugins"}, "terminationGracePeriodSeconds": 90, "memlock": {"nriBytes": 1 << 40}, "extraArgs": ["--peer-rules=it's \"<here>\" & \\there"]}
# As the API server has them when policies run: defaults are set.
BARE = {"metadata": {"labels": {"gantry.dev/inject": "true"}},
        "spec": {"containers": [{"name": "engine", "image": "x"}], "securityContext": {}, "terminationGracePeriodSeconds": 30}}
FULL = {"metadata": {"labels": {"gantry.dev/inject": "true"}, "annotations": {"a/b": "c"}},
        "spec": {"containers": [{"name": "engine", "env": [{"name": "A", "value": "b"}], "volumeMounts": [{"name": "v", "mountPath": "/v"}]},
                                {"name": "proxy"}],
                 "initContainers": [{"name": "first"}], "volumes": [{"name": "v", "emptyDir": {}}],
                 "resourceClaims": [{"name": "nic", "resourceClaimName": "n"}],
                 "securityContext": {"supplementalGroups": [7], "fsGroup": 8}}}
NO_SECURITY = {"metadata": {"labels": {"gantry.dev/inject": "true"}}, "spec": {"containers": [{"name": "engine"}]}}


def policy_of(charts, sidecar=None, **options):
    return charts.render(values={**INJECTION, "sidecar": sidecar or {}}, kinds=POLICY, **options).one("MutatingAdmissionPolicy")


def evaluate(expression, pod):
    """Kubernetes' types of messages (JSONPatch, Object...) become maps here; all else is CEL as it stands."""
    expression = re.sub(r'JSONPatch\{op: ("add"), path: ("[^"]*"), value: ', r'{"op": dyn(\1), "path": dyn(\2), "value": ', expression)
    expression = re.sub(r"\bObject(\.\w+)*\{", "{", expression)
    expression = re.sub(r"\b(spec|containers|name|env|value|volumeMounts|mountPath|subPath|readOnly): ", r'"\1": ', expression)
    assert "JSONPatch" not in expression and "Object" not in expression
    environment = cel.NewEnv(variables={"object": cel.Type.DYN})
    return environment.compile(expression).eval(data={"object": pod}).plain_value()


def apply_patches(pod, patches):
    """JSON patches of the operation add (RFC 6902)."""
    pod = copy.deepcopy(pod)
    for patch in patches:
        assert patch["op"] == "add"
        *folders, last = [key.replace("~1", "/").replace("~0", "~") for key in patch["path"].split("/")[1:]]
        target = pod
        for key in folders:
            target = target[int(key)] if isinstance(target, list) else target[key]
        if isinstance(target, list):
            assert last == "-"
            target.append(patch["value"])
        else:
            assert last not in target or not isinstance(target[last], (list, dict)), f"{patch['path']} is overwritten"
            target[last] = patch["value"]
    return pod


def merge_containers(pod, applied):
    """A server-side apply of what is merged by name: containers, their variables; and mounts, by path."""
    pod = copy.deepcopy(pod)
    containers = {each["name"]: each for each in pod["spec"]["containers"]}
    for each in applied["spec"]["containers"]:
        container = containers[each["name"]]
        for field, key in (("env", "name"), ("volumeMounts", "mountPath")):
            known = {entry[key]: entry for entry in container.get(field, [])}
            container[field] = list({**known, **{entry[key]: entry for entry in each[field]}}.values())
    return pod


def inject(policy, pod):
    for condition in policy["spec"]["matchConditions"]:
        if not evaluate(condition["expression"], pod):
            return pod
    for mutation in policy["spec"]["mutations"]:
        if mutation["patchType"] == "JSONPatch":
            pod = apply_patches(pod, evaluate(mutation["jsonPatch"]["expression"], pod))
        else:
            pod = merge_containers(pod, evaluate(mutation["applyConfiguration"]["expression"], pod))
    return pod


def whole(number):
    return int(number) if isinstance(number, float) and number.is_integer() else number


def by_the_library(charts, spec, sidecar):
    """The same pod through gantry-lib.podSpec."""
    folder = charts.example / "templates" / "only.yaml"
    folder.write_text('{{- if .Values.only }}\nkind: Only\nmetadata: {name: only}\nspec:\n  {{- include "gantry-lib.podSpec" '
                      '(dict "root" . "spec" .Values.only) | nindent 2 }}\n{{- end }}\n')
    try:
        values = {"only": spec, "roles": {"prefill": None, "decode": None},
                  "gantry-lib": {**sidecar, "fullnameOverride": "one-gantry"}}
        return charts.render(charts.example, values=values).one("Only")["spec"]
    finally:
        folder.unlink()


@pytest.mark.parametrize("sidecar", [{}, CLAIMS], ids=["plain", "claims"])
@pytest.mark.parametrize("pod", [BARE, FULL, NO_SECURITY], ids=["bare", "full", "no-security"])
def test_the_policy_makes_what_the_library_makes(charts, pod, sidecar):
    mutated = inject(policy_of(charts, sidecar), pod)
    wanted = by_the_library(charts, copy.deepcopy(pod["spec"]), sidecar)

    def in_order(spec):
        spec = copy.deepcopy(spec)
        for container in spec["containers"]:
            container["env"].sort(key=lambda each: each["name"])
        return json.loads(json.dumps(spec), parse_float=lambda text: whole(float(text)))

    assert in_order(mutated["spec"]) == in_order(wanted)
    assert mutated["metadata"]["labels"]["gantry.dev/sidecar"] == "true"
    annotations = mutated["metadata"].get("annotations", {})
    assert ("ulimits.noderesource.dev/container.gantry-sidecar" in annotations) == bool(sidecar)
    assert pod["metadata"].get("annotations", {}).items() <= annotations.items()


@pytest.mark.parametrize("always, refused", [({"restartPolicy": "Always"}, True), ({}, False)], ids=["sidecar", "plain"])
def test_the_ports_of_init_containers_that_have_ended_are_free(charts, always, refused):
    first = {"name": "first", "ports": [{"containerPort": 9461}], **always}
    spec = {**copy.deepcopy(BARE["spec"]), "initContainers": [first]}
    if not refused:
        assert by_the_library(charts, spec, {})["initContainers"][0] == first
        return
    with pytest.raises(Refused, match="the container first and the sidecar have the port 9461 both"):
        by_the_library(charts, spec, {})


def test_a_pod_that_has_a_sidecar_stays_as_it_is(charts):
    policy = policy_of(charts)
    once = inject(policy, FULL)
    assert once != FULL and inject(policy, once) == once


def test_chosen_containers_alone_get_the_run_directory(charts):
    spec = inject(policy_of(charts, {"workloadContainers": ["engine"]}), FULL)["spec"]
    assert {each["name"]: "gantry-run" in str(each.get("volumeMounts")) for each in spec["containers"]} == {
        "engine": True, "proxy": False}


def test_only_labelled_pods_of_named_namespaces_are_matched(charts):
    rendered = charts.render(values=INJECTION, kinds=POLICY)
    policy, binding = rendered.one("MutatingAdmissionPolicy"), rendered.one("MutatingAdmissionPolicyBinding")
    matched = policy["spec"]["matchConstraints"]
    assert matched["objectSelector"] == {"matchLabels": {"gantry.dev/inject": "true"}}
    assert matched["namespaceSelector"]["matchExpressions"] == [
        {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["chat", "search"]}]
    assert matched["resourceRules"] == [
        {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]
    assert binding["spec"] == {"policyName": policy["metadata"]["name"]}
    assert policy["spec"]["failurePolicy"] == "Fail"
    assert policy["spec"]["reinvocationPolicy"] == "IfNeeded", "a webhook that comes later may change the pod"


def test_every_namespace_has_what_its_pods_mount(charts):
    for kinds, kind in ((POLICY, "Secret"), (EVERYTHING, "Certificate")):
        rendered = charts.render(values=INJECTION, kinds=kinds)
        spec = inject(rendered.one("MutatingAdmissionPolicy"), BARE)["spec"]
        volume, = [each for each in spec["volumes"] if "secret" in each]
        for namespace in ("chat", "search"):
            made = [each for each in rendered.all(kind) if each["metadata"]["namespace"] == namespace]
            names = {each.get("spec", {}).get("secretName", each["metadata"]["name"]) for each in made}
            assert volume["secret"]["secretName"] in names, (kind, namespace)
    uris = {uri for each in rendered.all("Certificate") for uri in each["spec"].get("uris", [])}
    assert uris == {"spiffe://cluster.local/ns/chat/gantry/one-gantry", "spiffe://cluster.local/ns/search/gantry/one-gantry"}
    assert flags_of(spec["initContainers"][0])["--peer-tls-names"] == "spiffe://cluster.local/ns/$(GANTRY_POD_NAMESPACE)/*"


def test_the_newest_version_of_the_api_is_taken(charts):
    beta = "admissionregistration.k8s.io/v1beta1/MutatingAdmissionPolicy"
    for kinds, version in (([beta], "v1beta1"), ([*POLICY, beta], "v1")):
        policy = charts.render(values=INJECTION, kinds=kinds).one("MutatingAdmissionPolicy")
        assert policy["apiVersion"] == f"admissionregistration.k8s.io/{version}"


@pytest.mark.parametrize("values, kinds, said", [
    (INJECTION, [], "injection needs MutatingAdmissionPolicy"),
    ({"injection": {"enabled": True}}, POLICY, "injection.namespaces is empty"),
])
def test_what_cannot_work_is_refused_with_the_reason(charts, values, kinds, said):
    with pytest.raises(Refused, match=said):
        charts.render(values=values, kinds=kinds)
