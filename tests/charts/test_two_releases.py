"""Two releases live together: no name of the cluster, of a namespace or of a node belongs to both."""

import re

import pytest
from conftest import EVERYTHING, flags_of, pod_spec

# Folders that belong to the kubelet and the container runtime; what the plugin puts there it names by resource or instance.
SHARED_FOLDERS = {"/var/lib/kubelet/device-plugins", "/var/lib/kubelet/pod-resources", "/var/run/cdi", "/etc/cdi"}
KINDS_OF_THE_CLUSTER = {"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"}


def names(rendered):
    return {(each["kind"], None if each["kind"] in KINDS_OF_THE_CLUSTER else each["metadata"].get("namespace"),
             each["metadata"]["name"]) for each in rendered.objects}


def folders(rendered):
    volumes = pod_spec(rendered.one("DaemonSet"))["volumes"]
    return {each["hostPath"]["path"] for each in volumes if "hostPath" in each} - SHARED_FOLDERS


@pytest.mark.parametrize("other", [{"name": "two"}, {"namespace": "elsewhere"}], ids=["name", "namespace"])
def test_two_releases_share_no_name_and_no_folder(charts, other):
    everything = charts.main / "ci" / "everything-values.yaml"
    first = charts.render(files=[everything], kinds=EVERYTHING)
    # In injected namespaces the second release has its own label and its own container name.
    second = charts.render(files=[everything], kinds=EVERYTHING, **other,
                           values={"resource": "gantry.dev/second", "injection": {"namespaces": ["other"]},
                                   "extraObjects": []})
    assert not names(first) & names(second)
    assert folders(first) and not folders(first) & folders(second)
    assert flags_of(pod_spec(first.one("DaemonSet"))["containers"][0])["--resource"] == "gantry.dev/transfer"
    assert flags_of(pod_spec(second.one("DaemonSet"))["containers"][0])["--resource"] == "gantry.dev/second"


def test_every_object_of_a_release_has_its_own_name(charts):
    rendered = charts.render(files=[charts.main / "ci" / "everything-values.yaml"], kinds=EVERYTHING)
    assert len(names(rendered)) == len(rendered.objects)


def test_names_stay_within_63_letters(charts):
    name = "a-release-with-a-name-that-is-as-long-as-helm-takes-it"[:53]
    rendered = charts.render(name=name, files=[charts.main / "ci" / "everything-values.yaml"], kinds=EVERYTHING)
    for kind, namespace, own in names(rendered):
        assert namespace is None or len(own) <= 63, (kind, own)
    assert charts.render(name="gantry").one("DaemonSet")["metadata"]["name"] == "gantry"
    assert charts.render(values={"fullnameOverride": "x"}).one("DaemonSet")["metadata"]["name"] == "x"


LABEL = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9])?")
NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def metadata_of(part):
    """The metadata of objects and of what they make: pods and Secrets."""
    if isinstance(part, dict):
        if isinstance(part.get("metadata"), dict):
            yield part["metadata"]
        if "secretTemplate" in part:
            yield part["secretTemplate"]
        for each in part.values():
            yield from metadata_of(each)
    elif isinstance(part, list):
        for each in part:
            yield from metadata_of(each)


def check_metadata(rendered):
    """By the rules of Kubernetes' API: names of DNS, texts in labels and annotations, labels of 63 letters."""
    for metadata in metadata_of(rendered.objects):
        for key in ("name", "namespace"):
            assert key not in metadata or (isinstance(metadata[key], str) and NAME.fullmatch(metadata[key])), metadata
        for key, value in {**(metadata.get("labels") or {}), **(metadata.get("annotations") or {})}.items():
            assert isinstance(key, str) and isinstance(value, str), metadata
        for value in (metadata.get("labels") or {}).values():
            assert len(value) <= 63 and LABEL.fullmatch(value), metadata


# Cut at 45 letters these end in a dot and in a dash; texts that YAML takes for numbers and truth values.
RELEASES = ["a" * 44 + ".tail-53x", "a" * 44 + "-tail-53x", "a" * 38 + ".gantry.x", "123", "1e3", "0x10", "true", "null", "1.5", "a.b"]


@pytest.mark.parametrize("name", RELEASES)
@pytest.mark.parametrize("kinds", [EVERYTHING, EVERYTHING[1:]], ids=["certificates", "token"])
def test_any_release_name_makes_valid_metadata(charts, name, kinds):
    off = {} if kinds == EVERYTHING else {"sidecar": {"authentication": {"rules": ""}, "flags": {"data-tls": False}}}
    rendered = charts.render(name=name, namespace="7", files=[charts.main / "ci" / "everything-values.yaml"], kinds=kinds, values={
        **off, "extraObjects": []})
    check_metadata(rendered)
    users = charts.render(charts.example, name=name, namespace="7", kinds=kinds, values={"gantry-lib": {"networkPolicy": {"enabled": True}}})
    check_metadata(users)
    for service in users.all("Service"):
        assert "." not in service["metadata"]["name"]


@pytest.mark.parametrize("values", [{"fullnameOverride": "b" * 44 + ".c"}, {"nameOverride": "n" * 39 + "-nn"}, {"fullnameOverride": "12"},
                                    {"serviceAccount": {"name": "1e3"}, "namespaceOverride": "5"}], ids=str)
def test_names_of_ones_own_make_valid_metadata(charts, values):
    check_metadata(charts.render(values=values))


def test_a_version_with_a_plus_is_no_label(fresh_charts):
    """As `helm package --version` gives it to nightly builds."""
    chart = fresh_charts.main / "Chart.yaml"
    version = "0.1.0-nightly.20261128.with-a-branch.and-a-commit+0123456789abcdef0123456789abcdef"
    chart.write_text(re.sub(r"(?m)^(version|appVersion): .*", rf"\1: {version}", chart.read_text()))
    check_metadata(fresh_charts.render())
