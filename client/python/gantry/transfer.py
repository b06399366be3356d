"""Transfers: reads and writes between registered buffers."""

from __future__ import annotations

import ctypes
import json
import operator
import time
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generator, Iterable, NamedTuple, Optional, Sequence, Union

from . import block_ids, native
from .buffer import Buffer
from .errors import Error
from .messages import Message
from .timeline import Fence
from .view import View

if TYPE_CHECKING:
    from .client import Client

PATHS = native.path_names()  # in the order in which transfers try them
READ, WRITE = 0, 1
_PRIORITY_MAX = 10
_STATES = ("queued", "running", "stopping", "succeeded", "failed", "cancelled", "expired")
_EXECUTORS = ("any", "self", "peer")
_SUCCEEDED = _STATES.index("succeeded")


class Range(NamedTuple):
    """`length` bytes between local[local_index] at local_offset and remote[remote_index] at remote_offset."""

    local_index: int
    local_offset: int
    remote_index: int
    remote_offset: int
    length: int


class Blocks(NamedTuple):
    """Blocks of one group of a view; layers (first, last): of its pairs only these."""

    local_blocks: Any
    remote_blocks: Any
    layers: Optional[tuple[int, int]] = None


@dataclass(frozen=True)
class TransferStatus:
    """What is known of a transfer: sizes in bytes, times in microseconds.

    state            "queued", "running", "stopping" (its outcome is decided, bytes may still move), or, with no byte
                     moving any more, "succeeded", "failed", "cancelled", "expired"
    path             one of gantry.PATHS; Transfer.details() says why a faster one was not taken
    chunks           copies after merging and cutting
    descriptors_in   blocks or ranges as asked for; descriptors_out: after contiguous ones were merged
    copy_us          summed over the copy workers
    executor         "self": the sidecar of this client moves the bytes; "peer": the peer does, and took the path
    """

    state: str
    path: str
    bytes: int
    bytes_moved: int
    chunks: int
    chunks_moved: int
    descriptors_in: int
    descriptors_out: int
    workers: int
    admit_us: int
    fence_us: int
    queue_us: int
    move_us: int
    copy_us: int
    total_us: int
    executor: str

    @property
    def done(self) -> bool:
        """Whether it has ended, one way or another."""
        return _STATES.index(self.state) >= _SUCCEEDED

    @property
    def progress(self) -> float:
        """The part of the bytes that has moved, 0 to 1."""
        return self.bytes_moved / self.bytes if self.bytes else float(self.done)


class Transfer:
    """A transfer that was submitted by Client.read() or Client.write(). It goes on when this object is dropped."""

    def __init__(self, client: "Client", handle: int, kept: Sequence[Any]) -> None:
        self._client = client
        self._handle = handle
        self._kept = kept  # buffers that stay registered for as long as somebody waits for it
        self._finalizer = weakref.finalize(self, native.lib.gantry_transfer_destroy, handle)
        self.id: str = native.lib.gantry_transfer_id(handle).decode()

    def wait(self, timeout: Optional[float] = None) -> TransferStatus:
        """Waits up to `timeout` seconds (None: until it ends, which its deadline bounds) and returns its final status.

        Raises Error with the reason when it failed, was cancelled or expired, and TimeoutError when it goes on.
        """
        milliseconds = native.milliseconds(timeout)
        end = time.monotonic() + milliseconds / 1000
        while True:
            left = max(0, min(native.WAIT_SLICE_MS, int((end - time.monotonic()) * 1000)))
            status, error = self._wait_slice(left)
            if error is not None:
                try:
                    raise error
                finally:
                    del error
            if status.done:
                return status
            if time.monotonic() >= end:
                raise TimeoutError(f"transfer '{self.id}' is {status.state} after {timeout} s")

    def poll(self) -> TransferStatus:
        """Asks for its status and returns at once; a transfer that failed is no exception here."""
        status, error = self._wait_slice(0)
        if error is not None and not status.done:
            try:
                raise error
            finally:
                del error
        return status

    @property
    def done(self) -> bool:
        """Whether it has ended, one way or another. Asks the sidecar."""
        return self.poll().done

    @property
    def progress(self) -> float:
        """The part of the bytes that has moved, 0 to 1. Asks the sidecar."""
        return self.poll().progress

    def cancel(self, timeout: float = 5.0) -> TransferStatus:
        """Stops it and waits up to `timeout` seconds until no byte of it moves any more."""
        native_status = native.NativeStatus()
        native.check(native.lib.gantry_transfer_cancel(self._handle, native.milliseconds(timeout),
                                                       ctypes.byref(native_status)))
        return _status_of(native_status)

    def details(self) -> dict[str, Any]:
        """All that the sidecar last said about it, as GET /v1/transfers/{id} describes it. Makes no request."""
        said: dict[str, Any] = json.loads(native.take_text(native.lib.gantry_transfer_json(self._handle)))
        return said

    def __await__(self) -> Generator[Any, None, TransferStatus]:
        """`await transfer` is wait() for asyncio. Cancelling the task leaves the transfer going."""
        return self._client._completions.wait(self).__await__()

    def _wait_quietly(self, wait_ms: int) -> None:
        """Waits, and leaves the outcome to whoever asks for it."""
        end = time.monotonic() + wait_ms / 1000
        while (left := int((end - time.monotonic()) * 1000)) > 0:
            status, error = self._wait_slice(min(left, native.WAIT_SLICE_MS))
            if status.done or error is not None:
                return

    def _wait_slice(self, wait_ms: int) -> tuple[TransferStatus, Optional[Error]]:
        native_status = native.NativeStatus()
        error = native.error_of(native.lib.gantry_transfer_wait(self._handle, wait_ms, ctypes.byref(native_status)))
        return _status_of(native_status), error

    def __repr__(self) -> str:
        return f"<gantry.Transfer {self.id}>"


