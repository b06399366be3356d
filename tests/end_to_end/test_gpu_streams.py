"""`stream=` of the Python client: a transfer waits for the stream, a registration does so before others are told of the memory."""

import threading

import pytest

from gpu_workloads import GpuPair, gpus, start_gpu_workload
from test_gpu_fences import Described, FenceCommands, LENGTH, OFFSET, ProtocolStream, SIZE
from workloads import MiB, gantry, wait_for


class StreamCommands(FenceCommands):
    def _as(self, kind):
        """The held stream, in the forms that `stream=` takes; `bare` says not of which GPU it is."""
        handle, device = self.driver.stream.value, self.driver.device.value
        return {"torch": lambda: Described(cuda_stream=handle, device=Described(index=device)),
                "cupy": lambda: Described(ptr=handle, device_id=device),
                "number": lambda: (device, handle),
                "protocol": lambda: (device, ProtocolStream(handle)),
                "bare": lambda: handle}[kind]()

    def move_after(self, kind, operation, local, remote, **options):
        return self.move(operation, local, remote, 0, stream=self._as(kind), ranges=[(0, 0, 0, 0, LENGTH)], **options)

    def move_after_both(self, operation, local, remote):
        return self.move_after("torch", operation, local, remote, fence=self.timeline.signal(self._as("number")[1]))

    def begin_to_register(self, allocation, kind, how):
        """By a thread of its own."""
        view = self._gpu_spec(self.allocations[allocation], "late", 6 * MiB, MiB)
        options = {"access": view.access, "stream": self._as(kind)}

        def register():
            if how == "one":
                self.made = [self.client.register("late", view.view, **options)]
            elif how == "many":
                self.made = self.client.register_many([view], stream=options["stream"])
            else:
                self.made = self.client.register_layers("late", [view.view], **options)

        self.made = None
        self.registering = threading.Thread(target=register)
        self.registering.start()

    def registered(self, seconds):
        self.registering.join(seconds)
        return [buffer.name for buffer in self.made] if self.made else None

    def wait_for_stream(self, timeout):
        self.timeline.synchronize(self.driver.stream.value, timeout)


@pytest.fixture
def pair(start_sidecar, start_gpu_workload):
    def start(sidecar, name, ordinal=None):
        return start_gpu_workload(sidecar, name, ordinal, commands=StreamCommands)

    made = GpuPair(start_sidecar, start, offset=OFFSET, length=LENGTH, size=SIZE)
    yield made
    for workload in (made.reader, made.owner):
        workload.do("let_go")  # or the driver waits for it when the process ends


@pytest.mark.parametrize("kind", ["torch", "cupy", "number", "protocol"])
def test_a_transfer_moves_what_the_stream_writes_first(pair, kind):
    pair.reader.do("hold")
    pair.reader.do("fill_later", "into", OFFSET, 0xa5, LENGTH)
    transfer = pair.reader.do("move_after", kind, "write", "into", "b/owner/out")
    assert pair.reader.do("state", transfer) in ("queued", "running")
    assert pair.owner.do("look", "out", 0, SIZE) == pair.data["out"], "nothing has moved"
    pair.reader.do("let_go")
    assert pair.reader.do("outcome", transfer) == ("succeeded", None)
    expected = pair.data["out"][:OFFSET] + bytes([0xa5]) * LENGTH + pair.data["out"][OFFSET + LENGTH:]
    assert pair.owner.do("look", "out", 0, SIZE) == expected


@pytest.mark.parametrize("how", ["one", "many", "layers"])
def test_a_registration_waits_for_the_stream(pair, how):
    pair.owner.do("hold")
    pair.owner.do("fill_later", "out", 6 * MiB, 0x5a, MiB)
    pair.owner.do("begin_to_register", "out", "torch", how)
    assert pair.owner.do("registered", 0.3) is None
    status, problem = pair.a.ask("POST", "/v1/transfers", {
        "workload": "reader", "op": "read", "local": ["into"], "remote": ["b/owner/late"], "ranges": [[0, 0, 0, 0, LENGTH]]})
    assert (status, problem["code"]) == (404, "unregistered"), problem
    pair.owner.do("let_go")
    name = wait_for(lambda: pair.owner.do("registered", 1), 20, "the registration")[0]
    assert pair.reader.do("move", "read", "into", f"b/owner/{name}", wait=20, ranges=[(0, 0, 0, 0, LENGTH)]) == ("succeeded", None)
    assert pair.reader.do("look", "into", OFFSET, LENGTH) == bytes([0x5a]) * LENGTH


def test_what_names_no_stream_is_refused(pair):
    for command, arguments in (("move_after", ("bare",)), ("move_after_both", ())):
        with pytest.raises(gantry.Error) as caught:
            pair.reader.do(command, *arguments, "write", "into", "b/owner/out")
        assert caught.value.code == "invalid_argument", caught.value
    assert "a fence or for a stream" in f"{caught.value}"


def test_a_wait_for_a_stream_ends_with_its_time(pair):
    pair.reader.do("hold")
    with pytest.raises(gantry.Error) as caught:
        pair.reader.do("wait_for_stream", 0.4)
    assert caught.value.code == "deadline_exceeded", caught.value
    pair.reader.do("let_go")
    pair.reader.do("wait_for_stream", 20)
