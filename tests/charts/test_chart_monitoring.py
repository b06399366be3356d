"""Monitors, alerts and dashboards: off by default, refused without the operator, and whatever files there are go in unchanged."""

import json

import pytest
import yaml
from conftest import Refused, pod_spec

OPERATOR = ["monitoring.coreos.com/v1"]
RULES = """groups:
  - name: gantry
    rules:
      - alert: GantryBad
        expr: rate(gantry_x_total[5m]) > 0.05
        for: 10m
        labels: {severity: warning}
        annotations:
          summary: '{{ $labels.pod }} has {{ $value | humanize }}'
      - alert: GantryWorse
        expr: gantry_y == 1
      - record: gantry:x
        expr: sum(gantry_y)
"""
DASHBOARD = json.dumps({"title": "x", "panels": [{"legendFormat": "{{pod}} {{ .Values }}", "expr": "a{b=\"c\"} < 1 & 'd'\n"}]}, indent=1)


@pytest.fixture
def with_files(fresh_charts):
    files = fresh_charts.main / "files"
    for each in [*files.glob("rules/*.yaml"), *files.glob("dashboards/*.json")]:
        each.unlink()
    for folder in ("rules", "dashboards"):
        (files / folder).mkdir(parents=True, exist_ok=True)
    (files / "rules" / "some.yaml").write_text(RULES)
    (files / "rules" / "more.yaml").write_text("groups:\n  - name: more\n    rules: [{alert: More, expr: up == 0}]\n")
    (files / "dashboards" / "gantry-some.json").write_text(DASHBOARD)
    return fresh_charts


def monitoring(**parts):
    return {"monitoring": {name: {"enabled": True, **part} for name, part in parts.items()}}


def test_nothing_is_monitored_unless_asked_for(charts):
    rendered = charts.render(kinds=OPERATOR)
    assert not [each for each in rendered.objects if each["apiVersion"].startswith("monitoring") or each["kind"] == "ConfigMap"]


@pytest.mark.parametrize("part", ["pluginMonitor", "sidecarMonitor", "rules"])
def test_without_the_operator_the_reason_is_said(charts, part):
    with pytest.raises(Refused, match=f"monitoring.{part} needs the CRDs of the Prometheus operator"):
        charts.render(values=monitoring(**{part: {}}))


def test_the_plugins_monitor_finds_its_port(charts):
    rendered = charts.render(values=monitoring(pluginMonitor={"interval": "15s", "labels": {"release": "p"}}), kinds=OPERATOR)
    monitor = rendered.one("PodMonitor")
    daemon_set = rendered.one("DaemonSet")["spec"]["template"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= daemon_set["metadata"]["labels"].items()
    endpoint, = monitor["spec"]["podMetricsEndpoints"]
    ports = {each["name"]: each["containerPort"] for each in pod_spec(rendered.one("DaemonSet"))["containers"][0]["ports"]}
    assert ports[endpoint["port"]] == 9465 and endpoint["interval"] == "15s" and endpoint["path"] == "/metrics"
    assert monitor["metadata"]["labels"]["release"] == "p"
    with pytest.raises(Refused, match="needs a metricsPort"):
        charts.render(values={**monitoring(pluginMonitor={}), "metricsPort": 0}, kinds=OPERATOR)


def alerts_of(rendered):
    groups = rendered.one("PrometheusRule")["spec"]["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"] if "alert" in rule}


def test_thresholds_and_addresses_of_runbooks_are_the_operators(charts):
    plain = alerts_of(charts.render(values=monitoring(rules={}), kinds=OPERATOR))
    changed = alerts_of(charts.render(values=monitoring(rules={
        "thresholds": {"GantryTransfersFailing": 0.2, "GantryAccessErrors": 1000000}, "runbookBase": "https://wiki.example.com/g/"}),
        kinds=OPERATOR))
    assert plain.keys() == changed.keys() and len(plain) > 30
    for name, alert in changed.items():
        before = plain[name]["expr"].rpartition(" ")[0]
        wanted = {"GantryTransfersFailing": f"{before} 0.2", "GantryAccessErrors": f"{before} 1000000"}.get(name, plain[name]["expr"])
        assert alert["expr"] == wanted
        assert alert["annotations"]["runbook_url"] == f"https://wiki.example.com/g/docs/alerts.md#{name.lower()}"
    with pytest.raises(Refused, match="names GantryNoSuch, which is no alert"):
        charts.render(values=monitoring(rules={"thresholds": {"GantryNoSuch": 1}}), kinds=OPERATOR)