def _status_of(status: native.NativeStatus) -> TransferStatus:
    texts = ("state", "path", "executor")
    numbers = {name: getattr(status, name) for name, *_ in native.NativeStatus._fields_ if name not in texts}
    # 0 is said by a sidecar that knows no other executor than itself.
    return TransferStatus(state=_STATES[status.state], path=status.path.decode(),
                          executor=_EXECUTORS[status.executor or 1], **numbers)


def _checked_priority(priority: int) -> int:
    """A number that ctypes would otherwise wrap around in silence."""
    number = operator.index(priority)
    if not -_PRIORITY_MAX <= number <= _PRIORITY_MAX:
        raise Error("invalid_argument", f"{number} is not between -{_PRIORITY_MAX} and {_PRIORITY_MAX}", field="priority")
    return number


def _fill_items(spec: native.TransferSpec, local_blocks: Any, remote_blocks: Any, ranges: Any) -> None:
    if ranges is not None and (local_blocks is not None or remote_blocks is not None):
        raise Error("invalid_argument", "name either blocks or ranges", field="ranges")
    if ranges is not None:
        items = [native.NativeRange(native.unsigned(item[0], "ranges/local_index", 32),
                                    native.unsigned(item[2], "ranges/remote_index", 32),
                                    native.unsigned(item[1], "ranges/local_offset"),
                                    native.unsigned(item[3], "ranges/remote_offset"),
                                    native.unsigned(item[4], "ranges/length")) for item in ranges]
        spec.ranges = (native.NativeRange * len(items))(*items)
        spec.range_count = len(items)
        return
    if local_blocks is None or remote_blocks is None:
        raise Error("invalid_argument", "name ranges, or local_blocks and remote_blocks", field="local_blocks")
    local, remote = block_ids.numbers(local_blocks, "local_blocks"), block_ids.numbers(remote_blocks, "remote_blocks")
    if len(local) != len(remote):
        raise Error("invalid_argument", f"{len(local)} local and {len(remote)} remote blocks", field="remote_blocks")
    spec.local_blocks, spec.remote_blocks = block_ids.pointer(local), block_ids.pointer(remote)
    spec.block_count = len(local)


def _fill_groups(spec: native.TransferSpec, groups: dict[int, Blocks]) -> None:
    filled = (native.NativeBlockGroup * len(groups))()
    for target, (number, blocks) in zip(filled, groups.items()):
        local_blocks, remote_blocks, layers = Blocks(*blocks)
        local, remote = block_ids.numbers(local_blocks, "local_blocks"), block_ids.numbers(remote_blocks, "remote_blocks")
        target.group = native.unsigned(number, "groups", 32)
        target.local_blocks, target.local_count = block_ids.pointer(local), len(local)
        target.remote_blocks, target.remote_count = block_ids.pointer(remote), len(remote)
        if layers is not None:
            first, last = (native.unsigned(layer, "layers", 32) for layer in layers)
            if last < first:
                raise Error("invalid_argument", f"layers end before they begin: {first} to {last}", field="layers")
            target.first_layer, target.layer_count = first, last - first + 1
    spec.groups, spec.group_count = filled, len(filled)


