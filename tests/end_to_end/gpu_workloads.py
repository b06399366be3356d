"""Workloads with memory on GPUs: processes that allocate through the driver, and sidecars whose workers find it.

The driver is a fake that keeps GPU memory in files, NVIDIA's or AMD's as the fixture `gpus` says, unless GANTRY_GPU=real: then
the machine's own, of the vendor GANTRY_GPU_VENDOR.
"""

import base64
import contextlib
import ctypes
import os
import random
import shutil
import signal
import subprocess
import threading
from concurrent import futures
from pathlib import Path

import pytest

from conftest import short_folder
from gpu_driver import Driver, Tensor
from workloads import LIB_DIR, MiB, WorkloadProcess, _Commands, connect, gantry, submit, wait_for, workers_of

REAL = os.environ.get("GANTRY_GPU") == "real"
GPU_BYTES = 8 * MiB  # of an allocation, unless a test says otherwise
# What a process sees, by number; of the vendors' drivers and of the fakes.
VISIBLE = {"nvidia": "CUDA_VISIBLE_DEVICES", "amd": "HIP_VISIBLE_DEVICES"}


def vendor():
    """Of the GPUs that a process has which is started now."""
    return os.environ.get("GANTRY_GPU_VENDOR", "nvidia")


def driver_library():
    if not REAL:  # beside the client: also when the sidecars are built otherwise
        rocm = os.environ.get("GANTRY_FAKE_ROCM", "7")
        return str(LIB_DIR.parent / {"nvidia": "fake_gpu/libcuda.so.1",
                                     "amd": f"fake_gpu_amd/rocm{rocm}/libamdhip64.so.{rocm}"}[vendor()])
    return "libcuda.so.1" if vendor() == "nvidia" else _installed_hip()


def _installed_hip():
    """The newest that the loader finds, as the sidecar does."""
    for library in (f"libamdhip64.so{version}" for version in (".7", ".6", ".5", "")):
        try:
            ctypes.CDLL(library)
            return library
        except OSError:
            continue
    raise AssertionError("no libamdhip64 is installed")


def gpu_count():
    if not REAL:
        return 2
    if vendor() == "amd":  # of what the kernel lists, processors have no such number
        return sum(path.read_text().strip() != "0" for path in Path("/sys/class/kfd/kfd/topology/nodes").glob("*/gpu_id"))
    return len(subprocess.check_output(["nvidia-smi", "-L"]).splitlines())


class GpuCommands(_Commands):
    """The workload's side of the pipe; `ordinal` of its GPU comes with the first command about memory."""

    def __init__(self, run_dir, name):
        super().__init__(run_dir, name)
        self.driver, self.allocations = None, {}

    def use_gpu(self, ordinal):
        self.driver = Driver(ordinal, driver_library())

    def allocate(self, name, size):
        self.allocations[name] = self.driver.allocate(size)
        return self.allocations[name]

    def free(self, name):
        self.driver.free(self.allocations.pop(name))

    def allocate_at(self, name, size, address, attempts):
        """Where other memory was before; what the driver gives elsewhere is kept meanwhile. Whether it gave that address."""
        elsewhere = []
        while len(elsewhere) < attempts:
            given = self.driver.allocate(size)
            if given == address:
                self.allocations[name] = given
                break
            elsewhere.append(given)
        for given in elsewhere:
            self.driver.free(given)
        return name in self.allocations

    def fill(self, name, offset, data):
        self.driver.write(self.allocations[name] + offset, data)

    def look(self, name, offset, size):
        return self.driver.read(self.allocations[name] + offset, size)

    def fill_from(self, name, path):
        """All of it, of a file: through the pipe, megabytes take long where the processors are busy."""
        self.driver.write(self.allocations[name], Path(path).read_bytes())

    def look_into(self, name, size, path):
        Path(path).write_bytes(self.driver.read(self.allocations[name], size))

    def register_gpu(self, allocation, *specs):
        """(name, offset, length[, access[, block_bytes]]) in one allocation. The buffers' generations."""
        base = self.allocations[allocation]
        made = self.client.register_many([self._gpu_spec(base, *spec) for spec in specs])
        self.buffers |= {buffer.name: buffer for buffer in made}
        return [buffer.generation for buffer in made]

    def register_gpu_at_once(self, allocation, specs):
        """Each by a thread of its own; none begins before all are there."""
        barrier = threading.Barrier(len(specs))
        base = self.allocations[allocation]

        def register(spec):
            barrier.wait()
            return self.client.register_many([self._gpu_spec(base, *spec)])[0]

        with futures.ThreadPoolExecutor(len(specs)) as threads:
            self.buffers |= {buffer.name: buffer for buffer in threads.map(register, specs)}

    def _gpu_spec(self, base, name, offset, length, access=("remote_read", "remote_write"), block_bytes=0):
        layout = gantry.Layout(block_bytes) if block_bytes else None
        return gantry.BufferSpec(name, Tensor(base + offset, length), access, layout)

    def allocate_host(self, name, size):
        self.arenas[name] = self.client.arena(size)

    def fill_host(self, name, data):
        self.arenas[name].view(0, len(data))[:] = data

    def look_host(self, name, size):
        return bytes(self.arenas[name].view(0, size))

    def register_host(self, arena, *spec):
        """(name, offset, length[, access[, block_bytes]]) of an arena."""
        self.buffers[spec[0]] = self.client.register_many([self._spec(self.arenas[arena], *spec)])[0]

    def device_uuid(self):
        return self.driver.uuid()

    def free_bytes(self):
        return self.driver.free_bytes()

    def ipc_handle(self, allocation):
        return base64.b64encode(self.driver.handle(self.allocations[allocation])).decode()


