"""Transfers behind what a GPU's stream does: they move what it has written, and not what was there before.

Without the fence, the same transfer moves the old bytes: that shows that the others would find out.
"""

import ctypes
import gc
import importlib.util
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from gpu_workloads import REAL, GpuCommands, GpuPair, driver_library, gpus, start_gpu_workload, vendor
from workloads import MiB, _Commands, gantry, wait_for

pytestmark = pytest.mark.both_vendors

OFFSET, LENGTH, SIZE = 3 * MiB + 512, MiB, 8 * MiB
HOLDING = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
LEGACY, PER_THREAD = 0, 2


class TorchStream:
    """What a stream of torch offers."""

    def __init__(self, handle):
        self.cuda_stream = handle


class ProtocolStream:
    def __init__(self, handle):
        self._handle = handle

    def __cuda_stream__(self):
        return (0, self._handle)


class Described:
    """A stream, or its device, that says of which GPU it is, as frameworks do."""
    def __init__(self, **attributes):
        self.__dict__.update(attributes)


class FenceCommands(GpuCommands):
    """A workload whose stream can be held back, so that what it is given stays undone."""

    def use_gpu(self, ordinal):
        super().use_gpu(ordinal)
        self.timeline = self.client.timeline(ordinal)
        self.fences, self.go, self.kept = {}, threading.Event(), []

    def _stream(self, which):
        return ctypes.c_void_p(which) if which is not None else self.driver.stream

    def hold(self, which=None):
        """What the stream is given from here on begins when it is let go."""
        self.go = go = threading.Event()
        self.kept.append(HOLDING(lambda _: go.wait(60) and None))
        self.driver.run_on_host(self.kept[-1], self._stream(which))

    def let_go(self):
        self.go.set()

    def fill_later(self, name, offset, value, size, which=None):
        """By the stream, when it gets there: returns at once."""
        self.driver.set_later(self.allocations[name] + offset, value, size, self._stream(which))

    def signal(self, name, which=None):
        self.fences[name] = self.timeline.signal(which if which is not None else self.driver.stream.value)

    def signal_as(self, kind):
        handle = self.driver.stream.value
        fence = self.timeline.signal({"number": handle, "torch": TorchStream(handle), "protocol": ProtocolStream(handle)}[kind])
        return fence.offset, fence.value

    def signal_described(self, how, ordinal):
        """By a default stream, of which the handle says nothing."""
        stream = {"torch": lambda: Described(cuda_stream=0, device=Described(index=ordinal)),
                  "cupy": lambda: Described(ptr=0, device_id=ordinal),
                  "cuda.core": lambda: Described(__cuda_stream__=lambda: (0, 0), device=Described(device_id=ordinal))}[how]()
        return self.timeline.signal(stream).value

    def signal_wrongly(self, stream):
        self.timeline.signal(stream)

    def move_behind(self, fence, operation, local, remote, **options):
        return self.move(operation, local, remote, 0, fence=fence and self.fences[fence], **options)

    def state(self, transfer):
        return self.transfers[transfer].poll().state

    def outcome(self, transfer):
        try:
            return self.transfers[transfer].wait(20).state, None
        except gantry.Error as error:
            return self.transfers[transfer].details()["state"], error.code

    def end_timeline(self):
        self.fences.clear()
        self.timeline = None
        gc.collect()

    def end_timeline_under(self):
        """As programs in C can, and as Python does not while somebody has the transfer."""
        self.timeline._finalizer()

    def synchronize(self, which=None):
        self.driver.synchronize(self._stream(which))

    def rounds(self, count, local, remote):
        """Each fills the buffer with another value and writes it to the peer, without waiting for the stream in between."""
        ends = []
        for value in range(count):
            self.fill_later(local, OFFSET, value % 251, LENGTH)
            fence = self.timeline.signal(self.driver.stream.value)
            ranges = [(0, 0, 0, 0, LENGTH)]
            status = self.client.write(self.buffers[local], remote, ranges=ranges, fence=fence, wait=20).wait(20)
            ends.append(status.state)
        return ends

    def pin_and_drop(self):
        """Whether an arena was pinned, and whether its address is pinned when nobody has the arena any more."""
        arena = self.client.arena(MiB)
        address = ctypes.addressof(ctypes.c_char.from_buffer(arena))
        arena.pin(self.driver.device.value)
        before = self.driver.is_pinned(address)
        del arena
        gc.collect()
        return before, self.driver.is_pinned(address)


