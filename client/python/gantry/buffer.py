"""Buffers: registered ranges of arenas and of a GPU's memory."""

from __future__ import annotations

import ctypes
import json
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Iterable, Optional, Sequence, Union

from . import native
from .address import Place, layout_of
from .adoption import Adoption
from .adoption import adopt as adopt_memory
from .errors import Error
from .strides import Layout

if TYPE_CHECKING:
    from .client import Client

_ACCESS_BITS = {"remote_read": 1, "remote_write": 2}


@dataclass(frozen=True)
class BufferSpec:
    """A buffer that is to be registered.

    name    unique in the workload: 1 to 128 of [A-Za-z0-9._:+=-]
    view    a bytes-like object (memoryview, numpy array, ...) or tensor that lies in an arena, or a tensor on a GPU,
            whose bytes are dense in some order of its dimensions, or whose dimension 0 counts dense blocks at one step
            (layout_of() says which); or a list of dense ones, the pieces of the buffer, seen as their bytes one after the
            other. On a GPU that is what has data_ptr() (torch), __cuda_array_interface__ (cupy, numba) or DLPack (jax),
            over memory of cudaMalloc or hipMalloc or over PyTorch's expandable segments. It is kept while the buffer is
            registered
    access  what other workloads may do: any of "remote_read" and "remote_write". It is granted from the first byte to the
            last, with what lies between blocks at one step
    layout  makes the buffer addressable by block. None: of a tensor whose blocks lie at one step, that is its layout; any
            other buffer has no blocks. Where it is given for such a tensor, it must be about the same blocks
    """

    name: str
    view: Any
    access: Union[str, Iterable[str]] = ("remote_read",)
    layout: Optional[Layout] = None


@dataclass(frozen=True)
class PeerRelease:
    """What became of a buffer that was withdrawn, at one peer that knew it.

    outcome  "drained": it confirmed that nothing there uses the buffer; "gone": it ended by itself; "refused": its time
             was over, and what it still does to the buffer fails; "cut_off": its time was over, and it was disconnected;
             "holding": its time was over and it may still have the buffer mapped
    """

    name: str
    generation: str
    path: str
    outcome: str


class Buffer:
    """A registered buffer. Client.register() makes them; it is unregistered when it is collected at the latest."""

    def __init__(self, client: "Client", spec: BufferSpec, handle: int, adoptions: Sequence[Adoption] = ()) -> None:
        self._client = client
        self._adoptions = adoptions  # of private memory, before what keeps it
        self._views = spec.view  # the memory lives as long as it is registered
        self._handle = handle
        self._finalizer = weakref.finalize(self, native.lib.gantry_buffer_destroy, handle)
        self.name = spec.name
        self.id: str = native.lib.gantry_buffer_id(handle).decode()
        self.generation: str = native.lib.gantry_buffer_generation(handle).decode()

    def __len__(self) -> int:
        """Bytes."""
        return int(native.lib.gantry_buffer_bytes(self._handle))

    @property
    def registered(self) -> bool:
        """False once it was unregistered, by itself, with its arena or with its client."""
        return bool(native.lib.gantry_buffer_is_registered(self._handle))

    def unregister(self, drain: float = 1.0) -> list[PeerRelease]:
        """Withdraws it, waiting up to `drain` seconds (60 at most) for transfers that use it. Doing it twice is no error.

        Returns what became of it at each peer that knew it. Raises Error "deadline_exceeded" when it is still used: it
        then takes no new transfers, and this may be repeated. The error's `peers` says the same of the peers.
        """
        report = ctypes.c_void_p()
        error = native.lib.gantry_buffer_unregister_report(self._handle, native.milliseconds(drain, "drain"),
                                                           ctypes.byref(report))
        problem = native.error_of(error)
        peers = _releases(native.take_text(report.value)) if report.value else []
        if problem is not None:
            problem.peers = peers
            try:
                raise problem
            finally:
                del problem
        for adoption in self._adoptions:
            adoption.release()
        self._views = None
        return peers

    def __enter__(self) -> "Buffer":
        return self

    def __exit__(self, *_: Any) -> None:
        self.unregister()

    def __repr__(self) -> str:
        return f"<gantry.Buffer {self.name} of {len(self)} bytes{'' if self.registered else ', unregistered'}>"


