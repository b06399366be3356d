"""A producer whose blocks are held and a consumer that reads them, on two sidecars that meet either way."""

import itertools
import struct

from test_notifications import Reader, free_port
from test_peers_over_tcp import meet
from workloads import connect, wait_for

BLOCK = 4096
BLOCKS = 16
FENCE = 2 * BLOCKS * BLOCK  # of the consumer's memory, behind k and v

_counters = itertools.count(1)


def put(sidecar, hold="h", ttl_ms=60_000, blocks=(1, 2, 5), workload="prefill", **fields):
    group = {"buffers": ["k", "v"]} | ({"blocks": list(blocks)} if blocks is not None else {})
    body = {"workload": workload, "groups": [group], "ttl_ms": ttl_ms, **fields}
    status, view = sidecar.ask("PUT", f"/v1/holds/{hold}", body)
    assert status == 200, view
    return view


def shorten(sidecar, ttl_ms, hold="h"):
    """From now on: what must begin while the hold lives has begun by then."""
    assert sidecar.ask("PATCH", f"/v1/holds/{hold}", {"workload": "prefill", "ttl_ms": ttl_ms})[0] == 200


def state_of(sidecar, hold="h", workload="prefill"):
    status, view = sidecar.ask("GET", f"/v1/holds/{hold}?workload={workload}")
    assert status == 200, view
    return view


def read(sidecar, blocks, hold="h", remote="p/prefill", wait_ms=10_000, workload="decode", **fields):
    body = {"workload": workload, "op": "read", "local": ["k", "v"], "remote": [f"{remote}/k", f"{remote}/v"],
            "local_blocks": list(blocks), "remote_blocks": list(blocks), "hold": hold, **fields}
    return sidecar.ask("POST", f"/v1/transfers?wait_ms={wait_ms}", body)


class HeldBlocks:
    """Owner "prefill" at p with 16 blocks in k and in v; consumer "decode" at d with the same and a counter to wait for."""

    def __init__(self, way, start_sidecar, start_workload, new_memory):
        self.start_workload = start_workload
        port = free_port() if way == "tcp" else None  # the same after a restart
        self.p = start_sidecar("p", flags=["--peer-listen", f"127.0.0.1:{port}"] if port else [])
        self.d = start_sidecar("d", flags=["--peer-listen", "127.0.0.1:0"] if port else [])
        assert (meet(self.d, self.p) if port else connect(self.d, self.p))["state"] == "up"
        self.source, self.target = new_memory(FENCE, filled=True), new_memory(FENCE + BLOCK)
        self.start_owner()
        self.consumer = start_workload(self.d, "decode")
        self.consumer.register(self.target, *self._layers(()), ("counter", FENCE, BLOCK, ()))

    def start_owner(self):
        self.owner = self.start_workload(self.p, "prefill")
        self.owner.register(self.source, *self._layers(("remote_read",)))
        self.events = Reader(self.p, "prefill")

    @staticmethod
    def _layers(access):
        half = BLOCKS * BLOCK
        return ("k", 0, half, access, BLOCK), ("v", half, half, access, BLOCK)

    def begin(self, blocks=(1,), **fields):
        """A read that was admitted and goes on until `let_go`. Its id."""
        self.value = next(_counters)
        fence = {"type": "timeline", "buffer": "counter", "offset": 0, "value": self.value}
        status, view = read(self.d, blocks, wait_ms=0, fence=fence, **fields)
        assert status == 202, view
        assert state_of(self.p, fields.get("hold", "h"))["reading"] >= 1
        return view["id"]

    def let_go(self):
        self.target.map[FENCE:FENCE + 8] = struct.pack("<Q", self.value)

    def end_of(self, transfer, wait_ms=10_000):
        status, view = self.d.ask("GET", f"/v1/transfers/{transfer}?workload=decode&wait_ms={wait_ms}")
        assert status == 200, view
        return view

    def arrived(self, *blocks):
        """Whether these blocks of k and v are at the consumer."""
        starts = [(base + block) * BLOCK for block in blocks for base in (0, BLOCKS)]
        return all(self.target.map[start:start + BLOCK] == self.source.map[start:start + BLOCK] for start in starts)

    def nothing_arrived(self):
        return not any(self.target.map[:FENCE])

    def nobody_reads(self, hold="h"):
        wait_for(lambda: state_of(self.p, hold)["reading"] == 0, 5, "the end of the read at the owner")
