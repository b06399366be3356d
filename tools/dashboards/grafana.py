"""What every panel of every dashboard has, in Grafana's classic JSON. The dashboards themselves: *_dashboard.py.

In expressions "@" stands for the chosen namespaces and pods. Panels go from left to right and wrap at 24 columns.
"""

import string

SCHEMA_VERSION = 39  # Grafana 10.4 and later
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
SELECTED = 'namespace=~"$namespace", pod=~"$pod"'
COLUMNS = 24
GREEN, YELLOW, RED, BLUE = "green", "yellow", "red", "blue"
NO_DATA, NO_EVENTS = "no data", "none"


def _thresholds(steps):
    """steps: a color, then pairs of a value and the color from there on."""
    first, *others = steps
    return {"mode": "absolute", "steps": [{"color": first, "value": None}]
            + [{"color": color, "value": value} for value, color in others]}


def _variable(name, label, metric):
    query = f"label_values({metric}, {name})"
    return {"name": name, "label": label, "type": "query", "datasource": DATASOURCE, "definition": query,
            "query": {"qryType": 1, "query": query, "refId": "PrometheusVariableQueryEditor-VariableQuery"},
            "includeAll": True, "multi": True, "allValue": ".*", "refresh": 2, "sort": 1, "hide": 0, "regex": "",
            "options": [], "current": {"selected": True, "text": ["All"], "value": ["$__all"]}}


