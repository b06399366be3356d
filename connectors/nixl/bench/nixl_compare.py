"""Times NIXL's backends beside each other: two agents, random blocks, in turns. docs/getting_started_nixl.md tells how to run it.

With --bench, gantry-bench has a turn, too: the same blocks by Gantry's own requests, without NIXL.
"""

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "tests" / "nixl")]
from agents import Agent, introduce  # noqa: E402
from conftest import end_to_end  # noqa: E402

BACKENDS = ("GANTRY", "UCX")
# (bytes of a block, blocks)
SHAPES = {"arena": [(4096, 1), (4096, 4096), (16384, 2048), (65536, 1024), (1 << 20, 64)],
          "gpu": [(4096, 1), (4096, 16384), (16384, 16384), (65536, 8192), (1 << 20, 512)]}
BYTES = {"arena": 128 << 20, "gpu": 1 << 30}


def open_pair(backend, options, folder, stack, flags, nodes):
    agents, addresses = [], []
    for name, node, gpu in zip(("reader", "source"), nodes, (0, options.source_gpu)):
        parameters = {}
        if backend == "GANTRY":
            sidecar = end_to_end.SidecarProcess(name, folder, node_dir=folder / node, workers=options.workers, flags=flags)
            stack.callback(sidecar.kill)
            sidecar.start()
            parameters = {"run_dir": str(sidecar.run_dir)}
        agent = Agent(options.python, options.site, f"{name}-{backend}", folder, "nixl-cu13==1.5.1", NIXL_TEST_GPU=str(gpu))
        stack.callback(agent.kill)
        agent.open(agent.name, parameters, backend)
        addresses.append(agent.allocate("kv", BYTES[options.memory], options.memory))
        agent.register("kv", 0, BYTES[options.memory])
        agents.append(agent)
    introduce(*agents)
    return agents, addresses


def prepare(pair, shape, options):
    """Random blocks of the source into random blocks of the reader."""
    (reader, source), (here, there) = pair
    size, count = shape
    places = [random.sample(range(BYTES[options.memory] // size), count) for _ in range(2)]
    rows = [[(base + block * size, size) for block in blocks] for base, blocks in zip((here, there), places)]
    reader.prepare(f"{shape}", "READ", *rows, source.name, ("VRAM", "VRAM") if options.memory == "gpu" else ("DRAM", "DRAM"))


def bench(options, shape):
    """Returns how long one request of gantry-bench took, in microseconds: the median of its own."""
    size, count = shape
    transport = "ipc" if options.memory == "gpu" else "tcp" if options.tcp else "shm"
    words = ["--transport", transport, "--block", size, "--bytes", size * count, "--workers", options.workers, "-n", options.times]
    run = subprocess.run([options.bench, *map(str, words), "--json"], check=True, capture_output=True, text=True)
    return json.loads(run.stdout)["stages_us"]["wall"]


class Turn:
    """The agents of all other backends stand still: some of them poll."""

    def __init__(self, pairs, backend):
        self._others = [agent.process for name, (agents, _) in pairs.items() if name != backend for agent in agents]

    def __enter__(self):
        for process in self._others:
            process.send_signal(signal.SIGSTOP)

    def __exit__(self, *_):
        for process in self._others:
            process.send_signal(signal.SIGCONT)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("site", type=Path, help="folder with NIXL 1.5.1 and this plugin in its folder of plugins")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--memory", choices=list(SHAPES), default="arena")
    parser.add_argument("--source-gpu", type=int, default=0)
    parser.add_argument("--tcp", action="store_true", help="two nodes: Gantry's tcp, and UCX_TLS=tcp")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--times", type=int, default=20, help="posts of a round, for each shape and backend")
    parser.add_argument("--bench", type=Path, help="gantry-bench, to have a turn; not for --source-gpu")
    options = parser.parse_args()
    flags, nodes = (), ("node", "node")
    if options.tcp:
        os.environ["UCX_TLS"] = "tcp"
        flags, nodes = ("--peer-listen", "127.0.0.1:0", "--data-listen", "127.0.0.1:0"), ("a", "b")
    folder = Path(end_to_end.short_folder())
    took = {}
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        pairs = {backend: open_pair(backend, options, folder, stack, flags, nodes) for backend in BACKENDS}
        for backend, pair in pairs.items():
            for shape in SHAPES[options.memory]:
                with Turn(pairs, backend):
                    prepare(pair, shape, options)
                    pair[0][0].finish_often(f"{shape}", 10)  # views and connections are made meanwhile
        for _ in range(options.rounds):
            for shape in SHAPES[options.memory]:
                for backend, ((reader, _), _) in pairs.items():
                    with Turn(pairs, backend):
                        took.setdefault((shape, backend), []).extend(reader.finish_often(f"{shape}", options.times))
                if options.bench and shape[1] > 1:
                    with Turn(pairs, "gantry-bench"):
                        took.setdefault((shape, "gantry-bench"), []).append(bench(options, shape))
        for agent in pairs["GANTRY"][0]:
            print("".join(line for line in agent.log.splitlines(True) if line.startswith("gantry-nixl")), end="")
    print(json.dumps(vars(options), default=str))
    print(f"{'block':>9} {'blocks':>7} {'backend':>12} {'p50 us':>10} {'p90 us':>10} {'GB/s':>7}")
    for ((size, count), backend), times in took.items():
        median, tail = statistics.median(times), statistics.quantiles(times, n=10)[-1] if len(times) > 1 else times[0]
        print(f"{size:>9} {count:>7} {backend:>12} {median:>10.1f} {tail:>10.1f} {size * count / median / 1000:>7.2f}")


if __name__ == "__main__":
    main()
