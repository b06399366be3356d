"""Pages that look like dashboards, from gridPos and what Prometheus answers, and their pictures by headless Chromium."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from panel_pictures import BACKGROUND, FAINT, MARGIN, TEXT, Picture, text

COLUMN, LINE, GAP, HEAD = 50, 24, 4, 44  # pixels
BYTES_MAX = 200_000
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
