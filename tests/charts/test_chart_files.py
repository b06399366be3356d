"""The charts as packages: linted, of this version, with READMEs that say what the values are."""

import re
import subprocess
import sys

import pytest
import yaml
from conftest import EVERYTHING, ROOT


@pytest.mark.parametrize("file", [None, "everything-values.yaml", "shared-node-values.yaml"])
def test_the_plugin_chart_passes_lint(charts, file):
    values = ["--values", charts.main / "ci" / file] if file else []
    # lint knows no --api-versions; what needs them is rendered by the other tests.
    off = "injection.enabled=false,monitoring.pluginMonitor.enabled=false,monitoring.sidecarMonitor.enabled=false," \
          "monitoring.rules.enabled=false,sidecar.flags.data-tls=false,sidecar.authentication.rules="
    said = charts.helm("lint", "--strict", charts.main, *values, "--set", off)
    assert "0 chart(s) failed" in said


def test_the_library_and_the_example_pass_lint(charts):
    assert "0 chart(s) failed" in charts.helm("lint", "--strict", charts.folder / "gantry-lib")
    assert "0 chart(s) failed" in charts.helm("lint", "--strict", charts.example)


def test_versions_are_those_of_the_tree():
    version = re.search(r"project\(gantry VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())[1]
    library = yaml.safe_load((ROOT / "charts/gantry-lib/Chart.yaml").read_text())
    for path in ("charts/gantry/Chart.yaml", "charts/gantry/examples/inference/Chart.yaml"):
        chart = yaml.safe_load((ROOT / path).read_text())
        assert [each["version"] for each in chart["dependencies"]] == [library["version"]], path
        assert chart["kubeVersion"] == library["kubeVersion"] == ">=1.29.0-0", path
    assert yaml.safe_load((ROOT / "charts/gantry/Chart.yaml").read_text())["appVersion"] == library["appVersion"] == version
    assert yaml.safe_load((ROOT / "charts/gantry-lib/values.yaml").read_text())["image"]["tag"] == version


def test_the_readmes_are_up_to_date():
    run = subprocess.run([sys.executable, ROOT / "tools" / "chart-readme", "--check"], capture_output=True, text=True, timeout=20)
    assert run.returncode == 0, run.stderr


def test_a_package_holds_no_examples_and_no_values_of_ci(charts, tmp_path):
    charts.helm("package", charts.main, "--destination", tmp_path)
    listed = subprocess.run(["tar", "-tzf", *tmp_path.glob("*.tgz")], capture_output=True, text=True, check=True).stdout
    assert "gantry/templates/daemonset.yaml" in listed and "gantry/charts/gantry-lib/templates/_sidecar.tpl" in listed
    assert "gantry/examples" not in listed and "gantry/ci" not in listed


@pytest.fixture
def notes_of(fresh_charts):
    """helm prints notes with a cluster at hand alone: here they are a template like the others."""
    templates = fresh_charts.main / "templates"
    text = (templates / "NOTES.txt").read_text()
    (templates / "_notes.tpl").write_text('{{ define "notes" -}}\n' + text + "{{- end }}\n")
    (templates / "notes.yaml").write_text('kind: Notes\nmetadata: {name: notes}\nsaid: {{ include "notes" . | toJson }}\n')

    return lambda kinds=(), **values: fresh_charts.render(values=values, kinds=kinds).one("Notes")["said"]


def test_the_notes_verify_in_two_commands(notes_of):
    notes = notes_of()
    assert len(re.findall(r"^  kubectl ", notes, re.M)) == 2
    assert "daemonset/one-gantry" in notes and r"allocatable.gantry\.dev/transfer" in notes
    assert "WARNING: image.registry is localhost" in notes
    everything = notes_of(peerGpuVisibility="node", image={"registry": "r"})
    assert "peerGpuVisibility is node" in everything and "WARNING: image.registry" not in everything


def test_the_notes_say_which_secrets_stay(notes_of):
    injection = {"enabled": True, "namespaces": ["chat"]}
    for kinds, what in ((EVERYTHING[-1:], "a token"), (EVERYTHING, "certificates of cert-manager")):
        injecting = notes_of(kinds=kinds, injection=injection)
        assert f"know each other by {what}. Its Secrets stay" in injecting
        assert re.search(r"^  kubectl --namespace chat delete secret --selector gantry\.dev/secret-of=one$", injecting, re.M)
    secret = {"authentication": {"certificates": {"existingSecret": "mine"}}}
    for nothing_of_ours in ({"peers": {"tcp": False}}, secret):
        assert "Its Secrets stay" not in notes_of(kinds=EVERYTHING, injection=injection, sidecar=nothing_of_ours)
