"""Draws a preview of the row "vLLM" of the dashboard "Gantry transfers", as draw_dashboards.py draws the others.

  tests/monitoring/draw vllm [--seconds N] [--pictures FOLDER]

runs two real vLLM engines on the CPU (tests/vllm) beside Prometheus for N seconds (120), and writes docs/pictures/gantry-transfers-vllm.png.
Prompts are read over shm, then over tcp. In the last third the decoder's sidecar is killed: prompts are computed instead, and holds of them expire.
"""

import argparse
import itertools
import random
import shutil
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from dashboard_pages import browser, drawn, photograph
from monitoring_files import ROOT, dashboards
from prometheus_server import Prometheus

sys.path.insert(0, str(ROOT / "tests" / "vllm"))
import conftest as vllm_conftest  # noqa: E402
from forks import ForkServer  # noqa: E402
from prompts import MANY, PROMPTS  # noqa: E402
from slow_link import ports_of  # noqa: E402

TOGETHER = 2  # requests
HOLD_TTL = 8  # seconds; what is not read while the decoder's sidecar is gone takes blocks so long


def row_of(board, title):
    """The panels of a row, with its own."""
    panels = board["panels"]
    first = next(i for i, panel in enumerate(panels) if panel["type"] == "row" and panel["title"] == title)
    after = next((i for i in range(first + 1, len(panels)) if panels[i]["type"] == "row"), len(panels))
    return panels[first:after]


class Load:
    """Prompts of many lengths, each offered by the prefiller and read by the decoder."""

    def __init__(self, pair):
        self._pair, self._salts, self._stopped = pair, itertools.count(), threading.Event()
        self._address = None  # of the prefiller's sidecar, where reads go over tcp
        self._pool = ThreadPoolExecutor(TOGETHER)
        self._runs = [self._pool.submit(self._run, number) for number in range(TOGETHER)]

    def take_tcp(self, taken):
        self._address = f"127.0.0.1:{ports_of(self._pair.prefill_sidecar)[0]}" if taken else None
        self._pair.decode_sidecar.ask("DELETE", f"/v1/peers/{self._pair.prefill_sidecar.name}")

    def stop(self):
        self._stopped.set()
        with self._pool:
            for run in self._runs:
                run.result()

    def _change(self, params):
        if self._address:
            params["gantry"]["workers"][0] |= {"address": self._address, "node_id": "elsewhere"}
        return params

    def _run(self, number):
        choices = random.Random(number)
        while not self._stopped.is_set():
            self._pair.complete(PROMPTS[choices.choice(MANY)], self._change, salt=f"load {next(self._salts)}")


def run(pair, seconds):
    load = Load(pair)
    try:
        time.sleep(seconds / 3)
        load.take_tcp(True)
        time.sleep(seconds / 3)
        load.take_tcp(False)
        pair.decode_sidecar.kill()
        time.sleep(seconds / 12)
        pair.decode_sidecar.start()
        time.sleep(seconds / 4)
    finally:
        load.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--pictures", type=Path, default=ROOT / "docs" / "pictures")
    arguments = parser.parse_args()
    program = browser()  # before minutes of load
    arguments.pictures.mkdir(parents=True, exist_ok=True)
    environment = vllm_conftest.environment.__wrapped__()
    folder = Path(vllm_conftest.end_to_end.short_folder())
    forks, prometheus = ForkServer(environment, folder), None
    try:
        with vllm_conftest.running_pair(environment, folder, ("prefill", "decode"), settings={"hold_ttl": HOLD_TTL}, forks=forks) as pair:
            prometheus = Prometheus(folder)
            for engine in (pair.prefill, pair.decode):
                prometheus.add_target(f"127.0.0.1:{engine.port}", "chat", engine.name)
            start = time.time()
            run(pair, arguments.seconds)
            end = time.time()
        board = dashboards()["gantry-transfers.json"]
        picture = (arguments.pictures / f"{board['uid']}-vllm.png").absolute()
        photograph(program, *drawn(board["title"], row_of(board, "vLLM"), prometheus, start, end), picture)
        print(f"{picture}: {picture.stat().st_size} bytes")
    finally:
        for part in (prometheus, forks):
            if part is not None:
                (part.close if part is prometheus else part.stop)()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
