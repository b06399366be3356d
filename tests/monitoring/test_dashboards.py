"""The dashboards: what Grafana takes, what a reader needs on every panel, and no metric that does not exist."""

import itertools
import re
import subprocess
import sys

import pytest

from monitoring_files import FILES, ROOT, dashboards, documented_metrics, panels, unknown_names

DASHBOARDS = dashboards()
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
KINDS = {"timeseries", "stat", "table", "heatmap", "state-timeline"}
UNITS = {"short", "percentunit", "ops", "s", "bytes", "Bps", "dateTimeAsIso"}
COLUMNS = 24
BYTES_MAX = 1 << 20  # of a ConfigMap, with both of them and all that is around them

# Metrics without a panel, and why.
NOT_SHOWN = {
    "gantry_buffer_registrations_total": "all or nothing: the requests are shown",
    "gantry_dp_log_lines_dropped_total": "the log says it",
    "gantry_http_connections": "of the pod's own containers",
    "gantry_log_lines_dropped_total": "the log says it",
    "gantry_rdma_work_requests_total": "bytes, and those in flight, are shown",
    "gantry_worker_mappings_total": "mappings and restarts are shown",
    "gantry_worker_pid_conflicts_total": "among the restarts",
    "gantry_workload_ends_total": "the log has each with its reason",
    "vllm:gantry_bytes_transferred": "bytes by path are shown, and the sidecar has sizes",
    "vllm:gantry_num_blocks": "bytes are shown",
    "vllm:gantry_num_descriptors": "bytes are shown",
}

each_dashboard = pytest.mark.parametrize("dashboard", DASHBOARDS.values(), ids=DASHBOARDS.keys())
each_panel = pytest.mark.parametrize("panel", [
    pytest.param(panel, id=f"{dashboard['uid']}: {panel['title']}") for dashboard in DASHBOARDS.values() for panel in panels(dashboard)])


def test_the_files_are_what_their_script_makes(tmp_path):
    subprocess.run([sys.executable, ROOT / "tools" / "dashboards" / "make", tmp_path], check=True, timeout=30)
    made = {path.name: path.read_text() for path in tmp_path.iterdir()}
    kept = {path.name: path.read_text() for path in (FILES / "dashboards").iterdir()}
    assert made.keys() == kept.keys() == {"gantry-transfers.json", "gantry-device-plugin.json"}
    different = [name for name in made if made[name] != kept[name]]
    assert not different, "run tools/dashboards/make, which is where they are edited"
    assert sum(map(len, kept.values())) < BYTES_MAX / 2


@each_dashboard
def test_a_dashboard_is_classic_and_can_be_found_again(dashboard):
    assert 39 <= dashboard["schemaVersion"] <= 41
    assert re.fullmatch(r"gantry-[a-z-]{1,33}", dashboard["uid"]) and f"{dashboard['uid']}.json" in DASHBOARDS
    assert dashboard["id"] is None and dashboard["version"] >= 1 and dashboard["editable"] is True
    assert dashboard["title"] and dashboard["description"] and "gantry" in dashboard["tags"]
    assert (dashboard["graphTooltip"], dashboard["refresh"], dashboard["time"]) == (1, "30s", {"from": "now-1h", "to": "now"})


@each_dashboard
def test_data_source_namespace_and_pod_are_chosen(dashboard):
    source, namespace, pod = dashboard["templating"]["list"]
    assert (source["name"], source["type"], source["query"]) == ("datasource", "datasource", "prometheus")
    assert re.fullmatch(r"label_values\((gantry_(dp_)?build_info), namespace\)", namespace["definition"])
    assert re.fullmatch(r'label_values\((gantry_(dp_)?build_info)\{namespace=~"\$namespace"\}, pod\)', pod["definition"])
    for variable in (namespace, pod):
        assert variable["datasource"] == DATASOURCE
        assert variable["query"]["query"] == variable["definition"]
        assert (variable["includeAll"], variable["multi"], variable["allValue"]) == (True, True, ".*")
        assert unknown_names(variable["definition"], documented_metrics()) == []
    for annotation in dashboard["annotations"]["list"]:
        assert annotation["datasource"] == DATASOURCE


@each_dashboard
def test_panels_lie_beside_each_other_and_have_names_of_their_own(dashboard):
    taken = {}
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        assert place["w"] > 0 and place["h"] > 0 and place["x"] >= 0 and place["x"] + place["w"] <= COLUMNS, panel["title"]
        for cell in itertools.product(range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])):
            assert cell not in taken, f"{panel['title']} lies upon {taken[cell]}"
            taken[cell] = panel["title"]
    for key in ("id", "title"):
        values = [panel[key] for panel in dashboard["panels"]]
        assert len(values) == len(set(values)), f"two panels have the same {key}"


@each_panel
def test_a_panel_says_what_it_shows_and_in_which_unit(panel):
    assert panel["type"] in KINDS
    assert re.search(r"\.$", panel["description"]), "a description is a sentence or more"
    defaults = panel["fieldConfig"]["defaults"]
    assert defaults["unit"] in UNITS
    assert defaults["min"] == 0 and defaults["noValue"]
    steps = defaults["thresholds"]["steps"]
    assert steps[0]["value"] is None, "the first threshold is the base, without a value"
    values = [step["value"] for step in steps[1:]]
    assert values == sorted(values) and None not in values
    for override in panel["fieldConfig"]["overrides"]:
        assert {one["id"]: one["value"] for one in override["properties"]}["unit"] in UNITS


@each_panel
def test_a_panel_asks_the_chosen_source_for_what_exists(panel):
    assert panel["datasource"] == DATASOURCE
    assert panel["targets"] and len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
    for target in panel["targets"]:
        expression = target["expr"]
        assert target["datasource"] == DATASOURCE
        assert target["legendFormat"]
        assert target["format"] == {"table": "table", "heatmap": "heatmap"}.get(panel["type"], "time_series")
        assert unknown_names(expression, documented_metrics()) == []
        selectors = re.findall(r"\{([^}]*)\}", expression)
        assert selectors and all('namespace=~"$namespace", pod=~"$pod"' in selector for selector in selectors), expression
        assert len(selectors) == len(re.findall(r"\b(?:gantry|process)_\w+", expression)), f"a metric without a choice: {expression}"
        windows = re.findall(r"\[([^]]+)\]", expression)
        if panel["type"] not in ("stat", "table"):
            assert set(windows) <= {"$__rate_interval"}, expression
        labels = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        grouped = re.search(r"sum by \(([^)]*)\)", expression)
        if grouped:
            assert labels <= {label.strip() for label in grouped[1].split(",")}, "the legend has labels that are summed away"


def test_the_runbook_names_panels_that_exist():
    titles = {board["title"] for board in DASHBOARDS.values()}
    titles |= {panel["title"] for board in DASHBOARDS.values() for panel in board["panels"]}
    named = set(re.findall(r'"([A-Z][^"]*)"', (ROOT / "docs" / "alerts.md").read_text()))
    assert named and named <= titles, named - titles


def test_every_metric_of_the_sidecar_the_plugin_and_the_connector_for_vllm_is_shown():
    shown = " ".join(target["expr"] for board in DASHBOARDS.values() for panel in panels(board) for target in panel["targets"])
    metrics = {re.sub(r"_(bucket|sum|count)$", "", name) for name in documented_metrics() if "gantry_" in name}
    missing = {name for name in metrics if not re.search(rf"\b{name}(_bucket|_count)?\b", shown)}
    assert missing == NOT_SHOWN.keys()
