"""Draws previews of the dashboards, from gridPos and what a real Prometheus answers: not Grafana, but its numbers.

  tests/monitoring/draw [--seconds N] [--pictures FOLDER]

runs two sidecars under load and a device plugin beside Prometheus for N seconds (120) and writes docs/pictures/<dashboard>-<number>.png,
some rows of panels each, with headless Chromium. What is about RDMA devices was recorded in a guest just before (record_rdma.py).
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from dashboard_pages import browser, drawn, parts, photograph
from monitored_scene import MonitoredScene
from monitoring_files import ROOT, dashboards
from record_rdma import RECORD_SECONDS, RECORDED
from replayed_metrics import Replay, records

RDMA_PODS = {"a": ("chat-rdma", "decode-0"), "b": ("chat-rdma", "prefill-0")}


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
