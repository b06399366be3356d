"""Draws previews of the dashboards, from gridPos and what a real Prometheus answers: not Grafana, but its numbers.

  tests/monitoring/draw [--seconds N] [--pictures FOLDER]

runs two sidecars under load and a device plugin beside Prometheus for N seconds (120) and writes docs/pictures/<dashboard>-<number>.png,
some rows of panels each, with headless Chromium. What is about RDMA devices was recorded in a guest just before (record_rdma.py).
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from monitored_scene import MonitoredScene
from monitoring_files import ROOT, dashboards
from panel_pictures import BACKGROUND, FAINT, MARGIN, TEXT, Picture, text
from record_rdma import RECORD_SECONDS, RECORDED
from replayed_metrics import Replay, records

COLUMN, LINE, GAP, HEAD = 50, 24, 4, 44  # pixels
BYTES_MAX = 200_000
RDMA_PODS = {"a": ("chat-rdma", "decode-0"), "b": ("chat-rdma", "prefill-0")}
PART_LINES = 28  # of a picture; a part ends with its row of panels


def parts(board):
    """The panels of each picture."""
    made, top = [], 0
    for panel in board["panels"]:
        y = panel["gridPos"]["y"]
        if not made or panel["type"] == "row" and y - top >= PART_LINES:
            made.append([])
            top = y
        made[-1].append(panel)
    return made


def drawn(title, panels, prometheus, start, end):
    """The HTML page, with its width and height."""
    top = panels[0]["gridPos"]["y"]
    width = 24 * COLUMN
    height = HEAD + LINE * (max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels) - top)
    out = [text(MARGIN, 20, title, 17, weight="bold"),
           text(MARGIN, 37, "A preview, drawn by tests/monitoring/draw from the answers of Prometheus; not Grafana.", 11, FAINT)]
    for panel in panels:
        place = panel["gridPos"]
        x, y = COLUMN * place["x"], HEAD + LINE * (place["y"] - top)
        panel_width, panel_height = COLUMN * place["w"] - GAP, LINE * place["h"] - GAP
        body = [text(MARGIN, 16, panel["title"], 14, TEXT, weight="bold")] if panel["type"] == "row" else \
            Picture(panel, prometheus, panel_width, panel_height, start, end).draw()
        out += [f'<svg x="{x}" y="{y}" width="{panel_width}" height="{panel_height}">', *body, "</svg>"]
    page = (f'<body style="margin:0;background:{BACKGROUND}"><svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'font-family="DejaVu Sans, sans-serif">{"".join(out)}</svg></body>')
    return "<!DOCTYPE html><meta charset=utf-8>" + page, width, height


def browser():
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        sys.exit("draw: there is no chromium on the PATH; 'tools/setup pictures' installs it on Debian 12")
    return program


def photograph(program, page, width, height, picture):
    with tempfile.TemporaryDirectory() as folder:
        html = Path(folder) / "page.html"
        html.write_text(page)
        subprocess.run([program, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={folder}/profile",
                        f"--window-size={width},{height}", f"--screenshot={picture}", html.as_uri()],
                       check=True, capture_output=True, timeout=120)
    if picture.stat().st_size > BYTES_MAX:
        sys.exit(f"draw: {picture} has {picture.stat().st_size} bytes, more than {BYTES_MAX}")


def recorded(seconds):
    """{name: its records} of sidecars with RDMA devices."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([ROOT / "tests" / "rdma" / "guest", "--rw", folder, "--timeout", str(seconds + 120), "--", sys.executable, "-B",
                        ROOT / "tests" / "monitoring" / "record_rdma.py", str(seconds), folder], check=True)
        return {name: records(folder, name) for name in RECORDED}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--pictures", type=Path, default=ROOT / "docs" / "pictures")
    arguments = parser.parse_args()
    program = browser()  # before minutes of load
    arguments.pictures.mkdir(parents=True, exist_ok=True)
    texts = recorded(arguments.seconds)
    scene = MonitoredScene()
    replays = {name: Replay(each, RECORD_SECONDS) for name, each in texts.items()}
    try:
        start = time.time()
        for name, replay in replays.items():
            scene.prometheus.add_target(replay.address, *RDMA_PODS[name])
        scene.load(arguments.seconds)
        end = time.time()
        for board in dashboards().values():
            for number, panels in enumerate(parts(board), 1):
                picture = (arguments.pictures / f"{board['uid']}-{number}.png").absolute()
                photograph(program, *drawn(board["title"], panels, scene.prometheus, start, end), picture)
                print(f"{picture}: {picture.stat().st_size} bytes")
    finally:
        scene.close()
        for replay in replays.values():
            replay.close()


if __name__ == "__main__":
    main()