@pytest.fixture
def pair(start_sidecar, start_gpu_workload):
    def start(sidecar, name, ordinal=None):
        return start_gpu_workload(sidecar, name, ordinal, commands=FenceCommands)

    made = GpuPair(start_sidecar, start, offset=OFFSET, length=LENGTH, size=SIZE)
    yield made
    for workload in (made.reader, made.owner):
        if workload._process.is_alive():
            workload.do("let_go")


def write(pair, fence, **options):
    return pair.reader.do("move_behind", fence, "write", "into", "b/owner/out", ranges=[(0, 0, 0, 0, LENGTH)], **options)


def found(pair):
    """What the peer's buffer holds, and whether everything around it is as it was."""
    now = pair.owner.do("look", "out", 0, SIZE)
    around = now[:OFFSET] + now[OFFSET + LENGTH:]
    return now[OFFSET:OFFSET + LENGTH], around == pair.data["out"][:OFFSET] + pair.data["out"][OFFSET + LENGTH:]


@pytest.mark.parametrize("stream", [None, LEGACY, PER_THREAD], ids=["own", "legacy", "per-thread"])
def test_a_transfer_moves_what_the_stream_has_yet_to_write(pair, stream):
    pair.reader.do("hold", stream)
    pair.reader.do("fill_later", "into", OFFSET, 0x5a, LENGTH, stream)
    pair.reader.do("signal", "filled", stream)
    transfer = write(pair, "filled")
    time.sleep(0.3)
    assert pair.reader.do("state", transfer) == "queued"
    assert found(pair) == (pair.data["out"][OFFSET:OFFSET + LENGTH], True)
    pair.reader.do("let_go")
    assert pair.reader.do("outcome", transfer) == ("succeeded", None)
    assert found(pair) == (b"\x5a" * LENGTH, True)


def test_without_a_fence_it_moves_what_was_there(pair):
    pair.reader.do("hold")
    pair.reader.do("fill_later", "into", OFFSET, 0x5a, LENGTH)
    pair.reader.do("signal", "filled")
    transfer = write(pair, None)
    assert pair.reader.do("outcome", transfer) == ("succeeded", None)
    assert found(pair) == (pair.data["into"][OFFSET:OFFSET + LENGTH], True)
    pair.reader.do("let_go")
    pair.reader.do("synchronize")
    assert pair.reader.do("look", "into", OFFSET, LENGTH) == b"\x5a" * LENGTH


def test_a_read_waits_for_what_the_stream_still_does_with_its_target(pair):
    """What the stream writes there is overwritten, and not the other way round."""
    pair.reader.do("hold")
    pair.reader.do("fill_later", "into", OFFSET, 0x5a, LENGTH)
    pair.reader.do("signal", "free")
    transfer = pair.reader.do("move_behind", "free", "read", "into", "b/owner/out", ranges=[(0, 0, 0, 0, LENGTH)])
    pair.reader.do("let_go")
    assert pair.reader.do("outcome", transfer) == ("succeeded", None)
    assert pair.reader.do("look", "into", OFFSET, LENGTH) == pair.data["out"][OFFSET:OFFSET + LENGTH]


def test_many_rounds_in_which_nobody_synchronises(pair):
    for count in (1, 2, 50):
        assert pair.reader.do("rounds", count, "into", "b/owner/out", seconds=60) == ["succeeded"] * count
        assert found(pair) == (bytes([(count - 1) % 251]) * LENGTH, True)


def test_a_stream_that_never_gets_there_is_waited_for_until_the_deadline(pair):
    pair.reader.do("hold")
    pair.reader.do("signal", "never")
    start = time.monotonic()
    transfer = write(pair, "never", deadline=2)  # in which the peer is asked, too
    assert pair.reader.do("outcome", transfer) == ("expired", "deadline_exceeded")
    assert 1.9 < time.monotonic() - start < 7
    assert found(pair) == (pair.data["out"][OFFSET:OFFSET + LENGTH], True)
    pair.reader.do("let_go")


