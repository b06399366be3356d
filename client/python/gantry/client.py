"""The client: this process as a workload of the sidecar of its pod."""

from __future__ import annotations

import ctypes
import os
import weakref
from typing import Any, Iterable, Optional, Sequence, Union

from . import arena as arenas
from . import buffer as buffers
from . import mapped_arena as mapped_arenas
from . import messages, native, transfer
from . import timeline as timelines
from . import view as views
from .address import address_of
from .adoption import Adoption
from .arena import Arena
from .buffer import Buffer, BufferSpec
from .completions import Completions
from .errors import Error
from .exit import close_at_exit
from .mapped_arena import MappedArena
from .messages import Hold, HoldGroup, Message
from .rest import RestCalls
from .strides import Layout
from .timeline import Fence, Timeline
from .transfer import Blocks, Range, Transfer
from .view import Pairs, Slice, View, ViewGroup

_BLOCKS = Union[Sequence[int], Any]  # a sequence of int, or an array of 64-bit integers


class Client(RestCalls):
    """A lease at the sidecar. While it is open the workload exists; closing it, or the end of this process, drops all.

    path            the sidecar's run directory, or its API socket
    workload        the name of this process at the sidecar: 1 to 128 of [A-Za-z0-9._:+=-]
    engine_id       the inference engine's own id, shown to operators
    handoff_socket  when it is not handoff.sock beside the API socket
    timeout         seconds for one request, on top of what it waits for; at most a day

    Raises Error "peer_unavailable" when no sidecar answers and "conflict" when the name is taken. Once it is open, calls raise
    SidecarLost when the sidecar is gone; transfers under way are lost with it, and its workers die within milliseconds.
    KeptClient opens another one by itself.
    """

    def __init__(self, path: Union[str, "os.PathLike[str]"], workload: str, *, engine_id: Optional[str] = None,
                 handoff_socket: Union[None, str, "os.PathLike[str]"] = None, timeout: float = 10.0) -> None:
        options = native.ClientOptions()
        options.engine_id = None if engine_id is None else native.text(engine_id, "engine_id")
        options.handoff_socket = None if handoff_socket is None else native.text(handoff_socket, "handoff_socket")
        options.timeout_ms = native.milliseconds(timeout) or native.lifetime_ms(timeout, "timeout")
        handle = ctypes.c_void_p()
        native.check(native.lib.gantry_client_open(native.text(path, "path"), native.text(workload, "workload"),
                                                   ctypes.byref(options), ctypes.byref(handle)))
        self._handle = native.made(handle)
        self._finalizer = weakref.finalize(self, native.lib.gantry_client_destroy, self._handle)
        self._finalizer.atexit = False
        self._timeout_ms = options.timeout_ms
        close_at_exit(self)
        self.workload = workload
        self._completions = Completions(self)
        self._adoptions: weakref.WeakSet[Adoption] = weakref.WeakSet()
        self._stream_timelines: dict[int, Timeline] = {}  # of `stream=`, by their GPU
        self.generation: str = native.lib.gantry_client_generation(self._handle).decode()

    def close(self) -> None:
        """Ends the lease: buffers are unregistered, transfers cancelled, calls of other threads return with an error.

        Afterwards every object of this client answers Error "cancelled". Closing twice is no error.
        """
        native.check(native.lib.gantry_client_close(self._handle))
        self._stream_timelines.clear()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def check(self) -> None:
        """Raises SidecarLost when the lease does not stand any more, for example because the sidecar was restarted."""
        native.check(native.lib.gantry_client_check(self._handle))

    # Memory

    def adoptions(self) -> list[Adoption]:
        """Holds on the private memory that is adopted now. While one is kept, adopting the memory again replaces no page."""
        while True:
            try:
                return list(self._adoptions)
            except RuntimeError:  # another thread adopts meanwhile
                continue

    def arena(self, length: int, name: Optional[str] = None) -> Arena:
        """Allocates `length` bytes (rounded up to whole pages) of shared memory with every page present.

        `name` shows in /proc/PID/maps. Raises Error "resource_exhausted", which names what is short, when the machine or a
        control group (cgroup) above this process has less memory left. Page cache counts as free there, swap does not.
        """
        return arenas.create(self, length, name)

    def adopt(self, fd: int, length: Optional[int] = None, *, address: Any = None) -> Union[Arena, MappedArena]:
        """Makes the first `length` bytes (None: all) of a memfd an arena; `fd` stays the caller's.

        Another file of tmpfs (/dev/shm, shared_memory of multiprocessing) is taken where the sidecar runs with --unsealed-memory.

        address  where the caller has mapped byte 0 of it and keeps it mapped: a number, or what shows the mapping (an mmap,
                 numpy array, tensor). Buffers are found there, and nothing is mapped again. None: it is mapped here

        Pages that the memfd does not have yet are taken when they are touched: then no error says that there is none left.
        Raises Error "fd_not_sealed" (it needs F_SEAL_SHRINK, or that setting), "fd_too_short", "not_exportable", or
        "invalid_argument" for an address where less is mapped; that it shows the memfd is the caller's word, which
        register(verify=True) finds wrong.
        """
        return arenas.adopt(self, fd, length) if address is None else mapped_arenas.adopt(self, fd, length, address)

    def register(self, name: str, view: Any, *, access: Union[str, Iterable[str]] = ("remote_read",),
                 layout: Optional[Layout] = None, verify: bool = False, stream: Any = None,
                 adopt: bool = False) -> Buffer:
        """Registers one buffer; BufferSpec describes the arguments.

        stream  of a GPU: waits first until all that it was given before is done, so that others may read what it writes.
                What says of which GPU it is (torch, cupy, cuda.core), or (device, what Timeline.signal takes)

        verify  the caller's word that nothing else reads or writes the memory until this returns, no stream of a GPU
                either: random bytes are put at both ends of the buffer and where its pieces meet, every copy worker of the
                sidecar looks for them through its own mapping, and the bytes are put back. Error "verification_failed"
                when a worker finds others: then nothing is registered. "fd_read_only": the memory cannot be written to

        adopt   registers private memory, too (numpy arrays, tensors of the CPU, bytearrays, mmap), by replacing its pages with
                shared ones at the same addresses. The caller's word that no other thread uses the array, or the storage of
                the tensor, until this returns, and that no device has its pages. They stay shared until they are freed:
                children of fork see what is written there. Memory that is shared already stays as it is: its file is handed
                over, which has to be sealed against shrinking unless the sidecar runs with --unsealed-memory.
                docs/host_memory.md says which memory can be adopted

        Raises Error "not_exportable" when a byte of the view lies in no arena and in no memory of a GPU that others can
        open, "invalid_argument" when the view has holes elsewhere than between its blocks or the layout does not fit, and
        "conflict" when the name is taken by another buffer.

        Without `stream` nothing here waits for a GPU: before a transfer, synchronise what writes or reads the memory, or
        give the transfer a fence.
        """
        self._await_stream(stream)
        return buffers.register(self, [BufferSpec(name, view, access, layout)], verify, adopt)[0]

    def register_many(self, specs: Sequence[BufferSpec], *, verify: bool = False, stream: Any = None,
                      adopt: bool = False) -> list[Buffer]:
        """Registers all of them in one request, or none, in this order. See register() for `verify`, `stream`, `adopt`."""
        self._await_stream(stream)
        return buffers.register(self, list(specs), verify, adopt)

    def register_layers(self, name: str, layers: Sequence[Any], *,
                        access: Union[str, Iterable[str]] = ("remote_read",),
                        layout: Optional[Layout] = None, verify: bool = False, stream: Any = None,
                        adopt: bool = False) -> list[Buffer]:
        """Registers a whole KV cache, one buffer for each layer, in one request, or nothing of it.

        The buffers are called "name.0", "name.1", ..., which views find by the pattern "name.*". Each layer is what
        BufferSpec takes as `view`: for example a tensor, or [keys, values] as two pieces. `layout` is that of each; None:
        dimension 0 of a tensor of two dimensions or more counts its blocks, as layout_of() says. See register() for
        `verify`, `stream` and `adopt`.
        """
        self._await_stream(stream)
        return buffers.register(self, [buffers.layer_spec(f"{name}.{i}", layer, access, layout)
                                       for i, layer in enumerate(layers)], verify, adopt)

    def suspend(self, buffers: Optional[Sequence[Buffer]] = None, drain: float = 1.0) -> None:
        """For an engine's sleep mode: unmaps buffers (None: all) in every sidecar and keeps them registered.

        Transfers that name them fail with "draining" until resume(). GPU memory that is freed after this returned is free at
        once. Call it before the memory is freed: drivers tell nobody, and peers go on reading what was there.

        All are those of timelines, too: transfers with a fence of theirs are refused until resume().
        """
        handles, count = self._handles(buffers)
        native.check(native.lib.gantry_buffers_suspend(self._handle, handles, count,
                                                       native.milliseconds(drain, "drain")))

    def resume(self, buffers: Optional[Sequence[Buffer]] = None) -> None:
        """Ends suspend(): on a GPU with the memory that is at the buffers' addresses now, which may be other memory.

        Ids and generations stay. Raises Error "not_exportable" when there is no memory; the buffers are still suspended.
        """
        native.check(native.lib.gantry_buffers_resume(self._handle, *self._handles(buffers)))

    def resolve(self, view: Any) -> list[tuple[int, int, int]]:
        """Where a view lies: (address, offset, bytes) for each arena, or allocation of a GPU, that it touches.

        The address is where the arena or the allocation begins. Makes no request. Raises Error "not_exportable" when a
        byte of it can be registered nowhere.
        """
        address, length = address_of(view)
        found = ctypes.c_size_t()
        capacity = 0
        while capacity == 0 or found.value > capacity:
            capacity = max(64, found.value)
            extents = (native.Extent * capacity)()
            native.check(native.lib.gantry_client_resolve(self._handle, address, length, extents, capacity,
                                                          ctypes.byref(found)))
        return [(extent.arena_data, extent.offset, extent.bytes) for extent in extents[:found.value]]

    def timeline(self, device: Any = None) -> Timeline:
        """Makes what fences are made of: see Timeline.signal().

        device  the GPU of this process whose streams signal, by its number, or a torch.device; None: this process's own
                work, without a GPU

        Raises Error "path_unavailable" where this process uses no GPU yet, or where the GPU or its driver cannot write in
        the order of a stream: synchronise instead, before the transfer is submitted.
        """
        return timelines.create(self, device)

    # Transfers

    def view(self, remote_workload: str, *, peer: Optional[str] = None, pairs: Pairs = "by_name",
             slices: Union[None, Slice, Sequence[Slice]] = None, block_ratio: tuple[int, int] = (1, 1),
             groups: Optional[dict[int, ViewGroup]] = None, id: Optional[str] = None) -> View:
        """Pairs buffers of this client with those of another workload, so that transfers name only blocks.

        remote_workload   "workload[@generation]"; with a generation another life of it is refused with "stale_generation",
                here and by each transfer
        peer    the sidecar of the other workload; None: this one
        pairs, slices, block_ratio   as ViewGroup describes them, for the one group, 0
        groups  {number: ViewGroup} instead of these three
        id      unique in the workload; the same id and content again name the same view

        Raises Error, which names the pair, for example "unregistered", "out_of_range" (a slice) or "invalid_argument"
        (blocks that do not pair up).
        """
        return views.create(self, remote_workload, peer,
                            {0: ViewGroup(pairs, slices, block_ratio)} if groups is None else groups, id)

    def read(self, local: Union[View, Buffer, Sequence[Buffer]], remote: Union[None, str, Sequence[str]] = None, *,
             local_blocks: Optional[_BLOCKS] = None, remote_blocks: Optional[_BLOCKS] = None,
             ranges: Optional[Iterable[Union[Range, Sequence[int]]]] = None,
             layers: Optional[tuple[int, int]] = None, groups: Optional[dict[int, Blocks]] = None,
             fence: Union[None, Fence, tuple[Buffer, int, int]] = None, stream: Any = None, wait: float = 0.0,
             id: Optional[str] = None, deadline: Optional[float] = None, priority: int = 0,
             require_path: Union[None, str, Iterable[str]] = None, user_data: Optional[str] = None,
             hold: Optional[str] = None, hold_consumers: Optional[int] = None,
             notify: Optional[Message] = None, executor: str = "any") -> Transfer:
        """Starts a transfer from remote buffers into local ones.

        local, remote   buffers of this client, and references "[peer/]workload/buffer[@generation]" of one peer
        local_blocks, remote_blocks   block local_blocks[i] of local[k] is filled from remote_blocks[i] of remote[k],
                        for every i and k; lists of int or arrays of 64-bit integers, of equal length;
                        empty ones move nothing, and do all else that a transfer does
        ranges          instead of blocks: Range or (local_index, local_offset, remote_index, remote_offset, length)
        view            a View, as `local` and without `remote`: then local_blocks and remote_blocks are of its group 0
                        and in the proportion of its block_ratio
        layers          (first, last) of the view's pairs: only these, for example to write layer by layer
        groups          {number: Blocks(local_blocks, remote_blocks[, layers])} of the view
        fence           what Timeline.signal() returned, or (buffer, offset, value): the transfer waits, up to its deadline,
                        until the unsigned 64-bit counter at this offset of a buffer of this client is at least `value`
        stream          instead of a fence: the transfer waits, and this call does not, until all that the stream was given
                        before is done; see register() for what it can be
        wait            seconds to wait for the outcome in the same request
        id              unique in the workload; the same id and request again name the same transfer
        deadline        seconds after which it expires, None: the sidecar's default (30). With none left (0 or less) nothing is
                        sent: Error "deadline_exceeded"
        priority        -10 to 10, higher goes first
        require_path    "shm", ["ipc", "shm"], ...: Error "path_unavailable" rather than a slower path; None: any path
        user_data       up to 1 KiB, given back in events
        hold            of the remote workload: Error "lease_expired" when it is over, "out_of_range" for other blocks
        hold_consumers  as how many this read counts there when it has succeeded: 1 unless said, 0 for one of several
                        that a consumer makes
        notify          for a workload at the same peer, sent once all bytes are there, and only if the transfer
                        succeeds. Its end waits for the answer, but no longer than 2 s after the peer is known to be
                        down. The state is "succeeded" either way: details()["notified"] says whether it was delivered,
                        and details()["notify_error"]["code"] why not, "peer_lost" when the peer went away meanwhile
        executor        who moves the bytes: "any" (the peer only where this sidecar has no path and the peer has one),
                        "self", or "peer"; the peer needs "remote_write" to the local buffers of a read and "remote_read"
                        to those of a write, else Error "permission_denied", and it must be connected to this sidecar as
                        well, else "peer_unavailable"; TransferStatus.executor says who did

        Raises Error when the transfer is refused, for example "unregistered", "out_of_range", "peer_unavailable".
        """
        return transfer.submit(self, transfer.READ, local, remote, local_blocks=local_blocks,
                               remote_blocks=remote_blocks, ranges=ranges, layers=layers, groups=groups,
                               fence=self._fence_of(fence, stream), wait=wait, id=id, deadline=deadline, priority=priority,
                               require_path=require_path, user_data=user_data, hold=hold,
                               hold_consumers=hold_consumers, notify=notify, executor=executor)

    def write(self, local: Union[View, Buffer, Sequence[Buffer]], remote: Union[None, str, Sequence[str]] = None, *,
              local_blocks: Optional[_BLOCKS] = None, remote_blocks: Optional[_BLOCKS] = None,
              ranges: Optional[Iterable[Union[Range, Sequence[int]]]] = None,
              layers: Optional[tuple[int, int]] = None, groups: Optional[dict[int, Blocks]] = None,
              fence: Union[None, Fence, tuple[Buffer, int, int]] = None, stream: Any = None, wait: float = 0.0,
              id: Optional[str] = None, deadline: Optional[float] = None, priority: int = 0,
              require_path: Union[None, str, Iterable[str]] = None, user_data: Optional[str] = None,
              notify: Optional[Message] = None, executor: str = "any") -> Transfer:
        """Starts a transfer from local buffers into remote ones, which must grant "remote_write". See read()."""
        return transfer.submit(self, transfer.WRITE, local, remote, local_blocks=local_blocks,
                               remote_blocks=remote_blocks, ranges=ranges, layers=layers, groups=groups,
                               fence=self._fence_of(fence, stream), wait=wait, id=id, deadline=deadline, priority=priority,
                               require_path=require_path, user_data=user_data, hold=None,
                               hold_consumers=None, notify=notify, executor=executor)

    # Messages and promises

    def notify(self, to: str, data: Union[bytes, str] = b"", *, peer: Optional[str] = None,
               request_id: Optional[str] = None, deadline: Optional[float] = None) -> str:
        """Sends a message of up to 64 KiB to a workload of `peer` (None: of this sidecar) and returns its id.

        to          "workload[@generation]"; with a generation another life of it is refused
        request_id  the callers' own, up to 256 bytes
        deadline    seconds for which it is tried, 10 unless said; 0 or less: Error "deadline_exceeded", nothing is sent

        It is not delivered yet when this returns. The receiver finds an event of type "notification" (Event.message
        holds the bytes); this workload one of type "notification_outcome", whose subject is the id.
        """
        return messages.notify(self, Message(to, data, request_id), peer, deadline)

    def hold(self, id: str, groups: Union[HoldGroup, Iterable[HoldGroup]], ttl: float, *,
             expected_consumers: Optional[int] = None) -> Hold:
        """Promises for `ttl` seconds (at most an hour) that blocks of this workload keep their content.

        `id` is any text of 1 to 512 bytes of UTF-8, for example the id of a request.

        Whoever reads them names the hold: client.read(..., hold=id). It ends when `expected_consumers` transfers that
        named it (at least 1; None: no number of them ends it) have succeeded, at its time, or by Hold.release(); an event
        of type "hold" says which. It does not expire
        while it is read. Nothing is locked: the promise is this process's to keep. Called again with the same content
        it begins its time anew; Error "conflict" when the id stands for another.
        """
        return messages.hold(self, id, [groups] if isinstance(groups, HoldGroup) else groups, ttl, expected_consumers)

    def _await_stream(self, stream: Any) -> None:
        if stream is not None:
            timeline, its = timelines.for_stream(self._stream_timelines, self, stream)
            timeline.synchronize(its)

    def _fence_of(self, fence: Any, stream: Any) -> Any:
        if stream is None:
            return fence
        if fence is not None:
            raise Error("invalid_argument", "a transfer waits for a fence or for a stream, and not for both",
                        "have the stream wait for the other work, then pass it alone", "stream")
        timeline, its = timelines.for_stream(self._stream_timelines, self, stream)
        return timeline.signal(its)

    def _handles(self, chosen: Optional[Sequence[Buffer]]) -> tuple[Any, int]:
        if chosen is None:
            return None, 0
        return (ctypes.c_void_p * max(1, len(chosen)))(*(buffer._handle for buffer in chosen)), len(chosen)

    def __repr__(self) -> str:
        return f"<gantry.Client {self.workload}>"
