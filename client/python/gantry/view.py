"""Views: pairs of local and remote buffers, so that transfers name only blocks."""

from __future__ import annotations

import ctypes
import json
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Optional, Sequence, Union

from . import native
from .errors import Error

if TYPE_CHECKING:
    from .client import Client

Pairs = Union[str, Sequence[Union[str, tuple[str, str]]]]


class Slice(NamedTuple):
    """The bytes of each block that move, as (offset, length) on either side; None: the whole block."""

    local: Optional[tuple[int, int]] = None
    remote: Optional[tuple[int, int]] = None


@dataclass(frozen=True)
class ViewGroup:
    """Pairs whose blocks a transfer names by one list for each side, as layers of one kind of attention.

    pairs        "by_name": every buffer of the workload that has a layout, with the remote one of the same name, in the
                 order in which they were registered; or a list of names, of patterns ("kv.*"), and of (local, remote),
                 each "buffer[@generation]"
    slices       one Slice, or several that all move for each pair of blocks; None: whole blocks
    block_ratio  (local, remote): so many local blocks hold what so many remote blocks hold; one of the two is 1
    """

    pairs: Pairs = "by_name"
    slices: Union[None, Slice, Sequence[Slice]] = None
    block_ratio: tuple[int, int] = (1, 1)


class View:
    """Pairs that were resolved and checked. Client.view() makes them; it is deleted when it is collected at the latest."""

    def __init__(self, client: "Client", handle: int) -> None:
        self._client = client
        self._handle = handle
        self._finalizer = weakref.finalize(self, native.lib.gantry_view_destroy, handle)
        self.id: str = native.lib.gantry_view_id(handle).decode()

    @property
    def bytes_per_block(self) -> int:
        """What one pair of block ids moves in every group, all pairs together."""
        return int(native.lib.gantry_view_bytes_per_block(self._handle))

    def __len__(self) -> int:
        """Pairs of all groups."""
        return int(native.lib.gantry_view_pair_count(self._handle))

    @property
    def warnings(self) -> list[str]:
        """What transfers by this view will run into, as the sidecar saw it when the view was made."""
        warnings: list[str] = self.details()["warnings"]
        return warnings

    def details(self) -> dict[str, Any]:
        """All that the sidecar said about it, as POST /v1/views describes it. Makes no request."""
        said: dict[str, Any] = json.loads(native.take_text(native.lib.gantry_view_json(self._handle)))
        return said

    def delete(self) -> None:
        """Transfers that run go on. Doing it twice is no error."""
        native.check(native.lib.gantry_view_delete(self._handle))

    def __enter__(self) -> "View":
        return self

    def __exit__(self, *_: Any) -> None:
        self.delete()

    def __repr__(self) -> str:
        return f"<gantry.View {self.id} of {len(self)} pairs>"


def _fill_group(target: native.NativeViewGroup, number: int, group: ViewGroup) -> None:
    target.group = native.unsigned(number, "groups", 32)
    if isinstance(group.pairs, str):
        if group.pairs != "by_name":
            raise Error("invalid_argument", 'pairs are "by_name" or a list', field="pairs")
    else:
        if not group.pairs:
            raise Error("invalid_argument", "the list of pairs is empty", field="pairs")
        pairs = [(pair, None) if isinstance(pair, str) else tuple(pair) for pair in group.pairs]
        target.pairs = (native.NativePair * len(pairs))(*(
            native.NativePair(native.text(local, "pairs"), None if remote is None else native.text(remote, "pairs"))
            for local, remote in pairs))
        target.pair_count = len(pairs)
    if group.slices is not None:
        slices = [group.slices] if isinstance(group.slices, Slice) else [Slice(*each) for each in group.slices]
        target.slices = (native.NativeSlice * len(slices))(*(_native_slice(each) for each in slices))
        target.slice_count = len(slices)
    target.local_ratio, target.remote_ratio = (native.unsigned(side, "block_ratio", 32, least=1)
                                               for side in group.block_ratio)


def _native_slice(each: Slice) -> native.NativeSlice:
    numbers = []
    for side, name in ((each.local, "slices/local"), (each.remote, "slices/remote")):
        offset, length = (0, 0) if side is None else side
        if side is not None and length == 0:
            raise Error("invalid_argument", "a slice has at least one byte", field=name)
        numbers += [native.unsigned(offset, name), native.unsigned(length, name)]
    return native.NativeSlice(*numbers)


def create(client: "Client", remote_workload: str, peer: Optional[str], groups: dict[int, ViewGroup],
           id: Optional[str]) -> View:
    if not groups:
        raise Error("invalid_argument", "a view has at least one group", field="groups")
    filled = (native.NativeViewGroup * len(groups))()
    for target, (number, group) in zip(filled, groups.items()):
        _fill_group(target, number, group)
    spec = native.NativeViewSpec()
    spec.id = None if id is None else native.text(id, "id")
    spec.peer = None if peer is None else native.text(peer, "peer")
    spec.remote_workload = native.text(remote_workload, "remote_workload")
    spec.groups, spec.group_count = filled, len(filled)
    handle = ctypes.c_void_p()
    native.check(native.lib.gantry_view_create(client._handle, ctypes.byref(spec), ctypes.byref(handle)))
    return View(client, native.made(handle))
