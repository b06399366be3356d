#!/usr/bin/env python3
"""A paged KV cache that moves from a prefill process to a decode process: what an inference engine does with Gantry.

  paged_kv_cache.py prefill RUN_DIR             fills its cache and offers it
  paged_kv_cache.py decode RUN_DIR PEER ADDRESS  fetches the blocks of one long prompt from the prefill process at PEER

RUN_DIR is the run directory of the process's own sidecar. Both print what they do as JSON lines, and stay until their
input ends (--stay: until they are ended). `make run` runs both with sidecars; tools/demo is that program.

The cache is one allocation, as engines make it, in memory of the host or (--gpu) of a GPU. Each layer has a view for K and
one for V inside of it, at an offset that is not the allocation's base, and each view consists of blocks of 16 tokens.
"""

import argparse
import json
import random
import signal
import sys
import time
from dataclasses import dataclass

import gantry
from gpu_arena import GpuArena  # beside this file

LAYERS = 32
BLOCK_BYTES = 32 * 1024  # 16 tokens, 8 KV heads of 128 halves
TOKENS_PER_BLOCK = 16
GUARD_BYTES = 20 * 1024  # between the views; must never change
GUARD, UNTOUCHED = 0xA5, 0xEE
SPARE_BLOCKS = 32  # blocks of each view that the prompt does not use
SEED = 20


@dataclass(frozen=True)
class Geometry:
    """Where everything is in the allocation."""

    tokens: int

    @property
    def prompt_blocks(self):
        return self.tokens // TOKENS_PER_BLOCK

    @property
    def blocks(self):
        return self.prompt_blocks + SPARE_BLOCKS

    @property
    def view_bytes(self):
        return self.blocks * BLOCK_BYTES

    @property
    def view_names(self):
        return [f"{kind}.{layer}" for layer in range(LAYERS) for kind in "kv"]

    @property
    def bytes(self):
        return self.view_offset(len(self.view_names))

    def view_offset(self, view):
        return GUARD_BYTES + view * (self.view_bytes + GUARD_BYTES)

    def block_offset(self, view, block):
        return self.view_offset(view) + block * BLOCK_BYTES

    def guards(self):
        return [self.view_offset(view) - GUARD_BYTES for view in range(len(self.view_names) + 1)]

    def block_tables(self):
        """(local, remote): the ids of the prompt's blocks, which the two engines assigned without each other."""
        decode, prefill = random.Random(SEED), random.Random(SEED + 1)
        return (decode.sample(range(self.blocks), self.prompt_blocks),
                prefill.sample(range(self.blocks), self.prompt_blocks))


class Contents:
    """What belongs into each block: random bytes, different for every view and block."""

    STEP = 29

    def __init__(self, geometry):
        blocks = len(geometry.view_names) * geometry.blocks
        self._geometry = geometry
        self._random = random.Random(SEED).randbytes(BLOCK_BYTES + blocks * self.STEP)

    def of(self, view, block):
        start = (view * self._geometry.blocks + block) * self.STEP
        return self._random[start:start + BLOCK_BYTES]


def say(what, **fields):
    print(json.dumps({"event": what, **fields}), flush=True)


def allocate_and_register(client, geometry, access, gpu):
    """One allocation for the whole cache, and one buffer for each view in it, all in one call."""
    arena = client.arena(geometry.bytes, name="kv-cache") if gpu is None else GpuArena(geometry.bytes, gpu)
    for offset in geometry.guards():
        arena[offset:offset + GUARD_BYTES] = bytes([GUARD]) * GUARD_BYTES
    layout = gantry.Layout(block_bytes=BLOCK_BYTES)
    start = time.perf_counter()
    buffers = client.register_many([
        gantry.BufferSpec(name, arena.view(geometry.view_offset(view), geometry.view_bytes), access, layout)
        for view, name in enumerate(geometry.view_names)])
    say("registered", workload=client.workload, views=len(buffers), bytes=geometry.bytes,
        fd=arena.fileno() if gpu is None else None, seconds=time.perf_counter() - start)
    return arena, buffers


def fill(arena, geometry, content_of):
    for view in range(len(geometry.view_names)):
        for block in range(geometry.blocks):
            offset = geometry.block_offset(view, block)
            arena[offset:offset + BLOCK_BYTES] = content_of(view, block)
    if isinstance(arena, GpuArena):
        arena.upload()


