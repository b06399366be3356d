"""Draws a panel of a dashboard as SVG, from what Prometheus answers: a preview of what Grafana makes of it."""

import bisect
import math
import time
from xml.sax.saxutils import escape

COLORS = ["#73bf69", "#f2cc0c", "#8ab8ff", "#ff780a", "#f2495c", "#5794f2", "#b877d9", "#705da0", "#37872d", "#fade2a",
          "#447ebc", "#c15c17", "#890f02", "#0a437c", "#6d1f62", "#584477", "#b7dbab", "#f4d598"]
NAMED = {"green": "#73bf69", "yellow": "#f2cc0c", "red": "#f2495c", "blue": "#5794f2"}
BACKGROUND, PANEL, LINE, TEXT, FAINT = "#111217", "#181b1f", "#2c3235", "#d8d9da", "#8e8e8e"
TITLE, MARGIN, AXIS, LEGEND, LEGEND_LINE = 24, 8, 62, 18, 14
LETTER = 5.9  # of a legend, on average
ROWS_MAX = 12  # of tables and timelines; a dashboard scrolls


def text(x, y, said, size=11, color=TEXT, anchor="start", weight="normal"):
    return (f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" fill="{color}" text-anchor="{anchor}" '
            f'font-weight="{weight}">{escape(said)}</text>')


def box(x, y, width, height, color):
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{color}"/>'


def _scaled(value, step, units):
    index = 0
    while abs(value) >= step and index < len(units) - 1:
        value, index = value / step, index + 1
    return f"{value:.3g} {units[index]}".strip()


def shown(value, unit):
    """A number as Grafana writes it in that unit."""
    if unit == "dateTimeAsIso":
        return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(value / 1000))
    if unit == "percentunit":
        return f"{100 * value:.3g}%"
    if unit == "s" and value:
        power = 0 if value >= 1 else 1 if value >= 1e-3 else 2
        return f"{value * 1000 ** power:.3g} {['s', 'ms', 'µs'][power]}"
    if unit == "bytes":
        return _scaled(value, 1024, ["B", "KiB", "MiB", "GiB", "TiB"])
    if unit == "Bps":
        return _scaled(value, 1000, ["B/s", "kB/s", "MB/s", "GB/s", "TB/s"])
    return _scaled(value, 1000, ["", "K", "M", "G"]) + (" /s" if unit == "ops" else "")


def legend_of(target, labels):
    said = target["legendFormat"]
    for name in {**labels, "namespace": "", "pod": ""}:
        said = said.replace("{{%s}}" % name, labels.get(name, ""))
    return said


def _round_up(value, unit):
    """The next 1, 2 or 5 times a power of ten; of bytes, in KiB, MiB and so on."""
    if value <= 0 or not math.isfinite(value):
        return 1
    whole = 1024 ** math.floor(math.log(value, 1024)) if unit == "bytes" and value >= 1024 else 1
    power = whole * 10 ** math.floor(math.log10(value / whole))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value * 0.999)


