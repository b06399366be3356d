"""Notifications, messages from workload to workload, and holds, promises that blocks keep their content."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Iterable, Optional, Sequence, Union

from . import block_ids, native
from .errors import Error

if TYPE_CHECKING:
    from .client import Client

MESSAGE_BYTES_MAX = 65536


@dataclass(frozen=True)
class Message:
    """What a notification says: at most 64 KiB.

    to          the workload "name[@generation]"; with a generation another life of it is refused
    data        bytes, or a str, which is sent as UTF-8
    request_id  the callers' own, up to 256 bytes
    """

    to: str
    data: Union[bytes, bytearray, memoryview, str] = b""
    request_id: Optional[str] = None

    def _native(self) -> native.NativeMessage:
        data = self.data.encode() if isinstance(self.data, str) else bytes(self.data)
        if len(data) > MESSAGE_BYTES_MAX:
            raise Error("invalid_argument", f"the message has {len(data)} bytes, and {MESSAGE_BYTES_MAX} at most", field="data")
        request_id = None if self.request_id is None else native.text(self.request_id, "request_id")
        return native.NativeMessage(native.text(self.to, "to"), data, len(data), request_id)


@dataclass(frozen=True)
class HoldGroup:
    """The same blocks of each of these buffers of this workload; blocks None: all of the buffers."""

    buffers: Sequence[str]
    blocks: Optional[Sequence[int]] = None


class Hold:
    """A promise that Client.hold() made. It ends when enough have read it, at its time, or by release(); an event of type
    "hold" says how. Dropping this object does not end it.
    """

    def __init__(self, client: "Client", id: str, expires_unix: float) -> None:
        self._client = client
        self.id = id
        self.expires_unix = expires_unix  # seconds since 1970

    def extend(self, ttl: float) -> float:
        """Gives it `ttl` seconds from now on and returns when it expires; raises Error "lease_expired" when it is over."""
        expires = ctypes.c_uint64()
        native.check(native.lib.gantry_hold_extend(self._client._handle, native.text(self.id, "id"),
                                                   native.lifetime_ms(ttl, "ttl"), ctypes.byref(expires)))
        self.expires_unix = expires.value / 1000
        return self.expires_unix

    def release(self) -> bool:
        """Nobody else begins to read it. Whether it has ended: if not, transfers still read, and until the event "hold"
        the blocks are theirs. One that has ended already is no error.
        """
        ended = ctypes.c_int()
        native.check(native.lib.gantry_hold_release(self._client._handle, native.text(self.id, "id"), ctypes.byref(ended)))
        return bool(ended.value)

    def __repr__(self) -> str:
        return f"<gantry.Hold {self.id}>"


def notify(client: "Client", message: Message, peer: Optional[str], deadline: Optional[float]) -> str:
    spec = message._native()
    made = ctypes.c_void_p()
    native.check(native.lib.gantry_notify(client._handle, None if peer is None else native.text(peer, "peer"),
                                          ctypes.byref(spec),
                                          native.deadline_ms(deadline), ctypes.byref(made)))
    return native.take_text(made.value)


def hold(client: "Client", id: str, groups: Iterable[HoldGroup], ttl: float, expected_consumers: Optional[int]) -> Hold:
    kept: list[Any] = []  # what the native structures point to
    native_groups = []
    for group in groups:
        names = [native.text(name, "buffers") for name in group.buffers]
        blocks = block_ids.numbers(() if group.blocks is None else group.blocks, "blocks")
        if group.blocks is not None and not blocks:
            raise Error("invalid_argument", "a group without blocks; None stands for all of them", field="blocks")
        buffers = (ctypes.c_char_p * max(1, len(names)))(*names)
        numbers = block_ids.pointer(blocks)
        kept += [buffers, numbers]
        native_groups.append(native.NativeHoldGroup(buffers, len(names), numbers, len(blocks)))
    spec = native.NativeHoldSpec((native.NativeHoldGroup * max(1, len(native_groups)))(*native_groups),
                                 len(native_groups), native.lifetime_ms(ttl, "ttl"),
                                 0 if expected_consumers is None else
                                 native.unsigned(expected_consumers, "expected_consumers", least=1))
    expires = ctypes.c_uint64()
    native.check(native.lib.gantry_hold_put(client._handle, native.text(id, "id"), ctypes.byref(spec),
                                            ctypes.byref(expires)))
    del kept
    return Hold(client, id, expires.value / 1000)
