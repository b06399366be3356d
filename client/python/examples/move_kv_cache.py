#!/usr/bin/env python3
"""Moves blocks of a PyTorch KV cache from one process into that of another; compares every byte.

  move_kv_cache.py                           on two GPUs, or within one where there is one
  move_kv_cache.py --memory host             without a GPU and without PyTorch
  move_kv_cache.py --sidecar /run/a /run/b   with sidecars that run already

The producer is a process of its own, the consumer is this one, and each has a sidecar of its own,
as two pods have; without --sidecar, two are started. docs/getting_started_pytorch.md explains it.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import random
import signal
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Iterable, Union

import gantry
from two_sidecars import two_sidecars  # beside this file

TOKENS, HEADS, HEAD_SIZE = 16, 8, 128  # of one block
BLOCK_BYTES = TOKENS * HEADS * HEAD_SIZE * 2  # of bfloat16: 32 KiB


class GpuCache:
    """A KV cache as engines have it: for each layer a tensor of keys and a tensor of values.

    tensors  2 * layers, each of shape (blocks, TOKENS, HEADS, HEAD_SIZE) in bfloat16: first the
             keys of layer 0, then its values
    """

    def __init__(self, client: gantry.Client, device: str, layers: int, blocks: int) -> None:
        import torch

        self.torch, self.device = torch, device
        shape = (blocks, TOKENS, HEADS, HEAD_SIZE)
        # PyTorch's caching allocator puts several of them into one allocation of the driver. That
        # is nothing to care about: Gantry finds the allocation, and the tensor's offset in it.
        self.tensors = [torch.empty(shape, dtype=torch.bfloat16, device=device)
                        for _ in range(2 * layers)]
        self.timeline = client.timeline(torch.device(device))

    def write(self, index: int, data: bytes) -> None:
        """Puts all the bytes of a tensor there."""
        self._bytes_of(index).copy_(self.torch.frombuffer(bytearray(data), dtype=self.torch.uint8))

    def read(self, index: int) -> bytearray:
        """All the bytes of a tensor."""
        data = bytearray(self._bytes_of(index).numel())
        self.torch.frombuffer(data, dtype=self.torch.uint8).copy_(self._bytes_of(index))
        return data

    def synchronize(self) -> None:
        """Waits until all that this process has begun on the GPU has ended."""
        self.torch.cuda.synchronize(self.device)

    def fence(self) -> gantry.Fence:
        """For transfers, which then wait for the same of the current stream; this process does not."""
        return self.timeline.signal(self.torch.cuda.current_stream(self.device))

    def _bytes_of(self, index):
        return self.tensors[index].view(self.torch.uint8).view(-1)  # the same memory


class HostCache:
    """The same in memory of the host: the tensors are views of bytes in one arena.

    An arena is shared memory, which a sidecar can map; it cannot map what malloc or numpy gave.
    """

    def __init__(self, client: gantry.Client, device: str, layers: int, blocks: int) -> None:
        size = blocks * BLOCK_BYTES
        self.arena = client.arena(2 * layers * size)
        self.tensors = [self.arena.view(index * size, size) for index in range(2 * layers)]
        self.timeline = client.timeline()

    def write(self, index: int, data: bytes) -> None:
        self.tensors[index][:] = data

    def read(self, index: int) -> bytes:
        return bytes(self.tensors[index])

    def synchronize(self) -> None:
        pass

    def fence(self) -> gantry.Fence:
        return self.timeline.signal()


CACHES = {"gpu": GpuCache, "host": HostCache}
Cache = Union[GpuCache, HostCache]


def content(owner: str, tensor: int, block: int) -> bytes:
    """What `owner` writes into a block: BLOCK_BYTES bytes that no other block has."""
    return random.Random(f"{owner} {tensor} {block}").randbytes(BLOCK_BYTES)


def make_cache(client: gantry.Client, options: argparse.Namespace, device: str,
               access: Iterable[str]) -> tuple[Cache, list[gantry.Buffer]]:
    """This process's cache, filled with its own content, and registered at its sidecar.

    access  what the other workloads may do with it
    """
    cache = CACHES[options.memory](client, device, options.layers, options.blocks)
    for tensor in range(len(cache.tensors)):
        cache.write(tensor, b"".join(content(client.workload, tensor, block)
                                     for block in range(options.blocks)))
    # One request for the whole cache, all of it or nothing. The buffers are called kv.0, kv.1, ...;
    # block i of each is its i-th BLOCK_BYTES. Keep them: what nobody holds is unregistered.
    buffers = client.register_layers("kv", cache.tensors, access=access,
                                     layout=gantry.Layout(block_bytes=BLOCK_BYTES))
    allocations = {start for tensor in cache.tensors for start, _, _ in client.resolve(tensor)}
    print(f"{client.workload}: registered {len(buffers)} tensors of {len(buffers[0]):,} bytes, in "
          f"{len(allocations)} allocations, on {device}", flush=True)
    return cache, buffers


def producer(options: argparse.Namespace, run_dir: Union[str, Path], pipe: Connection) -> None:
    """A process that offers its cache until the other end of `pipe` is closed."""
    try:
        with gantry.Client(run_dir, "producer") as client:
            cache, _buffers = make_cache(client, options, options.device[0], ["remote_read"])
            # Gantry looks at no stream by itself. What writes this memory has to have ended before
            # others are told that they may read it.
            cache.synchronize()
            # What connectors tell each other in their handshake: where this one's sidecar is.
            info = client.request("GET", "/v1/info")
            pipe.send((info["name"], info["peer_address"]))
            with contextlib.suppress(EOFError):
                pipe.recv()
        # The end of the client has unregistered the buffers; the tensors are freed after that.
    except gantry.Error as error:
        pipe.send(error)


def consumer(options: argparse.Namespace, run_dir: Union[str, Path], pipe: Connection) -> bool:
    """Pulls blocks of the producer's cache into its own. Whether every byte is as it should be."""
    with gantry.Client(run_dir, "consumer") as client:
        # No access: nobody else reads or writes this cache. (Where the producer's sidecar is to
        # move the bytes, it needs "remote_write".)
        cache, _buffers = make_cache(client, options, options.device[1], [])
        said = pipe.recv()
        if isinstance(said, gantry.Error):
            raise said
        peer, address = said
        client.set_peer(peer, address)

        # Pairs kv.0 here with kv.0 there, and so on, once: a transfer then names blocks only.
        view = client.view("producer", peer=peer)
        local_blocks = random.sample(range(options.blocks), options.move)
        remote_blocks = random.sample(range(options.blocks), options.move)

        # Here, what fills the cache may still be on its way: the transfers wait for that.
        fence = cache.fence()

        def move(which: str) -> gantry.Transfer:
            start = time.perf_counter()
            transfer = client.read(view, local_blocks=local_blocks, remote_blocks=remote_blocks,
                                   fence=fence)
            status = transfer.wait()  # raises gantry.Error with the reason if it did not succeed
            seconds = time.perf_counter() - start
            print(f"consumer: {which}: {status.bytes:,} bytes, {options.move} blocks of each of "
                  f"{len(view)} tensors, by {status.path} in {seconds * 1e3:.2f} ms, "
                  f"{status.bytes / seconds / 1e9:.2f} GB/s", flush=True)
            return transfer

        transfer = move("first")  # when wait() has returned, the bytes are there, for all streams
        for path in transfer.details()["paths"]:
            if not path["available"]:
                print(f"  not by {path['path']}: {path['reason']}")
        wrong = wrong_blocks(cache, options.blocks, dict(zip(local_blocks, remote_blocks)))
        if wrong:
            print(f"consumer: {len(wrong)} blocks are wrong: {wrong[0]}, ...", file=sys.stderr)
            return False
        print("consumer: every byte of the cache was compared: the blocks that were named hold the "
              "producer's bytes, the others are unchanged", flush=True)
        move("again")
        return True