def _fill_buffers(spec: native.TransferSpec, local: Union[View, Buffer, Sequence[Buffer]],
                  remote: Union[None, str, Sequence[str]]) -> list[Any]:
    """What has to live as long as somebody waits for the transfer."""
    if isinstance(local, View):
        if remote is not None:
            raise Error("invalid_argument", "a view stands for both sides", field="remote")
        spec.view = local._handle
        return [local]
    locals_ = [local] if isinstance(local, Buffer) else list(local)
    remotes = [remote] if isinstance(remote, str) else list(remote or ())
    spec.local = (ctypes.c_void_p * len(locals_))(*(buffer._handle for buffer in locals_))
    spec.local_count = len(locals_)
    spec.remote = (ctypes.c_char_p * len(remotes))(*(native.text(name, "remote") for name in remotes))
    spec.remote_count = len(remotes)
    return locals_


def submit(client: "Client", operation: int, local: Union[View, Buffer, Sequence[Buffer]],
           remote: Union[None, str, Sequence[str]], *, local_blocks: Any, remote_blocks: Any,
           ranges: Optional[Iterable[Sequence[int]]], layers: Optional[tuple[int, int]],
           groups: Optional[dict[int, Blocks]], fence: Union[None, Fence, tuple[Buffer, int, int]], wait: float,
           id: Optional[str], deadline: Optional[float], priority: int,
           require_path: Union[None, str, Iterable[str]], user_data: Optional[str], hold: Optional[str],
           hold_consumers: Optional[int], notify: Optional[Message], executor: str) -> Transfer:
    if executor not in _EXECUTORS:
        raise Error("invalid_argument", f'{executor!r} is none of "any", "self" and "peer"', field="executor")
    spec = native.TransferSpec()
    spec.executor = _EXECUTORS.index(executor)
    spec.operation = operation
    kept = _fill_buffers(spec, local, remote)
    if not isinstance(local, View):
        if layers is not None or groups is not None:
            raise Error("invalid_argument", "layers and groups are those of a view", field="layers")
        _fill_items(spec, local_blocks, remote_blocks, ranges)
    elif ranges is not None or (groups is None) == (local_blocks is None or remote_blocks is None):
        raise Error("invalid_argument", "a transfer by view names local_blocks and remote_blocks, or groups",
                    field="groups")
    elif groups is None:
        _fill_groups(spec, {0: Blocks(local_blocks, remote_blocks, layers)})
    elif layers is not None or local_blocks is not None or remote_blocks is not None or not groups:
        raise Error("invalid_argument", "with groups, blocks and layers stand within them", field="groups")
    else:
        _fill_groups(spec, groups)
    if fence is not None:
        counter, offset, value = fence
        spec.fence = ctypes.pointer(native.NativeFence(counter._handle,
                                                       native.unsigned(offset, "fence/offset"),
                                                       native.unsigned(value, "fence/value", least=1)))
        kept = [*kept, counter]
    spec.id = None if id is None else native.text(id, "id")
    if deadline is not None:
        spec.deadline_ms = native.deadline_ms(deadline)
    if priority != 0:
        spec.priority = _checked_priority(priority)
    if require_path is not None:
        paths = require_path if isinstance(require_path, str) else ",".join(require_path)
        if not paths:
            raise Error("invalid_argument", "no path is named", "None stands for any path", "require_path")
        spec.require_path = native.text(paths, "require_path")
    spec.user_data = None if user_data is None else native.text(user_data, "user_data")
    spec.hold = None if hold is None else native.text(hold, "hold")
    if hold_consumers is not None:
        spec.hold_consumers = ctypes.pointer(ctypes.c_uint64(native.unsigned(hold_consumers, "hold_consumers")))
    if notify is not None:
        spec.notify = ctypes.pointer(notify._native())
    wait_ms = native.milliseconds(wait, "wait")
    handle = ctypes.c_void_p()
    native.check(native.lib.gantry_transfer_submit(client._handle, ctypes.byref(spec),
                                                   min(wait_ms, native.WAIT_SLICE_MS), ctypes.byref(handle)))
    submitted = Transfer(client, native.made(handle), kept)
    if wait_ms > native.WAIT_SLICE_MS:
        submitted._wait_quietly(wait_ms - native.WAIT_SLICE_MS)
    return submitted
