"""Two transports of vLLM's p2p tier over NIXL's backend GANTRY: p2p_transports.py RUN_DIR RUN_DIR.

Their regions are files in /dev/shm, as the tier makes them, which nobody can seal.
"""

import os
import sys
import time
from pathlib import Path

import numpy
from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion
from vllm.v1.kv_offload.tiering.p2p.data.nixl import NixlTransport

CHUNKS, CHUNK_BYTES = 64, 64 << 10
SECONDS = 20


class Side:
    """An engine's region and transport."""

    def __init__(self, name, run_dir):
        os.environ["GANTRY_RUN_DIR"] = run_dir
        self.name = name
        self.region = SharedOffloadRegion(f"gantry-{os.getpid()}-{name}", CHUNKS, None, CHUNK_BYTES, CHUNK_BYTES)
        self.bytes = numpy.frombuffer(self.region.mmap_obj, dtype=numpy.uint8).reshape(CHUNKS, CHUNK_BYTES)
        self.transport = NixlTransport(name, self.region.create_kv_memoryview(), backends=["GANTRY"])

    def learn(self, other):
        transport = other.transport
        self.transport.add_remote_peer(other.name, transport.get_agent_metadata(), transport.base_addr, transport.num_blocks,
                                       transport.block_len)

    def write(self, other, local, remote):
        """Returns after the end of the transfer, which has to be a good one."""
        transfer = self.transport.write_blocks(other.name, local, remote)
        end = time.monotonic() + SECONDS
        while transfer not in (polled := self.transport.poll(other.name)).done:
            assert transfer not in polled.failed and time.monotonic() < end, polled

    def close(self):
        self.transport.close()
        del self.bytes, self.transport
        self.region.cleanup()


def writes_arrive(one, two):
    chance = numpy.random.default_rng(3)
    for turn in range(20):
        for writer, reader in ((one, two), (two, one)):
            writer.bytes[:] = chance.integers(0, 256, (CHUNKS, CHUNK_BYTES), dtype=numpy.uint8)
            count = int(chance.integers(1, CHUNKS + 1))
            local, remote = (chance.choice(CHUNKS, count, replace=False) for _ in range(2))
            wanted = reader.bytes.copy()
            wanted[remote] = writer.bytes[local]
            writer.write(reader, local.tolist(), remote.tolist())
            assert numpy.array_equal(reader.bytes, wanted), f"turn {turn}"


def main():
    one, two = (Side(name, run_dir) for name, run_dir in zip(("one", "two"), sys.argv[1:]))
    for side, other in ((one, two), (two, one)):
        side.learn(other)
    writes_arrive(one, two)
    for side in (one, two):
        side.close()


if __name__ == "__main__":
    try:
        main()
    finally:
        for left in Path("/dev/shm").glob(f"vllm_offload_gantry-{os.getpid()}-*"):  # of a side that was refused
            left.unlink()
