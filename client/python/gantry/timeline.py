"""Timelines: counters that streams of a GPU raise when their work is done, for transfers that wait for them."""

from __future__ import annotations

import ctypes
import operator
import time
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple, Optional, Union

from . import native
from .buffer import Buffer
from .errors import Error

if TYPE_CHECKING:
    from .client import Client

_NO_GPU = -1


class Fence(NamedTuple):
    """What a transfer waits for: that the counter at `offset` of a buffer is at least `value`.

    buffer  a Buffer, or the Timeline that made the fence
    """

    buffer: Union[Buffer, "Timeline"]
    offset: int
    value: int


class Timeline:
    """Says how far the streams of one GPU, or this process's own work, have come. Client.timeline() makes them.

    Each stream has a counter of its own: fences of one stream are reached in their order, those of different streams in
    the order in which the streams get there. When it is collected its buffer is unregistered; streams may still signal.
    """

    def __init__(self, client: "Client", device: Optional[int]) -> None:
        handle = ctypes.c_void_p()
        native.check(native.lib.gantry_timeline_create(client._handle, _NO_GPU if device is None else device,
                                                       ctypes.byref(handle)))
        self._client = client
        self._timeline = handle.value
        self._finalizer = weakref.finalize(self, native.lib.gantry_timeline_destroy, handle.value)
        self._handle = native.lib.gantry_timeline_buffer(handle.value)  # of its buffer, which fences name
        self.device = device

    def signal(self, stream: Any = None) -> Fence:
        """A fence that is reached when the work before it is done. Returns at once.

        It orders nothing that the stream is given later: that must leave alone what the transfer moves, until it has ended.

        stream  of the GPU: the fence is reached when all that the stream was given before is done. An int (cudaStream_t,
                hipStream_t; 0 is the legacy default stream), or what has cuda_stream (torch), ptr (cupy) or __cuda_stream__(). None, for
                timelines without a GPU: the work of this thread, or what it has waited for, which is done already

        Default streams are those of the GPU that is current, as everywhere: it has to be this one. Not from within a host
        function, which may make no call of the GPU's runtime.

        Raises Error "conflict" while the stream is captured: signal in the stream in which the graph is launched, after
        that. "invalid_argument": the stream is of another GPU or context. "resource_exhausted": signals of 511 streams
        are waited for. "device_error": the GPU's context was reset, for example; then make a new timeline.
        """
        fence = native.NativeFence()
        if stream is None:
            if self.device is not None:
                raise Error("invalid_argument", "this timeline is of a GPU: which stream is to signal?",
                            "pass the stream, for example torch.cuda.current_stream(); for work of the host make a "
                            "timeline without a GPU", "stream")
            native.check(native.lib.gantry_timeline_signal(self._timeline, ctypes.byref(fence)))
        else:
            handle = _handle_of(stream)
            self._check_device_of(stream)
            native.check(native.lib.gantry_timeline_signal_stream(self._timeline, handle, ctypes.byref(fence)))
        return Fence(self, fence.offset, fence.value)

    def wait(self, fence: Fence, timeout: Optional[float] = None) -> None:
        """Waits until a fence of this timeline is reached: what its stream did before is done.

        Raises Error "deadline_exceeded" after `timeout` seconds (None: never), "device_error" when the GPU's context was
        ended meanwhile. Signals are handled while it waits.
        """
        counter, offset, value = fence
        wanted = native.NativeFence(counter._handle, native.unsigned(offset, "fence/offset"),
                                    native.unsigned(value, "fence/value", least=1))
        wait_ms = native.milliseconds(timeout)
        end = None if wait_ms == native.FOREVER else time.monotonic() + wait_ms / 1000
        while True:
            left = native.WAIT_SLICE_MS if end is None else native.milliseconds(max(0.0, end - time.monotonic()))
            error = native.error_of(native.lib.gantry_timeline_wait(self._timeline, ctypes.byref(wanted),
                                                                    min(left, native.WAIT_SLICE_MS)))
            if error is None:
                return
            if error.code != "deadline_exceeded" or (end is not None and left <= native.WAIT_SLICE_MS):
                try:
                    raise error
                finally:
                    del error

    def synchronize(self, stream: Any = None, timeout: Optional[float] = None) -> None:
        """Waits until all that the stream was given before is done. See signal() and wait()."""
        self.wait(self.signal(stream), timeout)

    def _check_device_of(self, stream: Any) -> None:
        """A handle does not always say whose it is: that of a default stream is the same on every GPU."""
        its = _device_of(stream)
        if self.device is not None and its is not None and its != self.device:
            raise Error("invalid_argument", f"the stream is of GPU {its}, and the timeline of GPU {self.device}",
                        f"pass a stream of GPU {self.device}, or make a timeline for GPU {its}", "stream")

    def __repr__(self) -> str:
        return "<gantry.Timeline of the host>" if self.device is None else f"<gantry.Timeline of GPU {self.device}>"


def _handle_of(stream: Any) -> int:
    """The vendor's handle of a stream."""
    handle: Any = stream
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        _version, handle = protocol() if callable(protocol) else protocol
    else:
        for name in ("cuda_stream", "ptr"):
            if hasattr(stream, name):
                handle = getattr(stream, name)
                break
    try:
        return native.unsigned(handle, "stream", 64)
    except TypeError:
        raise Error("invalid_argument", f"a {type(stream).__name__} is no stream of a GPU",
                    "pass a stream of torch or cupy, or the number of its handle", "stream") from None


def _device_of(stream: Any) -> Optional[int]:
    """The number of the GPU of a stream, where the object says it: torch (device.index), cupy (device_id), cuda.core."""
    device = getattr(stream, "device", None)
    for number in (getattr(device, "index", None), getattr(device, "device_id", None), getattr(stream, "device_id", None)):
        if isinstance(number, int) and number >= 0:  # cupy has -1 for "the current one"
            return number
    return None


def for_stream(timelines: dict[int, Timeline], client: "Client", stream: Any) -> tuple[Timeline, Any]:
    """The timeline of the GPU of a stream, which is made when it is first asked for, and the stream that signals there.

    stream  what says of which GPU it is (torch, cupy, cuda.core), or (device, what Timeline.signal takes)
    """
    device, its = stream if isinstance(stream, tuple) and len(stream) == 2 else (_device_of(stream), stream)
    if device is None:
        raise Error("invalid_argument", f"this {type(stream).__name__} does not say of which GPU it is",
                    "pass (device, stream), for example (0, handle)", "stream")
    ordinal = ordinal_of(device)
    if ordinal not in timelines:
        timelines[ordinal] = create(client, ordinal)
    return timelines[ordinal], its


def create(client: "Client", device: Any) -> Timeline:
    return Timeline(client, None if device is None else ordinal_of(device))


def ordinal_of(device: Any) -> int:
    """Of a GPU of this process: a number, or what has one as `index` (torch.device)."""
    try:
        number = operator.index(getattr(device, "index", device))
    except TypeError:
        raise Error("invalid_argument", f"{device!r} names no GPU by its number", "for example 0, or torch.device(\"cuda\", 0)",
                    "device") from None
    if not 0 <= number < 2**31:
        raise Error("invalid_argument", f"there is no GPU {number}", "GPUs are numbered from 0", "device")
    return number
