"""What the charts render is what Kubernetes takes, by its own schemas, from the oldest to the newest version that is supported, and what
the Prometheus operator and cert-manager take, by theirs."""

import os
import re
from pathlib import Path

import jsonschema
import kubernetes_validate
import pytest
import yaml
from conftest import EVERYTHING, ROOT

VERSIONS = ["1.29", "1.35", "1.36", "1.37"]
WITH_POLICIES = ["1.36", "1.37"]
# Not Kubernetes' own: by the definitions in tools/crd-path.
FOREIGN = ("monitoring.coreos.com/", "cert-manager.io/")
DEFINITIONS = ["monitoring.coreos.com_podmonitors", "monitoring.coreos.com_prometheusrules", "cert-manager.io_issuers",
               "cert-manager.io_certificates"]


class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
    """YAML 1.1 takes a bare = for a value of its own kind; it is an operator's name here."""


Loader.add_constructor("tag:yaml.org,2002:value", Loader.construct_yaml_str)


def strict(schema):
    """Of objects whose fields are listed, with no others: an API server drops them without a word."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: strict(value) for name, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and not schema.get("x-kubernetes-preserve-unknown-fields"):
        made.setdefault("additionalProperties", False)
    if isinstance(schema.get("pattern"), str):
        made["pattern"] = re.sub(r"^\^\(\?i\)", "(?i)^", schema["pattern"])  # Go takes a flag anywhere, Python only at the beginning
    return made


@pytest.fixture(scope="module")
def foreign_schemas():
    """(API version, kind) -> what checks it."""
    assert "GANTRY_CRD_DIR" in os.environ, "no definitions: run the tests by make test-charts, or export GANTRY_CRD_DIR=$(tools/crd-path)"
    found = {}
    for name in DEFINITIONS:
        definition = yaml.load((Path(os.environ["GANTRY_CRD_DIR"]) / f"{name}.yaml").read_text(), Loader)["spec"]
        for version in definition["versions"]:
            key = f"{definition['group']}/{version['name']}", definition["names"]["kind"]
            schema = strict(version["schema"]["openAPIV3Schema"])
            jsonschema.Draft202012Validator.check_schema(schema)
            found[key] = jsonschema.Draft202012Validator(schema)
    return found


def check(objects, version):
    checked = 0
    for each in objects:
        if not each["apiVersion"].startswith(FOREIGN):
            assert kubernetes_validate.validate(each, version, strict=True) == version
            checked += 1
    return checked


def check_foreign(objects, schemas):
    """The kinds that were checked."""
    foreign = [each for each in objects if each["apiVersion"].startswith(FOREIGN)]
    for each in foreign:
        schemas[each["apiVersion"], each["kind"]].validate(each)
    return {each["kind"] for each in foreign}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("file", [None, *sorted(path.name for path in (ROOT / "charts/gantry/ci").glob("*-values.yaml"))])
def test_the_plugin_chart(charts, foreign_schemas, version, file):
    files = [charts.main / "ci" / file] if file else []
    kinds = [each for each in EVERYTHING if "Mutating" not in each]
    # The policy is of Kubernetes 1.36.
    policies = ["admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"] if version in WITH_POLICIES else []
    values = {} if policies else {"injection": {"enabled": False}}
    rendered = charts.render(files=files, values=values, kinds=kinds + policies, version=version + ".0")
    assert check(rendered.objects, version) >= 2
    foreign = check_foreign(rendered.objects, foreign_schemas)
    if file == "everything-values.yaml":
        assert foreign >= {"PodMonitor", "PrometheusRule"}
        if policies:
            assert rendered.all("MutatingAdmissionPolicy") and rendered.all("MutatingAdmissionPolicyBinding")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kinds", [[], ["cert-manager.io/v1"]], ids=["token", "certificates"])
def test_pods_with_the_sidecar(charts, foreign_schemas, version, kinds):
    rendered = charts.render(charts.example, kinds=kinds, version=version + ".0", values={"gantry-lib": {
        "networkPolicy": {"enabled": True}, "shareProcessNamespace": True, "terminationGracePeriodSeconds": 90}})
    assert check(rendered.objects, version) >= 3
    assert check_foreign(rendered.objects, foreign_schemas) == ({"Issuer", "Certificate"} if kinds else set())


def test_what_kubernetes_does_not_know_is_found(charts):
    daemon_set = charts.render().one("DaemonSet")
    daemon_set["spec"]["template"]["spec"]["containers"][0]["restartsPolicy"] = "Always"
    with pytest.raises(kubernetes_validate.ValidationError):
        check([daemon_set], "1.35")


def test_what_other_operators_do_not_know_is_found(charts, foreign_schemas):
    monitor = charts.render(files=[charts.main / "ci/everything-values.yaml"], kinds=EVERYTHING, version="1.36.0").all("PodMonitor")[0]
    monitor["spec"]["podMetricsEndpoints"][0]["scrapesInterval"] = "30s"
    with pytest.raises(jsonschema.ValidationError, match="scrapesInterval"):
        check_foreign([monitor], foreign_schemas)
    certificate = charts.render(charts.example, kinds=["cert-manager.io/v1"]).all("Certificate")[0]
    del certificate["spec"]["issuerRef"]
    with pytest.raises(jsonschema.ValidationError, match="issuerRef"):
        check_foreign([certificate], foreign_schemas)