def _releases(answer: str) -> list[PeerRelease]:
    """What an answer to DELETE /v1/buffers/{id} says of the peers."""
    peers = json.loads(answer).get("peers", []) if answer.startswith("{") else []
    return [PeerRelease(peer["name"], peer["generation"], peer["path"], peer["outcome"]) for peer in peers]


def access_bits(access: Union[str, Iterable[str]]) -> int:
    bits = 0
    for name in [access] if isinstance(access, str) else access:
        if name not in _ACCESS_BITS:
            raise Error("invalid_argument", f"there is no access {name!r}", "it is remote_read, remote_write, both or none",
                        "access")
        bits |= _ACCESS_BITS[name]
    return bits


def fill_spec(target: native.NativeBufferSpec, spec: BufferSpec) -> None:
    views = spec.view if isinstance(spec.view, (list, tuple)) else [spec.view]
    places = [layout_of(view) for view in views]
    layout = None if spec.layout is None else Layout(*spec.layout)
    if any(not place.dense for place in places):
        layout = _layout_at_a_step(places, layout)
    target.name = native.text(spec.name, "name")
    target.pieces = (native.Piece * len(places))(*(native.Piece(place.address, place.length) for place in places))
    target.piece_count = len(places)
    target.access = access_bits(spec.access)
    if layout is not None:
        _fill_layout(target, layout, sum(place.length for place in places))


def layer_spec(name: str, layer: Any, access: Union[str, Iterable[str]], layout: Optional[Layout]) -> BufferSpec:
    """Of a layer of a cache: where no layout is given, dimension 0 of a tensor counts its blocks."""
    if layout is None and not isinstance(layer, (list, tuple)):
        layout = layout_of(layer).layout
    return BufferSpec(name, layer, access, layout)


def _layout_at_a_step(places: Sequence[Place], layout: Optional[Layout]) -> Layout:
    """That of a tensor with holes between its blocks, which is the buffer's only piece."""
    if len(places) != 1:
        raise Error("invalid_argument", "a piece of a buffer of several has holes between its blocks",
                    "register it as a buffer of its own", "view")
    own = places[0].layout
    assert own is not None  # it has holes
    if layout is None:
        return own
    stride = own.block_stride if layout.block_stride is None else layout.block_stride
    if (layout.block_bytes, stride) != own[:2]:
        raise Error("invalid_argument", f"the tensor has blocks of {own.block_bytes} bytes at a step of {own.block_stride}; "
                    f"the layout says {layout.block_bytes} at {stride}",
                    "leave the layout away: it follows from the tensor", "layout/block_stride"
                    if layout.block_bytes == own.block_bytes else "layout/block_bytes")
    return Layout(own.block_bytes, own.block_stride, own.blocks if layout.blocks is None else layout.blocks)


def _fill_layout(target: native.NativeBufferSpec, layout: Layout, length: int) -> None:
    block_bytes = native.unsigned(layout.block_bytes, "layout/block_bytes", least=1)
    stride = block_bytes if layout.block_stride is None else native.unsigned(layout.block_stride, "layout/block_stride",
                                                                             least=1)
    if block_bytes > length:
        raise Error("out_of_range", f"a block of {block_bytes} bytes does not fit a buffer of {length} bytes",
                    "make the buffer longer, or the blocks shorter", "layout/block_bytes")
    fitting = (length - block_bytes) // stride + 1
    target.block_bytes, target.block_stride = block_bytes, stride
    target.blocks = fitting if layout.blocks is None else native.unsigned(layout.blocks, "layout/blocks", least=1)


def _adoptions_for(client: "Client", spec: BufferSpec) -> list[Adoption]:
    views = spec.view if isinstance(spec.view, (list, tuple)) else [spec.view]
    return [adoption for adoption in (adopt_memory(client, view) for view in views) if adoption is not None]


def register(client: "Client", specs: Sequence[BufferSpec], verify: bool, adopt: bool) -> list[Buffer]:
    """Registers all of them or none."""
    wanted = (native.NativeBufferSpec * len(specs))()
    for target, spec in zip(wanted, specs):
        fill_spec(target, spec)
    adoptions = [_adoptions_for(client, spec) if adopt else [] for spec in specs]
    handles = (ctypes.c_void_p * len(specs))()
    call = native.lib.gantry_buffers_register_verified if verify else native.lib.gantry_buffers_register
    native.check(call(client._handle, wanted, len(specs), handles))
    return [Buffer(client, *parts) for parts in zip(specs, handles, adoptions)]
