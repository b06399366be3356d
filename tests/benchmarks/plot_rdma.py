#!/usr/bin/env python3
"""What the rdma transport costs beside its devices, and what registering costs on them.

    tests/benchmarks/plot_rdma.py BUILD_FOLDER [OUTPUT_FOLDER]

writes OUTPUT_FOLDER (docs/benchmarks) /rdma.json and rdma_registration.svg. Instructions are counted by callgrind (package
valgrind); chunks are registered on soft-RoCE in a guest, or with GANTRY_TEST_RDMA=real on this machine's devices.
"""

import json
import math
import re
import subprocess
import tempfile
from pathlib import Path

from plot_lookups import measure, medians
from plot_page import ROOT, begin, folders

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 620, 400, 80, 30, 60, 60
COLOUR = "#1b6ca8"


def instructions_per_request(program, result):
    """Of everything between the start of a transfer and its end, in one run of it."""
    with tempfile.NamedTemporaryFile() as counted:
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={counted.name}", "--toggle-collect=*MoveAll*",
                   str(program), f"--benchmark_filter=^{result['name']}$", "--benchmark_min_time=0", "--benchmark_format=json"]
        run = subprocess.run(command, capture_output=True, text=True, check=True)
    once = json.loads(run.stdout)["benchmarks"][0]
    collected = int(re.search(r"Collected : (\d+)", run.stderr).group(1))
    return collected / (once["requests"] * once["iterations"])


def measure_registration(program):
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "found.json"
        subprocess.run([ROOT / "tests" / "rdma" / "guest", "--rw", folder, "--timeout", "280", str(program.resolve()),
                        "--benchmark_filter=RegisterChunks", "--benchmark_repetitions=3",
                        "--benchmark_report_aggregates_only=true", "--benchmark_min_time=0.1",
                        f"--benchmark_out={found}"], check=True, capture_output=True)
        return medians(json.loads(found.read_text()))["results"]


def draw(results):
    points = [(int(result["name"].split("/")[1]), result["real_time"]) for result in results]
    counts, times = zip(*points)
    low, high = math.floor(math.log10(min(times))), math.ceil(math.log10(max(times)))

    def at(count, time):
        x = LEFT + math.log10(count) / math.log10(counts[-1]) * (WIDTH - LEFT - RIGHT)
        y = HEIGHT - BOTTOM - (math.log10(time) - low) / (high - low) * (HEIGHT - TOP - BOTTOM)
        return x, y

    lines = begin(WIDTH, HEIGHT, LEFT, "Registering a buffer in n chunks and taking it back")
    for decade in range(low, high + 1):
        x, y = at(1, 10 ** decade)
        lines.append(f'<line x1="{x}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>'
                     f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{10 ** decade:g} ms</text>')
    for count in counts:
        lines.append(f'<text x="{at(count, 10 ** low)[0]:.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle">{count:,}</text>')
    places = [at(count, time) for count, time in points]
    lines.append(f'<polyline fill="none" stroke="{COLOUR}" points="' + " ".join(f"{x:.1f},{y:.1f}" for x, y in places) + '"/>')
    for (x, y), (count, time) in zip(places, points):
        lines.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{COLOUR}"><title>{count} chunks: {time:.3g} ms</title></circle>')
    lines.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 14}" text-anchor="middle">'
                 'chunks of a page, both axes logarithmic</text>')
    return "\n".join(lines + ["</svg>", ""])


def main():
    build, output = folders(__doc__)
    program = build / "bin" / "rdma_benchmark"
    found = measure(program, "--benchmark_filter=MoveBlocks")
    for result in found["results"]:
        result["instructions_per_request"] = round(instructions_per_request(program, result))
    registration = measure_registration(program)
    (output / "rdma.json").write_text(json.dumps({**found, "registration": registration}, indent=1) + "\n")
    (output / "rdma_registration.svg").write_text(draw(registration))


if __name__ == "__main__":
    main()
