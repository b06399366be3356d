"""Gantry's client: registers this process's memory with the sidecar of its pod and moves blocks of it between pods.

    with gantry.Client("/run/gantry", workload="prefill") as client:
        arena = client.arena(1 << 30)                          # shared memory that a sidecar can map
        layer = arena.view(4096, 512 * 32768)                  # a memoryview; numpy.frombuffer(layer) works too
        layout = gantry.Layout(block_bytes=32768)
        local = client.register("k.0", layer, layout=layout)
        transfer = client.read(local, "pod-a/prefill/k.0", local_blocks=[3, 1], remote_blocks=[7, 9])
        transfer.wait(timeout=5)                               # or: await transfer
        view = client.view("prefill", peer="pod-a")            # all layers, by name
        client.read(view, local_blocks=[3, 1], remote_blocks=[7, 9]).wait()
        timeline = client.timeline(0)                          # of GPU 0: a stream says when its work is done
        client.read(view, ..., fence=timeline.signal(torch.cuda.current_stream()))

Sizes and offsets are bytes, times are seconds. Whatever fails raises gantry.Error with a stable .code. Every object may
be used by every thread; calls that wait release the GIL. A child made by fork opens a Client of its own.
"""

from .address import Place, layout_of
from .arena import Arena, DeviceAddress
from .buffer import Buffer, BufferSpec, PeerRelease
from .client import Client
from .errors import Error, SidecarLost
from .kept_client import KeptClient
from .mapped_arena import MappedArena
from .messages import Hold, HoldGroup, Message
from .native import library_version
from .rest import Event
from .strides import Layout
from .timeline import Fence, Timeline
from .transfer import PATHS, Blocks, Range, Transfer, TransferStatus
from .view import Slice, View, ViewGroup

__all__ = ["Arena", "Blocks", "Buffer", "BufferSpec", "Client", "DeviceAddress", "Error", "Event", "Fence", "Hold",
           "HoldGroup", "KeptClient", "Layout", "MappedArena", "Message", "PATHS", "PeerRelease", "Place", "Range", "SidecarLost", "Slice",
           "Timeline", "Transfer", "TransferStatus", "View", "ViewGroup", "layout_of", "library_version"]