def wrong_blocks(cache: Cache, blocks: int, source_of: dict[int, int]) -> list[str]:
    """Names the blocks of the consumer that do not hold what they should.

    source_of  {local block: remote block} of what was moved; the others are to be as they were
    """
    wrong = []
    for tensor in range(len(cache.tensors)):
        data = cache.read(tensor)
        for block in range(blocks):
            expected = (content("producer", tensor, source_of[block]) if block in source_of else
                        content("consumer", tensor, block))
            if data[block * BLOCK_BYTES:(block + 1) * BLOCK_BYTES] != expected:
                moved = "moved" if block in source_of else "not moved"
                wrong.append(f"block {block} of tensor {tensor}, which was {moved}")
    return wrong


def choose_devices(options: argparse.Namespace) -> None:
    """Settles the allocator, which PyTorch reads when it is imported, and the two devices."""
    if options.memory == "host":
        options.device = ["host", "host"]
        return
    if options.allocator == "expandable":
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    try:
        import torch
    except ImportError as error:
        sys.exit(f"move_kv_cache: {error}; without PyTorch there is --memory host")
    count = torch.cuda.device_count()
    if count == 0:
        sys.exit("move_kv_cache: PyTorch finds no GPU; without one there is --memory host")
    options.device = options.device or ["cuda:0", f"cuda:{min(1, count - 1)}"]


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add, sides = parser.add_argument, ("PRODUCER", "CONSUMER")
    add("--memory", choices=CACHES, default="gpu", help="where both caches are (gpu)")
    add("--device", nargs=2, metavar=sides, help="such as cuda:0 cuda:1")
    add("--allocator", choices=["default", "expandable"], default="default",
        help="PyTorch's: as it is configured, or with expandable segments")
    add("--layers", type=int, default=32, help="of each cache, with keys and values each (32)")
    add("--blocks", type=int, default=256, help="of each tensor, 32 KiB each (256)")
    add("--move", type=int, help="blocks of each tensor to pull (half of them)")
    add("--sidecar", nargs=2, metavar=sides, help="run directories or API sockets of two that run")
    add("--program", help="gantry-sidecar to start (on the PATH, or in build/release/bin)")
    add("--workers", type=int, default=4, help="copy workers of each sidecar that is started (4)")
    options = parser.parse_args()
    options.move = options.blocks // 2 if options.move is None else options.move
    if options.layers < 1 or not 1 <= options.move <= options.blocks:
        parser.error("there is at least one layer, and --move is from 1 to --blocks")
    return options


def main() -> int:
    options = parse_options()
    choose_devices(options)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what was started ends as well
    sidecars = (contextlib.nullcontext(options.sidecar) if options.sidecar else
                two_sidecars(options.program, options.workers))
    spawning = multiprocessing.get_context("spawn")  # a child of fork could not use the GPU
    pipe, theirs = spawning.Pipe()
    try:
        with sidecars as (producers, consumers):
            process = spawning.Process(target=producer, args=(options, producers, theirs),
                                       daemon=True)
            process.start()
            theirs.close()
            right = consumer(options, consumers, pipe)
            pipe.close()  # so the producer ends
            process.join()
    except gantry.Error as error:
        sys.exit(f"move_kv_cache: {error}")
    except EOFError:
        sys.exit("move_kv_cache: the producer has ended early")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