def test_the_death_of_the_owner_ends_the_wait(pair, start_gpu_workload):
    pair.reader.do("hold")
    pair.reader.do("fill_later", "into", OFFSET, 0x5a, LENGTH)
    pair.reader.do("signal", "never")
    write(pair, "never", deadline=60)
    pair.reader.kill()
    wait_for(lambda: pair.a.ask("GET", "/v1/workloads/reader")[0] == 404, 5, "the workload to end")
    assert found(pair) == (pair.data["out"][OFFSET:OFFSET + LENGTH], True)
    # Another life of it goes on with counters of its own.
    pair.reader = start_gpu_workload(pair.a, "reader", 0, commands=FenceCommands)
    pair.reader.do("allocate", "into", SIZE)
    pair.reader.do("register_gpu", "into", ("into", OFFSET, LENGTH))
    assert pair.reader.do("rounds", 3, "into", "b/owner/out") == ["succeeded"] * 3
    assert found(pair) == (b"\x02" * LENGTH, True)


def test_a_timeline_that_nobody_has_any_more_does_not_break_the_streams_that_signal(pair):
    pair.reader.do("hold")
    pair.reader.do("fill_later", "into", OFFSET, 0x5a, LENGTH)
    pair.reader.do("signal", "late")
    pair.reader.do("end_timeline")
    pair.reader.do("let_go")
    pair.reader.do("synchronize")  # a write to what is unpinned would be an error from here on
    assert pair.reader.do("look", "into", OFFSET, LENGTH) == b"\x5a" * LENGTH


def test_a_transfer_that_waits_goes_on_when_its_timeline_ends(pair):
    pair.reader.do("hold")
    pair.reader.do("fill_later", "into", OFFSET, 0x5a, LENGTH)
    pair.reader.do("signal", "late")
    transfer = write(pair, "late")
    pair.reader.do("end_timeline_under")
    assert pair.reader.do("state", transfer) == "queued"
    pair.reader.do("let_go")
    assert pair.reader.do("outcome", transfer) == ("succeeded", None)
    assert found(pair) == (b"\x5a" * LENGTH, True)


def test_streams_are_taken_as_frameworks_have_them(pair):
    fences = [pair.reader.do("signal_as", kind) for kind in ("number", "torch", "protocol")]
    assert [value for _, value in fences] == [1, 2, 3]
    assert len({offset for offset, _ in fences}) == 1
    for wrong in (None, "a text", -1, 2**64):
        with pytest.raises(gantry.Error) as error:
            pair.reader.do("signal_wrongly", wrong)
        assert (error.value.code, error.value.field) == ("invalid_argument", "stream"), wrong


@pytest.mark.parametrize("how", ["torch", "cupy", "cuda.core"])
def test_a_stream_that_says_that_it_is_of_another_gpu_is_refused(pair, how):
    assert pair.reader.do("signal_described", how, 0) == 1
    assert pair.reader.do("signal_described", how, -1) == 2  # of the one that is current
    with pytest.raises(gantry.Error) as error:
        pair.reader.do("signal_described", how, 1)
    assert (error.value.code, error.value.field) == ("invalid_argument", "stream")
    assert "GPU 1" in error.value.message and "GPU 0" in error.value.message


def test_an_arena_is_unpinned_before_its_memory_goes(pair):
    assert pair.reader.do("pin_and_drop") == (True, False)


class TorchCommands(_Commands):
    """A workload of PyTorch: kernels on a stream of its own."""

    def fill_behind_a_long_kernel(self, remote):
        import torch

        stream = torch.cuda.Stream()
        tensor = torch.zeros(LENGTH, dtype=torch.uint8, device="cuda:0")
        buffer = self.client.register("tensor", tensor)
        timeline = self.client.timeline(tensor.device)
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(1_000_000_000)  # cycles: half a second and more
            tensor.fill_(0x5a)
        start = time.monotonic()
        fence = timeline.signal(stream)
        transfer = self.client.write(buffer, remote, ranges=[(0, 0, 0, 0, LENGTH)], fence=fence)
        submitted = time.monotonic() - start
        return submitted, transfer.wait(20).state


@pytest.mark.skipif(not REAL or importlib.util.find_spec("torch") is None, reason="needs GPUs (GANTRY_GPU=real) and PyTorch")
def test_kernels_of_pytorch(pair, start_gpu_workload):
    torchs = start_gpu_workload(pair.a, "torch", commands=TorchCommands)
    submitted, state = torchs.do("fill_behind_a_long_kernel", "b/owner/out", seconds=120)
    assert state == "succeeded" and submitted < 0.3
    assert found(pair) == (b"\x5a" * LENGTH, True)


