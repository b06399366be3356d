"""Two sidecars under load, scraped by a real Prometheus: a reads from b by shm, b reads from a by tcp.

They do so with memory of the fake driver's GPUs, too: by ipc, and staged. Some requests are refused, some are late, a buffer is
registered anew again and again, messages go both ways, and a peer is not there. Beside them a device plugin serves pods that come
and go, and one of the pods has the numbers of a vLLM server.
"""

import os
import random
import re
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path

from prometheus_server import SCRAPE_SECONDS, Prometheus
from replayed_metrics import Replay
from vllm_records import vllm_records

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "end_to_end"))
from conftest import SidecarProcess  # noqa: E402
from gpu_workloads import GpuCommands, driver_library  # noqa: E402
from test_notifications import Reader, notify  # noqa: E402
from test_peers_over_tcp import TCP, meet  # noqa: E402
from plugin_process import PluginProcess  # noqa: E402
from workloads import Memory, MiB, WorkloadProcess, connect, submit, wait_for  # noqa: E402

SIZE = 64 * MiB
GPU_SIZE = 16 * MiB
FLAGS = [*TCP, "--metrics-listen", "127.0.0.1:0", "--no-rdma", "--log-level", "info"]
RENEWED = ("renewed", 0, MiB)
PODS = {"a": ("chat", "prefill-0"), "b": ("chat", "decode-0")}
VLLM_RECORDS = 1200  # ten minutes of scrapes, longer than any load
PLUGIN_POD = ("gantry-system", "gantry-device-plugin-x7k2p")


