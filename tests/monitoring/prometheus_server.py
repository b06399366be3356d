"""A real Prometheus with the alert rules, for some seconds, and questions to it."""

import json
import re
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request

from monitoring_files import RULES_FILE, alerts, dashboards, filled_in, panels

SCRAPE_SECONDS = 0.5
RATE_INTERVAL = "10s"  # what stands for $__rate_interval; Grafana takes four times the scrape interval, or more
START_SECONDS = 30
CONFIG = """
global: {{scrape_interval: {interval}ms, scrape_timeout: {interval}ms, evaluation_interval: {interval}ms}}
rule_files: ['{rules}']
scrape_configs:
- job_name: gantry
  file_sd_configs: [{{files: ['{targets}'], refresh_interval: 1s}}]
"""


def _free_address():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return "127.0.0.1:%d" % listener.getsockname()[1]


class Prometheus:
    def __init__(self, folder):
        program = shutil.which("prometheus")
        assert program, "there is no prometheus on the PATH: tools/promtool-path says where it is"
        self._folder, self._targets = folder, []
        self._address = _free_address()
        (folder / "targets.json").write_text("[]")
        (folder / "prometheus.yaml").write_text(CONFIG.format(
            interval=int(SCRAPE_SECONDS * 1000), rules=RULES_FILE, targets=folder / "targets.json"))
        with open(folder / "prometheus.log", "ab") as log:
            self._process = subprocess.Popen(
                [program, f"--config.file={folder}/prometheus.yaml", f"--storage.tsdb.path={folder}/tsdb",
                 f"--web.listen-address={self._address}"], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            self._wait_until_ready()
        except BaseException:
            self.close()
            raise

    def close(self):
        self._process.kill()
        self._process.wait()

    def add_target(self, address, namespace, pod):
        """Anything with /metrics, with the labels that the chart's scrape configuration gives to a pod."""
        self._targets.append({"targets": [address], "labels": {"namespace": namespace, "pod": pod}})
        made = self._folder / "targets.json.new"
        made.write_text(json.dumps(self._targets))
        made.rename(self._folder / "targets.json")

    def ask(self, path, **parameters):
        """The data of an answer of /api/v1; an error of Prometheus fails."""
        try:
            with urllib.request.urlopen(f"http://{self._address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}",
                                        timeout=10) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters}: {error.read().decode()}") from None

    def values(self, expression):
        """Of all series, now."""
        return [float(series["value"][1]) for series in self.ask("query", query=filled_in(expression, RATE_INTERVAL))["result"]]

    def curves(self, expression, start, end, step):
        """[(labels, [(time, value)...])...]"""
        answer = self.ask("query_range", query=filled_in(expression, RATE_INTERVAL), start=start, end=end, step=step)
        return [(series["metric"], [(float(when), float(value)) for when, value in series["values"]])
                for series in answer["result"]]

    def _wait_until_ready(self):
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                with urllib.request.urlopen(f"http://{self._address}/-/ready", timeout=5):
                    return
            except OSError:
                time.sleep(0.05)
        raise AssertionError(f"Prometheus does not start:\n{(self._folder / 'prometheus.log').read_text()}")


def questions():
    """Everything that the dashboards and the alerts ask: name -> expression.

    A comparison at the end is left out: what is compared has to be there, also while nothing is wrong.
    """
    asked = {}
    for board in dashboards().values():
        uid = board["uid"]
        for panel in panels(board):
            for target in panel["targets"]:
                asked[f"{uid}: {panel['title']}, {target['refId']}"] = target["expr"]
        for variable in board["templating"]["list"][1:]:
            metric, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["definition"]).groups()
            asked[f"{uid}: ${label}"] = f"group by ({label}) ({metric})"
        for annotation in board["annotations"]["list"]:
            asked[f"{uid}: annotation {annotation['name']}"] = annotation["expr"]
    asked |= {name: alert["expr"] for name, alert in alerts().items()}
    return {name: re.sub(r" (>|>=|<) [\d.]+$", "", expression) for name, expression in asked.items()}
