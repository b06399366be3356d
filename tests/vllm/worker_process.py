"""Workers of the connector without engines. fork_server.py forks a process for each.

The first line of a worker's connection names it; each later one is a command, {"do": method, ...}, and is answered. A worker
has a cache of LAYERS x BLOCKS blocks, in which layers with states lie over those with keys and values.
"""

import gc
import json
import os
import time
import traceback
from dataclasses import asdict, replace

import torch
from gantry_vllm.handshake import Handshake
from gantry_vllm.metadata import Load, StepMetadata, Unwanted
from gantry_vllm.settings import Settings
from gantry_vllm.stats import Recorder
from gantry_vllm.tensor_parallel import Topology
from gantry_vllm.worker import Worker

LAYERS, BLOCKS, BLOCK_BYTES = 6, 64, 32768  # layers and blocks as the engines of the tests have them
STATE_BYTES = 20000  # of a layer with a state, which lies at the begin of a block
_PRIME = 61  # bytes below it are small numbers as floats, so that an engine's arithmetic is not poisoned by what it may not use


def content(seed):
    """A byte for each block of each layer; two seeds differ in all of them."""
    return (torch.arange(LAYERS * BLOCKS).reshape(LAYERS, BLOCKS, 1) * 3 + seed * 17) % _PRIME


def split(said):
    """(its source, the rest)"""
    return said["source"], {name: value for name, value in said.items() if name != "source"}


class Commands:
    def __init__(self, run_dir, workload, settings, in_parts=False):
        """A read that fails is told as a whole, as of a hybrid model, unless it is `in_parts`."""
        self._worker = Worker(Settings(run_dir=run_dir, **settings), workload, BLOCKS, Topology(0, 1, 1), in_parts, Recorder(True))
        with self._worker.allocation():
            cache = torch.zeros(LAYERS * BLOCKS * BLOCK_BYTES, dtype=torch.int8)
        self._cache = cache.view(torch.uint8).view(LAYERS, BLOCKS, BLOCK_BYTES)
        keys = {f"keys.{i}": self._cache[i] for i in range(LAYERS)}
        states = {f"state.{i}": self._cache[i, :, :STATE_BYTES].view(BLOCKS, 1, 1, STATE_BYTES) for i in range(LAYERS)}
        self._worker.register(states | keys)

    def pid(self):
        return os.getpid()

    def handshake(self):
        return asdict(self._worker.handshake().source)

    def lives_at(self, address):
        """Prefillers that push are told so, and that it is another node."""
        self._worker._pulls._mine = replace(self._worker._pulls._mine, address=address, node_id="elsewhere")

    def collect(self):
        """What only cycles keep is gone."""
        return gc.collect()

    def fill(self, seed):
        self._cache[:] = content(seed)

    def differing(self, seed, local, remote):
        """Those of the local blocks that are not what the remote ones are after fill(seed), in any layer."""
        wanted = content(seed)
        return [mine for mine, theirs in zip(local, remote)
                if bool((self._cache[:, mine] != wanted[:, theirs]).any())]

    def step(self, load=(), unwanted=(), **parts):
        step = StepMetadata(load=[Load(sources=(Handshake(**source),), **each) for source, each in map(split, load)],
                            unwanted=[Unwanted(sources=(Handshake(**source),), **each) for source, each in map(split, unwanted)],
                            **parts)
        began = time.monotonic()
        self._worker.begin_step(step)
        self._worker.start_loads(step)
        self._worker.end_step()
        results = self._worker.results()
        return {"seconds": time.monotonic() - began, "sent": sorted(results.finished_sending or ()), "received": sorted(results.finished_recving or ()),
                "failed": sorted(results.failed_recving or ()), "missing": sorted(self._worker.missing())}

    def close(self):
        self._worker.close()


def answer_of(call):
    try:
        return {"value": call()}
    except Exception:  # noqa: BLE001 - whoever asked is told
        return {"error": traceback.format_exc()}


def serve(lines, named):
    """Makes the worker and does what the lines say, until they end."""
    commands = []

    def make():
        commands.append(Commands(**named))
        return commands[0].pid()

    def tell(call):
        lines.write(json.dumps(answer_of(call)) + "\n")
        lines.flush()
    tell(make)
    for line in lines:
        said = json.loads(line)
        tell(lambda said=said: getattr(commands[0], said.pop("do"))(**said))
    if commands:
        commands[0].close()
