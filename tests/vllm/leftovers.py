"""Holds, buffers, views and descriptors must be the same again when all requests are over."""

import contextlib
import os
import re
import subprocess

from backends import ON_GPU
from vllm_servers import wait_for


def tree_of(pid):
    """A process and those below it."""
    table = subprocess.run(["ps", "-eo", "pid,ppid"], capture_output=True, text=True, check=True).stdout
    rows = [tuple(map(int, row)) for row in re.findall(r"(\d+) +(\d+)", table)]
    known = {pid}
    while more := {child for child, parent in rows if parent in known} - known:
        known |= more
    return known


def descriptors_of(pid):
    """Yields what each descriptor of a process shows, such as "/memfd:vllm-kv-cache (deleted)" and "socket:[5]"."""
    try:
        for each in os.listdir(f"/proc/{pid}/fd"):
            try:
                yield os.readlink(f"/proc/{pid}/fd/{each}")
            except FileNotFoundError:
                pass  # closed meanwhile
    except FileNotFoundError:
        pass  # it has ended


def kept_by(pids):
    """How many descriptors these processes have, but for sockets: a client keeps one for each of the calls that were made at once.

    On a GPU none are counted: its driver keeps some from the first use of each GPU on.
    """
    if ON_GPU:
        return 0
    return len([each for pid in pids for each in descriptors_of(pid) if not each.startswith("socket:")])


def totals_of(sidecar):
    return sidecar.ask("GET", "/v1/status")[1]["totals"]


def workloads_of(sidecar):
    return [workload["name"] for workload in sidecar.ask("GET", "/v1/status")[1]["workloads"]]


def views_of(sidecar):
    return sum(len(sidecar.ask("GET", f"/v1/views?workload={name}")[1]["views"]) for name in workloads_of(sidecar))


def left_at(sidecars):
    """Returns what these sidecars have: buffers, transfers and all else that they count, views, descriptors."""
    found = {}
    for sidecar in sidecars:
        found |= {f"{sidecar.name} {key}": value for key, value in totals_of(sidecar).items() if key != "last_event"}
        found[f"{sidecar.name} views"] = views_of(sidecar)
        found[f"{sidecar.name}'s descriptors"] = kept_by(tree_of(sidecar.process.pid))
    return found


def left_of(pair):
    """Returns what the engines of a pair and their sidecars have."""
    engines = {f"{engine.name}'s descriptors": kept_by(tree_of(engine.pid)) for engine in (pair.prefill, pair.decode)}
    return {"holds": len(pair.holds()), **left_at((pair.prefill_sidecar, pair.decode_sidecar)), **engines}


def nothing_more_is_left(before, left):
    """`left` says it anew. Connections may take a moment to be closed, and there may be fewer than before."""
    def more():
        now = left()
        return {key: (before[key], now[key]) for key in now if now[key] > before[key]}
    wait_for(lambda: not more(), lambda: f"nothing is left: {more()}")


def blocks_are_free(pair):
    for engine in (pair.prefill, pair.decode):
        wait_for(lambda engine=engine: engine.metric("vllm:kv_cache_usage_perc") == 0, f"{engine.name} has free blocks only")
        assert engine.healthy()


@contextlib.contextmanager
def nothing_is_left(pair, lost_holds=False, views=0):
    """Nothing is left of what is done meanwhile. The decoder has read from the prefiller before, and keeps its view of it.

    lost_holds  some may last until their time: those that a decoder cannot give back while one of the sidecars is gone
    views       of prefillers that the decoder reads meanwhile for the first time
    """
    pair.end_holds()  # of other cases
    blocks_are_free(pair)
    before = left_of(pair)
    before[f"{pair.decode_sidecar.name} views"] += views
    yield
    if lost_holds:
        pair.end_holds()
    wait_for(lambda: not pair.holds(), lambda: f"the holds have ended: {pair.holds()}")
    blocks_are_free(pair)
    nothing_more_is_left(before, lambda: left_of(pair))
