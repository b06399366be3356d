"""What the tests of the charts share: charts with their dependencies, rendered by the real helm and parsed."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
BIN_DIR = Path(os.environ.get("GANTRY_BIN_DIR", ROOT / "build" / "release" / "bin"))
# Kinds of a cluster that has everything the charts can use.
EVERYTHING = ["cert-manager.io/v1", "monitoring.coreos.com/v1", "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"]


class Refused(Exception):
    """What helm said instead of rendering."""


class Rendered:
    """The manifests of one release."""

    def __init__(self, text):
        self.objects = [each for each in yaml.safe_load_all(text) if each]

    def all(self, kind):
        return [each for each in self.objects if each["kind"] == kind]

    def one(self, kind, suffix=""):
        found = [each for each in self.all(kind) if each["metadata"]["name"].endswith(suffix)]
        assert len(found) == 1, f"{kind} *{suffix}: {[each['metadata']['name'] for each in self.all(kind)]}"
        return found[0]


class Charts:
    """A copy of charts/ with the dependencies put in."""

    def __init__(self, folder):
        self.folder = folder / "charts"
        shutil.copytree(ROOT / "charts", self.folder, ignore=shutil.ignore_patterns("*.tgz", "Chart.lock"))
        self.main = self.folder / "gantry"
        self.example = self.main / "examples" / "inference"
        for chart in (self.main, self.example):
            self.helm("dependency", "update", "--skip-refresh", chart)

    def helm(self, *arguments):
        home = self.folder.parent / "helm"
        run = subprocess.run(["helm", *map(str, arguments)], capture_output=True, text=True, timeout=60,
                             env={**os.environ, "HELM_CACHE_HOME": str(home), "HELM_CONFIG_HOME": str(home),
                                  "HELM_DATA_HOME": str(home), "KUBECONFIG": "/dev/null"})
        if run.returncode != 0:
            raise Refused(run.stderr)
        return run.stdout

    def render(self, chart=None, *, name="one", namespace="gantry", values=None, files=(), kinds=(), version="1.35.0"):
        """`values`: a dict, as a values file would have it; `kinds`: APIs that the cluster has besides Kubernetes' own."""
        arguments = ["template", name, chart or self.main, "--namespace", namespace, "--kube-version", version]
        for kind in kinds:
            arguments += ["--api-versions", kind]
        for file in files:
            arguments += ["--values", file]
        if values:
            path = self.folder.parent / "values.yaml"
            path.write_text(json.dumps(values))  # YAML as well; PyYAML leaves "n" and "y" bare, which are booleans to helm
            arguments += ["--values", path]
        return Rendered(self.helm(*arguments))


@pytest.fixture(scope="session")
def charts(tmp_path_factory):
    assert shutil.which("helm"), "helm is not on the PATH: run the tests by make test-charts"
    return Charts(tmp_path_factory.mktemp("charts"))


@pytest.fixture
def fresh_charts(tmp_path):
    """A copy that a test may change."""
    return Charts(tmp_path)


def pod_spec(workload):
    return workload["spec"]["template"]["spec"]


def flags_of(container):
    """{flag: value} of a container's arguments; None for a switch."""
    found = {}
    for argument in container["args"]:
        flag, equals, value = argument.partition("=")
        assert flag not in found, f"{flag} is given twice"
        found[flag] = value if equals else None
    return found