class Picture:
    """One panel in a box of width by height; `ask` is Prometheus, over the time from start to end."""

    def __init__(self, panel, prometheus, width, height, start, end):
        self.panel, self.ask, self.start, self.end = panel, prometheus, start, end
        self.width, self.height = width, height
        self.defaults = panel["fieldConfig"]["defaults"]
        self.unit = self.defaults["unit"]

    def draw(self):
        body = getattr(self, "_" + self.panel["type"].replace("-", "_"))()
        frame = [box(0, 0, self.width, self.height, PANEL), text(MARGIN, 16, self.panel["title"], 12, weight="bold")]
        return frame + (body or [text(self.width / 2, self.height / 2 + 8, self.defaults["noValue"], 13, FAINT, "middle")])

    def _curves(self, target):
        for labels, points in self.ask.curves(target["expr"], self.start, self.end, self._step()):
            if finite := [(when, value) for when, value in points if math.isfinite(value)]:
                yield labels, finite

    def _step(self):
        return max(0.5, (self.end - self.start) / 240)

    def _pieces(self, points):
        """What hangs together: no line is drawn over a time without answers."""
        pieces = [[points[0]]]
        for point in points[1:]:
            if point[0] - pieces[-1][-1][0] > 1.5 * self._step():
                pieces.append([])
            pieces[-1].append(point)
        return pieces

    def _x(self, when):
        return AXIS + (when - self.start) / (self.end - self.start) * (self.width - AXIS - MARGIN)

    def _axes(self, top, bottom, highest):
        out = []
        for part in (0, 0.5, 1):
            y = bottom - part * (bottom - top)
            out += [box(AXIS, y, self.width - AXIS - MARGIN, 0.5, LINE),
                    text(AXIS - 5, y + 4, shown(part * highest, self.unit), 10, FAINT, "end")]
        return out + self._times(bottom)

    def _times(self, bottom):
        return [text(self._x(self.start + part * (self.end - self.start)), bottom + 12,
                     f"{part * (self.end - self.start):.0f} s", 9, FAINT, "middle") for part in (0.25, 0.5, 0.75)]

    def _timeseries(self):
        curves = [(legend_of(target, labels), points) for target in self.panel["targets"] for labels, points in self._curves(target)]
        stacking = self.defaults["custom"]["stacking"]["mode"]
        if stacking != "none":
            curves = [(legend, points) for legend, points in curves if any(value for _, value in points)]
        if not curves:
            return []
        more_lines = self._legend_lines([legend for legend, _ in curves])[1] - 1
        bottom, top = self.height - LEGEND - LEGEND_LINE * more_lines - 18, TITLE + 6
        totals, lines = {}, []
        if stacking == "percent":
            whole = {}
            for _, points in curves:
                for when, value in points:
                    whole[when] = whole.get(when, 0) + value
            curves = [(legend, [(when, value / whole[when]) for when, value in points if whole[when]]) for legend, points in curves]
            self.unit = "percentunit"
        for legend, points in curves:
            if stacking != "none":
                below = [(when, totals.get(when, 0)) for when, _ in points]
                points = [(when, value + totals.get(when, 0)) for when, value in points]
                totals |= dict(points)
            else:
                below = None
            lines.append((legend, points, below))
        highest = 1 if stacking == "percent" else _round_up(
            max(value for _, points, _ in lines for _, value in points), self.unit)

        def path(points):
            return " ".join(f"{self._x(when):.1f},{bottom - min(value / highest, 1) * (bottom - top):.1f}" for when, value in points)

        out = self._axes(top, bottom, highest)
        for number, (legend, points, below) in enumerate(lines):
            color = COLORS[number % len(COLORS)]
            if below:
                out.append(f'<polygon points="{path(points)} {path(below[::-1])}" fill="{color}" fill-opacity="0.4"/>')
            out += [f'<polyline points="{path(piece)}" fill="none" stroke="{color}"/>' for piece in self._pieces(points)]
        return out + self._legend([legend for legend, _, _ in lines])

    def _legend_lines(self, legends):
        """[(legend, its number, x, line)...] and how many lines that takes."""
        placed, x, line = [], MARGIN + 2, 0
        for number, legend in enumerate(legends):
            width = 24 + LETTER * len(legend)
            if x > MARGIN + 2 and x + width > self.width:
                x, line = MARGIN + 2, line + 1
            placed.append((legend, number, x, line))
            x += width
        return placed, line + 1

    def _legend(self, legends):
        placed, lines = self._legend_lines(legends)
        out = []
        for legend, number, x, line in placed:
            y = self.height - 6 - LEGEND_LINE * (lines - 1 - line)
            out += [box(x, y - 5, 10, 3, COLORS[number % len(COLORS)]), text(x + 14, y, legend, 10, FAINT)]
        return out

    def _stat(self):
        curves = list(self._curves(self.panel["targets"][0]))
        if not curves:
            return []
        value = curves[0][1][-1][1]
        steps = self.defaults["thresholds"]["steps"]
        color = [step["color"] for step in steps if step["value"] is None or value >= step["value"]][-1]
        said = shown(round(value) if self.defaults.get("decimals") == 0 else value, self.unit)
        return [text(self.width / 2, self.height / 2 + 22, said, 30, NAMED[color], "middle", "bold")]

    def _table(self):
        titles = ["namespace", "pod", *(target["legendFormat"] for target in self.panel["targets"])]
        units = {one["matcher"]["options"]: one["properties"][0]["value"] for one in self.panel["fieldConfig"]["overrides"]}
        rows = {}
        for target in self.panel["targets"]:
            for labels, points in self.ask.curves(target["expr"], self.end, self.end, 1):
                row = rows.setdefault((labels["namespace"], labels["pod"]), {})
                row[target["legendFormat"]] = shown(points[-1][1], units[target["legendFormat"]])
        # Names of pods are long, and so are dates and some titles.
        shares = [2.0 if title == "pod" else 1.4 if units.get(title) == "dateTimeAsIso" or len(title) > 14 else 1.0 for title in titles]
        width = (self.width - 2 * MARGIN) / sum(shares)
        out = []
        for number, (pod, row) in enumerate([(("namespace", "pod"), dict(zip(titles, titles))), *sorted(rows.items())][:ROWS_MAX]):
            y = TITLE + 18 + 22 * number
            for column, title in enumerate(titles):
                said = pod[column] if column < 2 else row.get(title, "")
                out.append(text(MARGIN + 4 + sum(shares[:column]) * width, y, said, 11, TEXT if number else NAMED["blue"]))
            out.append(box(MARGIN, y + 6, self.width - 2 * MARGIN, 0.5, LINE))
        return out if rows else []

    def _heatmap(self):
        curves = sorted((float(labels["le"]), dict(points)) for labels, points in self._curves(self.panel["targets"][0]))
        cells, below = [], {}
        for bucket, points in curves:
            cells.append((bucket, {when: max(0, value - below.get(when, 0)) for when, value in points.items()}))
            below = points
        while cells and not any(cells[-1][1].values()):
            cells.pop()
        while cells and not any(cells[0][1].values()):
            cells.pop(0)
        if not cells:
            return []
        bottom, top = self.height - 18, TITLE + 6
        most = max(value for _, points in cells for value in points.values())
        height, width = (bottom - top) / len(cells), (self.width - AXIS - MARGIN) / 60
        out = self._times(bottom)
        for number, (bucket, points) in enumerate(cells):
            y = bottom - (number + 1) * height
            if number % max(1, len(cells) // 8) == 0:
                said = "more" if math.isinf(bucket) else shown(bucket, self.unit)
                out.append(text(AXIS - 5, y + height / 2 + 3, said, 9, FAINT, "end"))
            moments = sorted(points)
            for column in range(60):
                when = self.start + (column + 0.5) / 60 * (self.end - self.start)
                at = bisect.bisect(moments, when) - 1
                if at >= 0 and points[moments[at]]:
                    shade = math.sqrt(points[moments[at]] / most)
                    color = "#%02x%02x%02x" % tuple(int(a + (b - a) * shade) for a, b in zip((60, 40, 30), (255, 190, 110)))
                    out.append(box(AXIS + column * width, y, width - 1, height - 1, color))
        return out

    def _state_timeline(self):
        curves = [(legend_of(target, labels), points) for target in self.panel["targets"] for labels, points in self._curves(target)]
        looks = self.defaults["mappings"][0]["options"]
        bottom, top = self.height - 18, TITLE + 6
        out = self._times(bottom) if curves else []
        for number, (legend, points) in enumerate(curves[:ROWS_MAX]):
            height = (bottom - top) / min(len(curves), ROWS_MAX)
            y = top + number * height
            spans = []  # [from, to, value]
            for when, value in points:
                if spans and spans[-1][2] == value:
                    spans[-1][1] = when
                else:
                    spans.append([when, when, value])
            for since, until, value in spans:
                color = NAMED[looks[f"{value:g}"]["color"]]
                out.append(box(self._x(since), y, max(1, self._x(until) - self._x(since)), height * 0.9, color))
            out.append(text(self._x(spans[0][0]) + 6, y + height / 2 + 3, f"{legend}: {looks[f'{points[-1][1]:g}']['text']}", 10, BACKGROUND))
        return out