class GpuPair:
    """Workload "reader" of a on the first GPU holds `into`, "owner" of b on another `out`: both inside of larger allocations."""

    def __init__(self, start_sidecar, start_gpu_workload, ordinals=(0, 1), offset=3 * MiB + 512, length=MiB, block_bytes=4096,
                 size=GPU_BYTES, flags=()):
        self.a, self.b = (start_sidecar(name, workers=2, flags=flags) for name in "ab")
        self.size = size
        connect(self.a, self.b)
        self.reader = start_gpu_workload(self.a, "reader", ordinals[0])
        self.owner = start_gpu_workload(self.b, "owner", min(ordinals[1], gpu_count() - 1))
        self.offset, self.length = offset, length
        self.data = {}
        for workload, name in ((self.reader, "into"), (self.owner, "out")):
            workload.do("allocate", name, size)
            self.data[name] = os.urandom(size)
            workload.do("fill", name, 0, self.data[name])
            workload.do("register_gpu", name, (name, offset, length, ("remote_read", "remote_write"), block_bytes))

    def move(self, operation, **fields):
        return submit(self.a, "reader", operation, "into", "b/owner/out", self.length, 20_000, **fields)

    def check(self, operation):
        """The one buffer holds the other's bytes, and everything around both is as it was."""
        source, target = ("out", "into") if operation == "read" else ("into", "out")
        expected = bytearray(self.data[target])
        expected[self.offset:self.offset + self.length] = self.data[source][self.offset:self.offset + self.length]
        holders = {"into": self.reader, "out": self.owner}
        assert holders[target].do("look", target, 0, self.size) == bytes(expected)
        assert holders[source].do("look", source, 0, self.size) == self.data[source]
        self.data[target] = bytes(expected)


@contextlib.contextmanager
def dying_workers(sidecar, seed):
    """Kills one of the sidecar's copy workers again and again; both are back afterwards."""
    pauses, stop = random.Random(seed), threading.Event()

    def kill():
        while not stop.wait(pauses.uniform(0.05, 0.3)):
            for pid in workers_of(sidecar)[:1]:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass  # it was being replaced

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        yield
    finally:
        stop.set()
        killer.join()
    wait_for(lambda: len(workers_of(sidecar)) == 2, 20, "both workers")


@pytest.fixture
def gpus(request, monkeypatch):
    """Two GPUs, seen by every process that a test starts from here on."""
    wanted = getattr(request, "param", "nvidia")
    if REAL:
        if hasattr(request, "param") and wanted != vendor():
            pytest.skip("the machine's GPUs are of another vendor")
        yield
        return
    monkeypatch.setenv("GANTRY_GPU_VENDOR", wanted)
    folder = short_folder()
    monkeypatch.setenv("GANTRY_FAKE_GPU_DIR", folder)
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{Path(driver_library()).parent}:{os.environ.get('LD_LIBRARY_PATH', '')}")
    yield Path(folder)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def start_gpu_workload(gpus):
    started = []

    def start(sidecar, name, ordinal=None, commands=GpuCommands):
        """Without an ordinal it uses no GPU."""
        started.append(WorkloadProcess(sidecar, name, commands))
        if ordinal is not None:
            started[-1].do("use_gpu", ordinal)
        return started[-1]

    yield start
    for workload in started:
        workload.kill()
