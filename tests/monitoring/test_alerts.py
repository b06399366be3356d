"""The alert rules: each is tried by promtool with series that make it fire and series that do not, and has its runbook."""

import re
import shutil
import subprocess

import pytest
import yaml

from monitoring_files import ALERT_EXPRESSION, ROOT, RULES_FILE, alerts, documented_metrics, unknown_names, value_of

ALERTS = alerts()
CASES = yaml.safe_load((ROOT / "tests" / "monitoring" / "alert_cases.yaml").read_text())
POD = {"namespace": "chat", "pod": "decode-0"}
KEYS = {"alert", "expr", "for", "labels", "annotations"}


def promtool(*words):
    program = shutil.which("promtool")
    assert program, "there is no promtool on the PATH: tools/promtool-path says where it is"
    done = subprocess.run([program, *words], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr


def in_the_pod(series):
    """The series with the labels of the pod."""
    name, _, labels = series.partition("{")
    own = ", ".join(f'{label}="{value}"' for label, value in POD.items())
    return f"{name}{{{own}, {labels}" if labels else f"{name}{{{own}}}"


def case_for_promtool(name, kind, case):
    alert, about_a_pod = ALERTS[name], "$labels.pod" in ALERTS[name]["annotations"]["summary"]
    expected = {"exp_labels": {**alert["labels"], **(POD if about_a_pod else {}), **case.get("labels", {})},
                "exp_annotations": {**alert["annotations"], "summary": case.get("summary")}}
    return {
        "name": f"{name} {kind}", "interval": "1m",
        "input_series": [{"series": in_the_pod(series), "values": values} for series, values in case["series"].items()],
        "alert_rule_test": [{"eval_time": case["at"], "alertname": name, "exp_alerts": [expected] if kind == "fires" else []}],
        # Without it a misspelt series would keep any alert quiet.
        "promql_expr_test": [{"expr": f"count({value_of(alert)}) > bool 0", "eval_time": case["at"],
                              "exp_samples": [{"labels": "{}", "value": 1}]}],
    }


def test_promtool_takes_the_rules():
    status, said = promtool("check", "rules", "--lint=all", "--lint-fatal", str(RULES_FILE))
    assert status == 0, said
    assert f"{len(ALERTS)} rules found" in said, "two alerts have one name"


def test_every_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not():
    assert list(CASES) == list(ALERTS), "alert_cases.yaml and gantry.yaml have the same alerts in the same order"
    for name, cases in CASES.items():
        assert set(cases) == {"fires", "quiet"}, name


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_fires_and_does_not(name, tmp_path):
    tests = [case_for_promtool(name, kind, case) for kind, case in CASES[name].items()]
    written = {"rule_files": [str(RULES_FILE)], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "cases.yaml").write_text(yaml.safe_dump(written))
    status, said = promtool("test", "rules", str(tmp_path / "cases.yaml"))
    assert status == 0, said


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_has_what_the_chart_and_its_reader_need(name):
    alert = ALERTS[name]
    assert re.fullmatch(r"Gantry[A-Z][A-Za-z]+", name)
    assert set(alert) <= KEYS, "the chart knows of no other key"
    assert alert["labels"]["severity"] in {"critical", "warning", "info"}
    assert set(alert["annotations"]) == {"summary", "description", "runbook_url"}
    assert ALERT_EXPRESSION.fullmatch(alert["expr"]), "the threshold is a plain number at the end"
    for text in ("summary", "description"):
        said = re.sub(r"\{\{.*?\}\}", "", alert["annotations"][text])
        assert not re.search(r"\d", said), f"a number in the {text}: thresholds stand once"
    assert "{{" not in alert["annotations"]["description"]
    assert alert["annotations"]["runbook_url"] == f"docs/alerts.md#{name.lower()}"
    assert unknown_names(alert["expr"], documented_metrics()) == []


def test_every_alert_has_its_section_in_the_runbook_and_no_other():
    sections = re.split(r"^### ", (ROOT / "docs" / "alerts.md").read_text(), flags=re.M)[1:]
    assert [section.split("\n")[0] for section in sections] == list(ALERTS)
    for section in sections:
        for part in ("**It means**", "**Look**", "**Do**"):
            assert section.count(part) == 1, f"{part} in {section}"