def wrong_places(arena, geometry, content_of):
    """Names of the blocks and guards that do not hold what they should; every byte of the allocation is compared."""
    if isinstance(arena, GpuArena):
        arena.download()
    wrong = [f"guard at {offset}" for offset in geometry.guards()
             if arena[offset:offset + GUARD_BYTES] != bytes([GUARD]) * GUARD_BYTES]
    for view, name in enumerate(geometry.view_names):
        for block in range(geometry.blocks):
            offset = geometry.block_offset(view, block)
            if arena[offset:offset + BLOCK_BYTES] != content_of(view, block):
                wrong.append(f"{name} block {block}")
    return wrong


def prefill(arguments, geometry):
    with gantry.Client(arguments.run_dir, "prefill", engine_id="prefill-0") as client:
        arena, buffers = allocate_and_register(client, geometry, ["remote_read"], arguments.gpu)
        contents = Contents(geometry)
        fill(arena, geometry, contents.of)
        say("ready")
        stay(arguments)
        say("verified", wrong=wrong_places(arena, geometry, contents.of)[:10], compared=geometry.bytes)
        give_back(arena, buffers)


def decode(arguments, geometry):
    with gantry.Client(arguments.run_dir, "decode", engine_id="decode-0") as client:
        peer = client.set_peer(arguments.peer, arguments.address)
        say("peer", peer=arguments.peer, state=peer["state"], rtt_us=peer.get("rtt_us"))
        arena, buffers = allocate_and_register(client, geometry, [], arguments.gpu)
        untouched = bytes([UNTOUCHED]) * BLOCK_BYTES
        fill(arena, geometry, lambda view, block: untouched)
        say("ready")
        local_blocks, remote_blocks = geometry.block_tables()

        def fetch(report_progress):
            start = time.perf_counter()
            transfer = client.read(buffers, [f"{arguments.peer}/prefill/{name}" for name in geometry.view_names],
                                   local_blocks=local_blocks, remote_blocks=remote_blocks)
            while report_progress and not (status := transfer.poll()).done:
                say("progress", moved=status.bytes_moved, bytes=status.bytes)
                time.sleep(0.005)
            transfer.wait()
            say("moved", seconds=time.perf_counter() - start, transfer=transfer.details())

        say("moving")
        fetch(report_progress=True)
        contents = Contents(geometry)
        source_of = dict(zip(local_blocks, remote_blocks))
        wrong = wrong_places(arena, geometry, lambda view, block: (
            contents.of(view, source_of[block]) if block in source_of else untouched))
        say("verified", wrong=wrong[:10], compared=geometry.bytes)
        for _ in range(arguments.repeat):
            fetch(report_progress=False)
        say("done")
        stay(arguments)
        give_back(arena, buffers)


def give_back(arena, buffers):
    """In this order: memory of a GPU must not be freed while sidecars have it open."""
    for buffer in buffers:
        buffer.unregister()
    arena.close()


def stay(arguments):
    if not arguments.stay:
        sys.stdin.read()
    while arguments.stay:
        signal.pause()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("role", choices=["prefill", "decode"])
    parser.add_argument("run_dir", help="run directory of this process's sidecar")
    parser.add_argument("peer", nargs="?", help="name of the prefill process's sidecar")
    parser.add_argument("address", nargs="?", help="its peer address, for example unix:/run/gantry/node/a.peer.sock")
    parser.add_argument("--gpu", type=int, help="the cache is in memory of this GPU of the process's")
    parser.add_argument("--tokens", type=int, default=8192, help="length of the prompt")
    parser.add_argument("--repeat", type=int, default=0, help="fetch this often again")
    parser.add_argument("--stay", action="store_true", help="stay until ended by a signal")
    arguments = parser.parse_args()
    if arguments.role == "decode" and not arguments.address:
        parser.error("decode needs PEER and ADDRESS")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        (prefill if arguments.role == "prefill" else decode)(arguments, Geometry(arguments.tokens))
    except (gantry.Error, OSError) as error:
        say("failed", error=str(error))
        sys.exit(1)


if __name__ == "__main__":
    main()
