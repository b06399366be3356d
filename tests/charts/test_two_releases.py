"""Two releases live together: no name of the cluster, of a namespace or of a node belongs to both."""

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
