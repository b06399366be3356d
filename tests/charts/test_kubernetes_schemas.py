"""What the charts render is what Kubernetes takes, by its own schemas, in the oldest and the newest version that are supported."""

import kubernetes_validate
import pytest
from conftest import EVERYTHING, ROOT

VERSIONS = ["1.29", "1.35", "1.36"]
# Not Kubernetes' own; their operators check them.
FOREIGN = ("monitoring.coreos.com/", "cert-manager.io/")


def check(objects, version):
    checked = 0
    for each in objects:
        if not each["apiVersion"].startswith(FOREIGN):
            assert kubernetes_validate.validate(each, version, strict=True) == version
            checked += 1
    return checked


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("file", [None, *sorted(path.name for path in (ROOT / "charts/gantry/ci").glob("*-values.yaml"))])
def test_the_plugin_chart(charts, version, file):
    files = [charts.main / "ci" / file] if file else []
    kinds = [each for each in EVERYTHING if "Mutating" not in each]
    # The policy is of Kubernetes 1.36.
    policies = ["admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"] if version == "1.36" else []
    values = {} if policies else {"injection": {"enabled": False}}
    rendered = charts.render(files=files, values=values, kinds=kinds + policies, version=version + ".0")
    assert check(rendered.objects, version) >= 2
    if file == "everything-values.yaml" and policies:
        assert rendered.all("MutatingAdmissionPolicy") and rendered.all("MutatingAdmissionPolicyBinding")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kinds", [[], ["cert-manager.io/v1"]], ids=["token", "certificates"])
def test_pods_with_the_sidecar(charts, version, kinds):
    rendered = charts.render(charts.example, kinds=kinds, version=version + ".0", values={"gantry-lib": {
        "networkPolicy": {"enabled": True}, "shareProcessNamespace": True, "terminationGracePeriodSeconds": 90}})
    assert check(rendered.objects, version) >= 3


def test_what_kubernetes_does_not_know_is_found(charts):
    daemon_set = charts.render().one("DaemonSet")
    daemon_set["spec"]["template"]["spec"]["containers"][0]["restartsPolicy"] = "Always"
    with pytest.raises(kubernetes_validate.ValidationError):
        check([daemon_set], "1.35")