def test_every_threshold_can_be_replaced(charts):
    """The number at the end is the threshold, not a part of something else."""
    plain = alerts_of(charts.render(values=monitoring(rules={}), kinds=OPERATOR))
    everything = dict.fromkeys(plain, 17)
    for name, alert in alerts_of(charts.render(values=monitoring(rules={"thresholds": everything}), kinds=OPERATOR)).items():
        assert alert["expr"].endswith(" 17") and alert["expr"].count(" ") == plain[name]["expr"].count(" "), name


def test_the_sidecars_monitor_finds_pods_of_all_namespaces(charts):
    monitor = charts.render(values=monitoring(sidecarMonitor={}), kinds=OPERATOR).one("PodMonitor", "-sidecars")["spec"]
    assert monitor["namespaceSelector"] == {"any": True}
    named = charts.render(values=monitoring(sidecarMonitor={"namespaces": ["chat"]}), kinds=OPERATOR).one("PodMonitor", "-sidecars")
    assert named["spec"]["namespaceSelector"] == {"matchNames": ["chat"]}
    template = charts.render(charts.example).one("Deployment", "decode")["spec"]["template"]
    assert monitor["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    ports = {each["name"] for container in template["spec"]["initContainers"] for each in container["ports"]}
    assert monitor["podMetricsEndpoints"][0]["port"] in ports


def test_alerts_are_those_of_the_files(with_files):
    rule = with_files.render(values=monitoring(rules={}), kinds=OPERATOR).one("PrometheusRule")
    files = (with_files.main / "files" / "rules").glob("*.yaml")
    assert rule["spec"]["groups"] == [group for each in sorted(files) for group in yaml.safe_load(each.read_text())["groups"]]


def test_alerts_get_labels_and_may_be_left_out(with_files):
    values = monitoring(rules={"alertLabels": {"team": "x"}, "disabled": ["GantryWorse", "More"]})
    group, = with_files.render(values=values, kinds=OPERATOR).one("PrometheusRule")["spec"]["groups"]
    assert [each.get("alert", each.get("record")) for each in group["rules"]] == ["GantryBad", "gantry:x"]
    assert group["rules"][0]["labels"] == {"severity": "warning", "team": "x"} and "labels" not in group["rules"][1]


def test_dashboards_are_those_of_the_files(with_files):
    rendered = with_files.render(values=monitoring(dashboards={"namespace": "grafana"}))
    map = rendered.one("ConfigMap")
    assert map["data"] == {"gantry-some.json": DASHBOARD}
    assert map["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert map["metadata"]["annotations"] == {"grafana_folder": "Gantry"}
    assert map["metadata"]["name"] == "one-gantry-some" and map["metadata"]["namespace"] == "grafana"


def test_without_files_there_is_nothing_to_make(with_files):
    for folder in ("rules", "dashboards"):
        for each in (with_files.main / "files" / folder).iterdir():
            each.unlink()
    rendered = with_files.render(values=monitoring(rules={}, dashboards={}), kinds=OPERATOR)
    assert not rendered.all("PrometheusRule") and not rendered.all("ConfigMap")


def test_the_dashboards_and_alerts_of_this_tree_go_in(charts):
    files = charts.main / "files"
    rendered = charts.render(values=monitoring(rules={}, dashboards={}), kinds=OPERATOR)
    data = {name: text for each in rendered.all("ConfigMap") for name, text in each["data"].items()}
    assert data == {each.name: each.read_text() for each in files.glob("dashboards/*.json")}
    assert all(len(text) < 1 << 20 for text in data.values()), "a ConfigMap holds a mebibyte"
    groups = [group for each in sorted(files.glob("rules/*.yaml")) for group in yaml.safe_load(each.read_text())["groups"]]
    assert [group for each in rendered.all("PrometheusRule") for group in each["spec"]["groups"]] == groups
