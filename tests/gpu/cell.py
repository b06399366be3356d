"""One run of gantry-bench between GPUs, with what it takes of them and of a load beside it."""

import json
import pathlib
import shutil
import subprocess
import time

from load import Load


def worker_memory_mib() -> float:
    """What the GPUs' driver says that the copy workers take, per worker and GPU; nan when it says nothing."""
    if not shutil.which("nvidia-smi"):
        return float("nan")
    output = subprocess.run(["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"],
                            stdout=subprocess.PIPE, text=True, check=False).stdout
    taken = []
    for line in output.splitlines():
        pid, mib = line.split(",")
        try:
            name = pathlib.Path(f"/proc/{int(pid)}/comm").read_text().strip()
        except OSError:
            continue
        if name.startswith("gantry-copy"):
            taken.append(float(mib))
    return sum(taken) / len(taken) if taken else float("nan")


def measure(gantry_bench: str, arguments: list[str], load: Load | None) -> dict:
    before = time.monotonic()
    if load is not None:
        time.sleep(4)
    start = time.monotonic()
    process = subprocess.Popen([gantry_bench, "--transport", "ipc", "--json", *arguments],
                               stdout=subprocess.PIPE, text=True)
    memory, same = float("nan"), 0
    while process.poll() is None:
        time.sleep(0.5)
        if same >= 3:  # it stays: to ask takes the drivers' time from what is measured
            continue
        now = worker_memory_mib()
        same = same + 1 if now == memory else 0
        memory = memory if now != now else now
    output = process.stdout.read()
    if process.returncode != 0:
        raise SystemExit(f"gantry-bench {' '.join(arguments)} failed: {output}")
    cell = json.loads(output)
    cell["busy"] = load is not None
    cell["worker_memory_mib"] = None if memory != memory else memory
    cell["load_per_second"] = cell["load_slowdown"] = None
    if load is not None:
        quiet, loaded = load.rate(before, start), load.rate(start, time.monotonic())
        cell["load_per_second"] = [quiet, loaded]
        cell["load_slowdown"] = 1 - loaded / quiet
    return cell
