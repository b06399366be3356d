"""The dashboards, the alert rules, and the metrics that the documentation knows, as the tests and the drawing read them."""

import json
import re
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
FILES = ROOT / "charts" / "gantry" / "files"
VLLM_PAGE = "connectors/vllm/README.md"
PATHS = re.search(r"^    Path:\n +type: string\n +enum: \[(.*)\]$", (ROOT / "docs" / "rest_api.yaml").read_text(), re.MULTILINE)[1].split(", ")
RULES_FILE = FILES / "rules" / "gantry.yaml"
# What Prometheus adds to each target of the chart, and what its own metrics are.
TARGET_LABELS = {"namespace", "pod", "job", "instance"}
# Patterns of names of prometheus_server.questions() that only a sidecar with an RDMA device answers.
RDMA_QUESTIONS = [r"gantry-transfers: Ports, .*", r"gantry-transfers: Throughput by device, .*",
                  r"gantry-transfers: Chunks registered, .*", r"gantry-transfers: Work requests .*",
                  r"gantry-transfers: Queue pairs and connections, A", r"GantryRdma.*"]
# Every expression of a rule: what is looked at, how it is compared, with what.
ALERT_EXPRESSION = re.compile(r"(?P<value>.+) (?P<comparison>[<>]) (?P<threshold>\d+(\.\d+)?)")
_METRIC = re.compile(r"\b((?:vllm:)?(?:gantry|process)_\w+|up)\b(?:\{([^}]*)\})?")


def dashboards():
    """File name -> dashboard."""
    return {path.name: json.loads(path.read_text()) for path in sorted((FILES / "dashboards").glob("*.json"))}


def panels(dashboard):
    """Those that show something."""
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def alerts():
    """Name -> rule."""
    groups = yaml.safe_load(RULES_FILE.read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def value_of(alert):
    """The expression without its comparison: it has a value while all is well, too."""
    return ALERT_EXPRESSION.fullmatch(alert["expr"])["value"]


def filled_in(expression, interval="10s"):
    """What Grafana would ask Prometheus for, with everything selected."""
    for variable, value in (("$__rate_interval", interval), ("$namespace", ".*"), ("$pod", ".*")):
        expression = expression.replace(variable, value)
    return expression


def metric_rows(page):
    """(name, type, labels) of each row of a page's tables."""
    rows = re.findall(r"^\| `([\w:]+)` \| (counter|gauge|histogram) \|([^|]*)\|", (ROOT / page).read_text(), re.MULTILINE)
    return [(name, kind, set(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows]


def documented_metrics():
    """Name -> labels, of sidecars, the plugin and vLLM; of histograms, what Prometheus makes of them."""
    found = {"up": set()}
    for name, kind, labels in metric_rows("docs/metrics.md") + metric_rows(VLLM_PAGE):
        if kind == "histogram":
            found |= {f"{name}_bucket": labels | {"le"}, f"{name}_sum": labels, f"{name}_count": labels}
        else:
            found[name] = labels
    return found


def unknown_names(expression, documented):
    """Metrics, and labels in selectors, that docs/metrics.md does not have."""
    named = _METRIC.findall(expression)
    unknown = [name for name, _ in named if name not in documented]
    for name, selector in named:
        labels = set(re.findall(r"(\w+)\s*[!=]", re.sub(r'"[^"]*"', '""', selector)))
        unknown += [f"{name}{{{label}}}" for label in labels - documented.get(name, labels) - TARGET_LABELS]
    return unknown if named else [f"no metric in {expression}"]