class Dashboard:
    """`build_info` is the metric whose pods can be chosen. The panels come in the order of the calls."""

    def __init__(self, uid, title, description, build_info, version):
        self._x = self._y = self._row_height = 0
        self._panels = []
        self._frame = {
            "uid": uid, "title": title, "description": description, "id": None, "version": version,
            "schemaVersion": SCHEMA_VERSION, "tags": ["gantry"], "editable": True, "graphTooltip": 1, "refresh": "30s",
            "time": {"from": "now-1h", "to": "now"}, "timezone": "browser", "fiscalYearStartMonth": 0, "weekStart": "",
            "timepicker": {}, "liveNow": False,
            "links": [{"asDropdown": False, "icon": "external link", "includeVars": True, "keepTime": True,
                       "tags": ["gantry"], "targetBlank": False, "title": "Gantry", "tooltip": "", "type": "dashboards",
                       "url": ""}],
            "annotations": {"list": [{
                "name": "Alerts", "datasource": DATASOURCE, "enable": True, "hide": False, "iconColor": RED,
                "expr": f'ALERTS{{alertname=~"Gantry.+", alertstate="firing", {SELECTED}}}',
                "titleFormat": "{{alertname}}", "textFormat": "{{namespace}}/{{pod}}", "step": "60s"}]},
            "templating": {"list": [
                {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "refresh": 1,
                 "includeAll": False, "multi": False, "hide": 0, "regex": "", "options": [], "current": {}},
                _variable("namespace", "Namespace", build_info),
                _variable("pod", "Pod", f'{build_info}{{namespace=~"$namespace"}}')]}}

    def json(self):
        return {**self._frame, "panels": self._panels}

    def row(self, title):
        """A heading; what follows begins below it."""
        self._new_line()
        self._add({"type": "row", "title": title, "collapsed": False, "panels": []}, COLUMNS, 1)

    def stat(self, title, description, expression, unit="short", thresholds=(BLUE,), width=4):
        """One number, now."""
        options = {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}, "colorMode": "value",
                   "graphMode": "area", "justifyMode": "auto", "orientation": "auto", "textMode": "auto"}
        self._panel("stat", title, description, [(expression, title)], width, 4, unit, thresholds, {}, options)
        if unit == "short":  # increase() of a counter is seldom whole
            self._panels[-1]["fieldConfig"]["defaults"]["decimals"] = 0

    def timeseries(self, title, description, unit, *targets, stacked=None, width=8, none=NO_DATA, thresholds=(GREEN,)):
        """Lines. targets: (expression, legend). stacked: "normal" or "percent"."""
        custom = {"drawStyle": "line", "lineInterpolation": "linear", "lineWidth": 1, "fillOpacity": 40 if stacked else 8,
                  "showPoints": "never", "spanNulls": False, "gradientMode": "none", "axisPlacement": "auto",
                  "stacking": {"mode": stacked or "none", "group": "A"},
                  "thresholdsStyle": {"mode": "line" if len(thresholds) > 1 else "off"}}
        options = {"legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
                   "tooltip": {"mode": "multi", "sort": "desc"}}
        self._panel("timeseries", title, description, targets, width, 8, unit, thresholds, custom, options, none)

    def events(self, title, description, expression, legend, width=8):
        """Lines of things that should not happen: what is zero is not drawn."""
        self.timeseries(title, description, "ops", (f"{expression} > 0", legend), width=width, none=NO_EVENTS)

    def quantiles(self, title, description, histogram, selector="@", width=8):
        """Lines of the median, the 90th and the 99th percentile of a histogram in seconds."""
        buckets = f"sum by (le) (rate({histogram}_bucket{{{selector}}}[$__rate_interval]))"
        self.timeseries(title, description, "s", *((f"histogram_quantile({part}, {buckets})", f"p{part[2:]:0<2}")
                                                   for part in ("0.5", "0.9", "0.99")), width=width)

    def heatmap(self, title, description, unit, histogram, selector="@", width=12):
        """How many were in which bucket."""
        expression = f"sum by (le) (increase({histogram}_bucket{{{selector}}}[$__rate_interval]))"
        options = {"calculate": False, "cellGap": 1, "filterValues": {"le": 1e-9}, "rowsFrame": {"layout": "auto"},
                   "color": {"mode": "scheme", "scheme": "Oranges", "fill": "dark-orange", "steps": 64, "exponent": 0.5,
                             "scale": "exponential", "reverse": False},
                   "yAxis": {"axisPlacement": "left", "unit": unit, "reverse": False}, "legend": {"show": True},
                   "tooltip": {"mode": "single", "yHistogram": False, "showColorScale": False}, "showValue": "never"}
        custom = {"scaleDistribution": {"type": "linear"},
                  "hideFrom": {"legend": False, "tooltip": False, "viz": False}}
        self._panel("heatmap", title, description, [(expression, "{{le}}")], width, 8, unit, (GREEN,), custom, options,
                    target_format="heatmap")

    def state_timeline(self, title, description, expression, legend, good, bad, width=8, bad_value=0):
        """Bars of two states over time: `bad` in red where the value is `bad_value`, else `good` in green."""
        mapping = {"type": "value", "options": {
            str(bad_value): {"text": bad, "color": RED, "index": 0},
            str(1 - bad_value): {"text": good, "color": GREEN, "index": 1}}}
        steps = (RED, (1, GREEN)) if bad_value == 0 else (GREEN, (1, RED))
        options = {"mergeValues": True, "showValue": "auto", "alignValue": "left", "rowHeight": 0.9,
                   "legend": {"displayMode": "list", "placement": "bottom", "showLegend": False},
                   "tooltip": {"mode": "single", "sort": "none"}}
        self._panel("state-timeline", title, description, [(expression, legend)], width, 8, "short", steps,
                    {"lineWidth": 0, "fillOpacity": 70, "spanNulls": False}, options, mappings=[mapping])

    def table(self, title, description, *columns, width=24, height=8):
        """A line for each pod. columns: (title, expression by namespace and pod, unit)."""
        names = {f"Value #{letter}": column for letter, (column, _, _) in zip(string.ascii_uppercase, columns)}
        self._panel("table", title, description, [(expression, column) for column, expression, _ in columns], width, height,
                    "short", (GREEN,), {"align": "auto", "cellOptions": {"type": "auto"}, "inspect": False},
                    {"showHeader": True, "cellHeight": "sm", "footer": {"show": False, "reducer": ["sum"], "fields": ""}},
                    target_format="table")
        panel = self._panels[-1]
        for target in panel["targets"]:
            target.update(instant=True, range=False)
        panel["fieldConfig"]["overrides"] = [
            {"matcher": {"id": "byName", "options": column}, "properties": [{"id": "unit", "value": unit}]}
            for column, _, unit in columns]
        panel["transformations"] = [
            {"id": "merge", "options": {}},
            {"id": "organize", "options": {"excludeByName": {"Time": True}, "renameByName": names, "indexByName": {}}}]

    def _panel(self, kind, title, description, targets, width, height, unit, thresholds, custom, options, none=NO_DATA,
               target_format="time_series", mappings=()):
        self._add({
            "type": kind, "title": title, "description": description, "datasource": DATASOURCE,
            "fieldConfig": {"defaults": {"unit": unit, "min": 0, "noValue": none, "mappings": list(mappings),
                                         "thresholds": _thresholds(thresholds), "custom": custom,
                                         "color": {"mode": "thresholds" if kind in ("stat", "state-timeline")
                                                   else "palette-classic"}}, "overrides": []},
            "options": options,
            "targets": [{"refId": letter, "datasource": DATASOURCE, "editorMode": "code", "format": target_format,
                         "instant": False, "range": True, "expr": expression.replace("@", SELECTED), "legendFormat": legend}
                        for letter, (expression, legend) in zip(string.ascii_uppercase, targets)]}, width, height)

    def _add(self, panel, width, height):
        if self._x + width > COLUMNS:
            self._new_line()
        panel["id"] = len(self._panels) + 1
        panel["gridPos"] = {"x": self._x, "y": self._y, "w": width, "h": height}
        self._panels.append(panel)
        self._x += width
        self._row_height = max(self._row_height, height)

    def _new_line(self):
        self._x, self._y, self._row_height = 0, self._y + self._row_height, 0
