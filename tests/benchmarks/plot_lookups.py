#!/usr/bin/env python3
"""Runs the benchmarks of a build and writes their results and a plot of the lookups.

    tests/benchmarks/plot_lookups.py BUILD_FOLDER [OUTPUT_FOLDER]

writes OUTPUT_FOLDER (docs/benchmarks) /registry.json, body.json, metrics.json and lookups.svg. Nothing
has to be installed.
"""

import json
import math
import subprocess

from plot_page import begin, folders

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 440, 70, 20, 60, 60
SERIES = {"FindByName": ("find by name", "#1b6ca8"), "FindById": ("find by id", "#c8553d"),
          "UseByName": ("find and use, as a transfer does", "#4a7c59")}
# What says where the benchmark ran instead of what it found.
PRIVATE = {"executable", "host_name", "json_schema_version", "load_avg", "library_build_type", "date"}


def measure(program, *options):
    """The results of one Google Benchmark program: the median of three repetitions of each."""
    command = [str(program), "--benchmark_format=json", "--benchmark_repetitions=3",
               "--benchmark_report_aggregates_only=true", "--benchmark_min_time=0.1", *options]
    return medians(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))


def medians(output):
    """What a program printed, or wrote, without what says where it ran."""
    context = {key: value for key, value in output["context"].items() if key not in PRIVATE}
    context["date"] = output["context"]["date"][:10]
    results = []
    for run in output["benchmarks"]:
        if run["aggregate_name"] == "median":
            kept = {key: value for key, value in run.items()
                    if isinstance(value, (int, float)) and key not in ("family_index", "per_family_instance_index",
                                                                       "repetitions", "iterations", "threads")}
            results.append({"name": run["run_name"], "unit": run["time_unit"]} | kept)
    return {"context": context, "results": results}


def points(registry, name):
    """[(buffers, nanoseconds)] of one series."""
    return [(int(result["name"].split("/")[1]), result["cpu_time"]) for result in registry["results"]
            if result["name"].startswith(name + "/")]


def logarithmic_fit(series):
    """a, b of time = a + b * log2(buffers), by least squares."""
    xs = [math.log2(count) for count, _ in series]
    ys = [time for _, time in series]
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    b = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys)) / sum((x - mean_x) ** 2 for x in xs)
    return mean_y - b * mean_x, b


def draw(registry):
    all_series = {name: points(registry, name) for name in SERIES}
    most = max(time for series in all_series.values() for _, time in series)
    step = 10 ** math.floor(math.log10(most))
    top = math.ceil(most / step) * step
    decades = [10, 100, 1000, 10_000]

    def x_of(count):
        return LEFT + (math.log10(count) - 1) / 3 * (WIDTH - LEFT - RIGHT)

    def y_of(time):
        return HEIGHT - BOTTOM - time / top * (HEIGHT - TOP - BOTTOM)

    lines = begin(WIDTH, HEIGHT, LEFT, "Finding one of n registered buffers")
    for i in range(int(top / step) + 1):
        y = y_of(i * step)
        lines.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        lines.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{i * step:g} ns</text>')
    for count in decades:
        lines.append(f'<text x="{x_of(count):.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle">{count:,}</text>')
    lines.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 14}" text-anchor="middle">'
                 'registered buffers (logarithmic); dashed: a + b log2 n</text>')
    for row, (name, (label, colour)) in enumerate(SERIES.items()):
        series = all_series[name]
        a, b = logarithmic_fit(series)
        ends = [(count, a + b * math.log2(count)) for count in (decades[0], decades[-1])]
        dashed = " ".join(f"{x_of(count):.1f},{y_of(time):.1f}" for count, time in ends)
        lines.append(f'<polyline points="{dashed}" fill="none" stroke="{colour}" stroke-dasharray="5 4"/>')
        for count, time in series:
            lines.append(f'<circle cx="{x_of(count):.1f}" cy="{y_of(time):.1f}" r="4" fill="{colour}">'
                         f'<title>{count} buffers: {time:.0f} ns</title></circle>')
        x, y = LEFT + 12 + row * 200, TOP - 14
        lines.append(f'<circle cx="{x}" cy="{y - 4}" r="4" fill="{colour}"/>'
                     f'<text x="{x + 10}" y="{y}">{label}</text>')
    return "\n".join(lines + ["</svg>", ""])


def main():
    build, output = folders(__doc__)
    for name in ("registry", "body", "metrics"):
        results = measure(build / "bin" / f"{name}_benchmark")
        (output / f"{name}.json").write_text(json.dumps(results, indent=1) + "\n")
        if name == "registry":
            (output / "lookups.svg").write_text(draw(results))


if __name__ == "__main__":
    main()