USES_THE_GPU = {"nvidia": """
context, stream = ctypes.c_void_p(), ctypes.c_void_p()
assert library.cuInit(0) == library.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert library.cuCtxPushCurrent_v2(context) == library.cuStreamCreate(ctypes.byref(stream), 1) == 0
reset = lambda: library.cuDevicePrimaryCtxReset_v2(0)
""", "amd": """
stream = ctypes.c_void_p()
assert library.hipInit(0) == library.hipSetDevice(0) == library.hipStreamCreateWithFlags(ctypes.byref(stream), 1) == 0
reset = library.hipDeviceReset
"""}


def run_script(run_dir, body, uses_gpu=True):
    """Another Python process, with a client; what it prints, once it has ended as it should."""
    opening = f"import ctypes, sys\nsys.path.insert(0, {str(Path(gantry.__file__).parents[1])!r})\nimport gantry\n"
    beginning = f"library = ctypes.CDLL({driver_library()!r})\n{USES_THE_GPU[vendor()]}" if uses_gpu else ""
    script = opening + beginning + f"client = gantry.Client({str(run_dir)!r}, 'w')\n" + textwrap.dedent(body)
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, ""), ended
    return ended.stdout


def test_a_process_ends_with_pins_and_signals_on_their_way(gpus, sidecar):
    assert run_script(sidecar.run_dir, """
        arena, timeline = client.arena(1 << 20), client.timeline(0)
        arena.pin(0)
        view = arena.view(0, 10)
        for _ in range(100):
            fence = timeline.signal(stream.value)
        print("end")
    """) == "end\n"


def test_a_process_ends_whose_context_was_reset(gpus, sidecar):
    assert run_script(sidecar.run_dir, """
        arena, timeline = client.arena(1 << 20), client.timeline(0)
        arena.pin(0)
        assert reset() == 0
        arena.close()
        print("end")
    """) == "end\n"


@pytest.mark.skipif(REAL, reason="only the fake can be made to lack something")
@pytest.mark.parametrize("lacks, rocm", [("cuStreamWriteValue64=500", "6"),  # which has no ids of streams
                                         ("can_use_64_bit_stream_mem_ops=1,lack_stream_writes=1", "7")], ids=["call", "device"])
def test_where_streams_cannot_write_the_error_says_what_to_do(gpus, sidecar, monkeypatch, lacks, rocm):
    monkeypatch.setenv("GANTRY_FAKE_ROCM", rocm)
    monkeypatch.setenv("GANTRY_FAKE_GPU_FAIL", lacks)
    assert run_script(sidecar.run_dir, """
        try:
            client.timeline(0)
        except gantry.Error as error:
            print(error.code, "synchronise" in error.hint)
        client.timeline().signal()
    """) == "path_unavailable True\n"


@pytest.mark.skipif(REAL, reason="only the fake can be made to fail")
def test_an_arena_that_the_driver_does_not_let_go_of_stays_mapped(gpus, sidecar, monkeypatch):
    monkeypatch.setenv("GANTRY_FAKE_GPU_FAIL", "cuMemHostUnregister=999,hipHostUnregister=999")
    assert run_script(sidecar.run_dir, """
        import gc
        mappings = lambda: open("/proc/self/maps").read().count("memfd:gantry-arena")

        def make(client):
            arena = client.arena(1 << 20)
            before = mappings()
            arena.pin(0)
            return arena, before + 1  # the fake's device has one of its own

        closed, pinned = make(client)
        for call in (closed.unpin, closed.close):
            try:
                call()
            except gantry.Error as error:
                print(error.code, closed.closed, mappings() == pinned)
        del closed
        gc.collect()
        print(mappings() == pinned)
        collected, pinned = make(client)
        collected.cycle = collected
        del collected
        gc.collect()
        print(mappings() == pinned)
    """) == "device_error False True\n" * 2 + "True\n" * 2


def test_a_process_without_a_gpu_is_told(gpus, sidecar):
    assert run_script(sidecar.run_dir, """
        for call in (client.timeline, client.arena(4096).pin):
            try:
                call(0)
            except gantry.Error as error:
                print(error.code, error.field)
    """, uses_gpu=False) == "path_unavailable device\n" * 2