class MonitoredScene:
    def __init__(self, seed=1):
        self.folder = Path(tempfile.mkdtemp(prefix="gantry-", dir="/tmp"))
        self._to_close, self._threads, self._stopped = [], [], threading.Event()
        self._errors = []
        self._seed = seed
        try:
            self._fake_gpus()
            self.prometheus = Prometheus(self.folder)
            self._to_close.append(self.prometheus.close)
            self._plugin()
            self._vllm()
            self.a, self.b = (self._sidecar(name) for name in PODS)
            self._memories = [self._memory() for _ in PODS]
            self._workload(self.a, "prefill", self._memories[0], gpu=0)
            self._decode = self._workload(self.b, "decode", self._memories[1], gpu=1)
            self._readers = [Reader(self.a, "prefill"), Reader(self.b, "decode")]
            connect(self.a, self.b)
            assert meet(self.b, self.a)["state"] == "up"
            self.b.ask("PUT", "/v1/peers/gone", {"address": "127.0.0.1:1"})
        except BaseException:
            self.close()
            raise

    def load(self, seconds):
        """Runs the load; fails when something of it did not end as it has to."""
        self.begin_load()
        self._stopped.wait(seconds)
        self.end_load()

    def begin_load(self):
        self._threads = [threading.Thread(target=self._repeat, args=(what, pause), daemon=True) for what, pause in (
            (self._read_by_shm, 0.02), (self._read_by_shm, 0.05), (self._read_by_tcp, 0.02), (self._read_gpus_by_ipc, 0.1),
            (self._read_gpus_by_tcp, 0.2), (self._refused, 0.5), (self._late, 1.0), (self._renewed, 1.0), (self._messages, 0.1))]
        self._began = time.time()
        for thread in self._threads:
            thread.start()

    def end_load(self):
        """Fails when something of the load did not end as it has to."""
        self._stopped.set()
        for thread in self._threads:
            thread.join(30)
        if self._errors:
            raise self._errors[0]

    def values(self, expression):
        """All that Prometheus has answered since the load began: a scrape that came late hides nothing."""
        curves = self.prometheus.curves(expression, self._began, time.time(), SCRAPE_SECONDS)
        return [value for _, curve in curves for _, value in curve]

    def close(self):
        self._stopped.set()
        for close in reversed(self._to_close):
            close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _fake_gpus(self):
        """For every process that is started from here on."""
        (self.folder / "gpus").mkdir()
        for name, value in (("GANTRY_FAKE_GPU_DIR", str(self.folder / "gpus")),
                            ("LD_LIBRARY_PATH", f"{Path(driver_library()).parent}:{os.environ.get('LD_LIBRARY_PATH', '')}")):
            before = os.environ.get(name)
            self._to_close.append(lambda name=name, before=before: os.environ.pop(name) if before is None
                                  else os.environ.update({name: before}))
            os.environ[name] = value

    def _plugin(self):
        plugin = PluginProcess(self.folder)
        self._to_close.append(plugin.close)
        self.prometheus.add_target(plugin.address, *PLUGIN_POD)

    def _vllm(self):
        replay = Replay(vllm_records(VLLM_RECORDS), SCRAPE_SECONDS)
        self._to_close.append(replay.close)
        self.prometheus.add_target(replay.address, *PODS["b"])

    def _sidecar(self, name):
        sidecar = SidecarProcess(name, self.folder, workers=2, flags=FLAGS)
        self._to_close.append(sidecar.kill)
        sidecar.start()
        port = wait_for(lambda: re.search('"metrics are served".*?"port":"?(\\d+)', sidecar.log), 10, "the port of the metrics")[1]
        self.prometheus.add_target(f"127.0.0.1:{port}", *PODS[name])
        return sidecar

    def _memory(self):
        memory = Memory(2 * SIZE, filled=True)
        self._to_close.append(memory.close)
        return memory

    def _workload(self, sidecar, name, memory, gpu):
        workload = WorkloadProcess(sidecar, name, GpuCommands)
        self._to_close.append(workload.kill)
        workload.register(memory, ("kv", 0, SIZE), ("private", SIZE, MiB, ()), ("into", SIZE, SIZE), RENEWED)
        workload.do("use_gpu", gpu)
        workload.do("allocate", "gpu", 2 * GPU_SIZE)
        workload.do("register_gpu", "gpu", ("gpu-kv", 0, GPU_SIZE), ("gpu-into", GPU_SIZE, GPU_SIZE))
        return workload

    def _repeat(self, what, pause):
        chance = random.Random(self._seed)
        while not self._stopped.wait(pause * chance.uniform(0.2, 1.8)):
            try:
                what(chance)
            except BaseException as error:  # told by load()
                self._errors.append(error)
                self._stopped.set()

    def _read_by_shm(self, chance):
        self._read(self.a, "prefill", "b/decode/kv", "shm", chance)

    def _read_by_tcp(self, chance):
        self._read(self.b, "decode", "a/prefill/kv", "tcp", chance)

    def _read_gpus_by_ipc(self, chance):
        self._read(self.a, "prefill", "b/decode/gpu-kv", "ipc", chance, "gpu-into", GPU_SIZE // MiB)

    def _read_gpus_by_tcp(self, chance):
        self._read(self.b, "decode", "a/prefill/gpu-kv", "tcp", chance, "gpu-into", GPU_SIZE // MiB)

    def _renewed(self, chance):
        """The other side's description of it is an old one then."""
        self._decode.do("unregister", RENEWED[0])
        self._decode.register(self._memories[1], RENEWED)
        status, view = submit(self.a, "prefill", "read", "into", f"b/decode/{RENEWED[0]}", MiB, wait_ms=20_000)
        assert (status, view["state"]) == (200, "succeeded"), view

    def _read(self, sidecar, workload, remote, path, chance, local="into", megabytes_max=48):
        # More at some times than at others, so that curves have a shape.
        megabytes = chance.randint(1, 8 if int(time.time()) // 20 % 2 else megabytes_max)
        status, view = submit(sidecar, workload, "read", local, remote, megabytes * MiB, wait_ms=20_000)
        assert status == 200 and (view["state"], view["path"]) == ("succeeded", path), view

    def _refused(self, chance):
        remote, length, code = chance.choice([("b/decode/private", MiB, "permission_denied"), ("b/decode/none", MiB, "unregistered"),
                                              ("b/decode/kv", SIZE + MiB, "out_of_range")])
        status, problem = submit(self.a, "prefill", "read", "into", remote, length, wait_ms=5000)
        assert status >= 400 or problem["state"] == "failed", (remote, problem)
        assert (problem.get("code") or problem["error"]["code"]) == code, problem

    def _late(self, chance):
        status, view = submit(self.b, "decode", "read", "into", "a/prefill/kv", SIZE, wait_ms=5000, deadline_ms=1)
        assert status in (200, 202) or view["code"] == "deadline_exceeded", view

    def _messages(self, chance):
        notify(self.a, "prefill", "decode", b"ready", peer="b")
        notify(self.b, "decode", "prefill", b"done", peer="a")
        for reader in self._readers:  # or else their inboxes are full after a thousand of them
            reader.poll()
