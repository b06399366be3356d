#!/usr/bin/env python3
"""Meets more and more peers in one process and plots what each costs.

    tests/benchmarks/plot_peers.py BUILD_FOLDER [OUTPUT_FOLDER]

writes OUTPUT_FOLDER (docs/benchmarks) /peers.json and peers.svg. Fails when a peer among the most costs much more than
one among a tenth of them does: something grows faster than the number of peers.
"""

import json
import subprocess
import sys

from plot_page import begin, folders

COUNTS = [50, 100, 200, 400, 700, 1000]
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 1080, 330, 60, 60, 60
# Field, title, and how much more of it a peer may cost among ten times as many; quadratic would be 10. Whoever connects
# shares the processors with the heartbeats of all others, so that it waits longer the more there are.
PANELS = [("kib_per_peer", "KiB a peer, both ends", 1.5),
          ("idle_cpu_us_per_peer_second", "µs of processor a peer and second, idle", 2),
          ("connect_us_last_tenth", "µs to meet one more", 4)]
COLOURS = {"many initiators at one owner": "#1b6ca8", "one initiator at many owners": "#c8553d"}


def measure(program):
    output = subprocess.run([str(program), *map(str, COUNTS)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                            text=True, check=True, timeout=900).stdout
    return [json.loads(line) for line in output.splitlines()]


def panel(results, field, title, left):
    width = WIDTH / len(PANELS) - LEFT - 20
    top = max(result[field] for result in results) * 1.15

    def at(count, value):
        return (left + count / COUNTS[-1] * width, HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM))

    lines = [f'<text x="{left}" y="{TOP - 14}">{title}</text>']
    for i in range(5):
        value = top * i / 4
        x, y = at(0, value)
        lines.append(f'<line x1="{x:.1f}" x2="{x + width:.1f}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>'
                     f'<text x="{x - 6:.1f}" y="{y + 4:.1f}" text-anchor="end">{value:.0f}</text>')
    for count in COUNTS:
        lines.append(f'<text x="{at(count, 0)[0]:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{count}</text>')
    for way, colour in COLOURS.items():
        dots = [at(result["peers"], result[field]) for result in results if result["way"] == way]
        lines.append(f'<polyline fill="none" stroke="{colour}" points="' +
                     " ".join(f"{x:.1f},{y:.1f}" for x, y in dots) + '"/>')
        lines += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>' for x, y in dots]
    return lines


def draw(results):
    lines = begin(WIDTH, HEIGHT, LEFT, "Many peers")
    for i, (field, title, _) in enumerate(PANELS):
        lines += panel(results, field, title, LEFT + i * WIDTH / len(PANELS))
    for i, (way, colour) in enumerate(COLOURS.items()):
        x = LEFT + i * WIDTH / 2
        lines.append(f'<circle cx="{x}" cy="{HEIGHT - 16}" r="4" fill="{colour}"/>'
                     f'<text x="{x + 10}" y="{HEIGHT - 12}">{way}</text>')
    return "\n".join(lines + ["</svg>", ""])


def main():
    build, output = folders(__doc__)
    results = measure(build / "bin" / "peers_benchmark")
    (output / "peers.json").write_text(json.dumps(results, indent=1) + "\n")
    (output / "peers.svg").write_text(draw(results))
    for way in COLOURS:
        few, most = ([result for result in results if result["way"] == way and result["peers"] == count][0]
                     for count in (COUNTS[-1] // 10, COUNTS[-1]))
        for field, _, growth in PANELS:
            if most[field] > growth * few[field]:
                sys.exit(f"{way}: {field} grew from {few[field]:.0f} to {most[field]:.0f}")


if __name__ == "__main__":
    main()
