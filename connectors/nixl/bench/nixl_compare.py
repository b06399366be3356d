"""Times NIXL's backends beside each other: two agents, host memory, in turns. docs/getting_started_nixl.md tells how to run it."""

import argparse
import contextlib
import os
import random
import shutil
import statistics
import sys
from pathlib import Path

HERE = Path(__file__).resolve()
ROOT = HERE.parents[3]
sys.path[:0] = [str(ROOT / "tests" / "nixl")]
from agents import NEWEST, Agent  # noqa: E402
from conftest import end_to_end, introduce  # noqa: E402

SHAPES = [(4096, 1), (4096, 4096), (16384, 2048), (65536, 1024), (1 << 20, 64)]  # (bytes of a block, blocks)
ARENA = 128 << 20


def open_pair(backend, environment, folder, stack, flags, nodes):
    agents, addresses = [], []
    for name, node in zip(("reader", "source"), nodes):
        parameters = {}
        if backend == "GANTRY":
            sidecar = end_to_end.SidecarProcess(f"{name}", folder, node_dir=folder / node, workers=2, flags=flags)
            stack.callback(sidecar.kill)
            sidecar.start()
            parameters = {"run_dir": str(sidecar.run_dir)}
        agent = Agent(environment, folder / "wheels", f"{name}-{backend}", folder, NEWEST)
        stack.callback(agent.kill)
        agent.open(agent.name, parameters, backend)
        addresses.append(agent.allocate("kv", ARENA))
        agent.register("kv", 0, ARENA)
        agents.append(agent)
    introduce(*agents)
    return agents, addresses


def prepare(pair, shape):
    """Random blocks of the source into random blocks of the reader."""
    (reader, source), (here, there) = pair
    size, count = shape
    places = [random.sample(range(ARENA // size), count) for _ in range(2)]
    rows = [[(base + block * size, size) for block in blocks] for base, blocks in zip((here, there), places)]
    reader.prepare(f"{shape}", "READ", *rows, source.name)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("environment", type=Path, help="what tests/nixl/environment prints")
    parser.add_argument("--tcp", action="store_true", help="two nodes: Gantry's tcp, and UCX_TLS=tcp")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--times", type=int, default=20, help="posts of a round, for each shape and backend")
    options = parser.parse_args()
    flags, nodes = ("--gpu-workers", "0"), ("node", "node")
    if options.tcp:
        os.environ["UCX_TLS"] = "tcp"
        flags, nodes = (*flags, "--peer-listen", "127.0.0.1:0", "--data-listen", "127.0.0.1:0"), ("a", "b")
    folder = Path(end_to_end.short_folder())
    (folder / "wheels").mkdir()
    took = {}
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        pairs = {backend: open_pair(backend, options.environment, folder, stack, flags, nodes) for backend in ("GANTRY", "UCX")}
        for pair in pairs.values():
            for shape in SHAPES:
                prepare(pair, shape)
        for _ in range(options.rounds):
            for shape in SHAPES:
                for backend, ((reader, _), _) in pairs.items():
                    took.setdefault((shape, backend), []).extend(reader.finish_often(f"{shape}", options.times))
    print(f"{'block':>9} {'blocks':>7} {'backend':>8} {'p50 us':>10} {'p90 us':>10} {'GB/s':>7}")
    for ((size, count), backend), times in took.items():
        median = statistics.median(times)
        tail = statistics.quantiles(times, n=10)[-1]
        print(f"{size:>9} {count:>7} {backend:>8} {median:>10.1f} {tail:>10.1f} {size * count / median / 1000:>7.2f}")


if __name__ == "__main__":
    main()
