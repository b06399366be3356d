"""Memory of AMD GPUs between workloads of two sidecars, over the fakes of three releases of ROCm: one before dma-bufs, whose
memory is shared by handles within a pod, and two by dma-bufs, in which small allocations lie side by side."""

import os

import pytest

from gpu_workloads import REAL, GpuCommands, GpuPair, driver_library, gpus, start_gpu_workload
from test_namespaces import WHY_NOT, Isolated, containers
from test_peers_over_tcp import TCP
from workloads import MiB, gantry, wait_for, workers_of

pytestmark = pytest.mark.skipif(REAL, reason="of the fakes")
RELEASES = (5, 6, 7)
KiB = 1 << 10


class AmdCommands(GpuCommands):
    def verify(self, allocation, length):
        """The code of the error, or none."""
        try:
            self.client.register_many([self._gpu_spec(self.allocations[allocation], allocation, 0, length)], verify=True)
        except gantry.Error as error:
            return error.code
        return None

    def last_error(self):
        return self.driver.last_error()


@pytest.fixture(params=RELEASES, ids=[f"rocm{release}" for release in RELEASES])
def rocm(request, gpus, monkeypatch):
    monkeypatch.setenv("GANTRY_GPU_VENDOR", "amd")
    monkeypatch.setenv("GANTRY_FAKE_ROCM", str(request.param))
    monkeypatch.setenv("LD_LIBRARY_PATH", os.path.dirname(driver_library()))
    return request.param


@pytest.fixture
def start_amd(rocm, start_gpu_workload):
    def start(sidecar, name, ordinal):
        workload = start_gpu_workload(sidecar, name, ordinal, AmdCommands)
        workload.do("allocate", "before", 5000)  # so that what follows does not begin where a dma-buf does
        return workload
    return start


@pytest.mark.parametrize("ordinals", [(0, 1), (0, 0)], ids=["two-gpus", "one-gpu"])
@pytest.mark.parametrize("size, offset, length", [(8 * MiB, 3 * MiB + 512, MiB), (20 * KiB, 512, 8 * KiB)],
                         ids=["large", "small"])
def test_exactly_the_bytes_of_the_buffers_move(rocm, start_sidecar, start_amd, ordinals, size, offset, length):
    pair = GpuPair(start_sidecar, start_amd, ordinals, offset, length, size=size, flags=TCP)
    path = "ipc" if rocm > 5 else "tcp"  # handles stay within a pod
    for operation in ("read", "write"):
        status, view = pair.move(operation)
        assert (status, view["state"], view["path"]) == (200, "succeeded", path), view
        pair.check(operation)
    assert (pair.reader.do("last_error"), pair.owner.do("last_error")) == (0, 0)


def test_two_views_of_one_allocation_are_one(rocm, start_sidecar, start_amd):
    pair = GpuPair(start_sidecar, start_amd)
    before = pair.b.ask("GET", "/v1/status")[1]["totals"]["allocations"]
    pair.owner.do("register_gpu", "out", ("second", 5 * MiB, MiB))
    assert pair.b.ask("GET", "/v1/status")[1]["totals"]["allocations"] == before


def test_wrong_memory_that_an_attach_maps_is_noticed(rocm, start_sidecar, start_amd, monkeypatch):
    for failures, code in (("", None), ("attaches_are_wrong=1", "verification_failed")):
        monkeypatch.setenv("GANTRY_FAKE_GPU_FAIL", failures)
        sidecar = start_sidecar(f"a{len(failures)}", workers=2)
        workload = start_amd(sidecar, "reader", 0)
        workload.do("allocate", "into", MiB)
        workload.do("fill", "into", 0, os.urandom(MiB))
        assert workload.do("verify", "into", MiB) == code


@pytest.mark.parametrize("rocm", RELEASES[-1:], indirect=True)
def test_an_attach_that_never_returns_ends_with_its_worker(rocm, start_sidecar, start_amd, monkeypatch):
    monkeypatch.setenv("GANTRY_FAKE_GPU_FAIL", "hipImportExternalMemory=-2")
    sidecar = start_sidecar("a", workers=2)
    workload = start_amd(sidecar, "reader", 0)
    workload.do("allocate", "into", MiB)
    stuck = set(workers_of(sidecar))
    assert workload.do("verify", "into", MiB) == "deadline_exceeded"
    workload.do("allocate_host", "there", MiB)
    # The other one was not asked behind it.
    wait_for(lambda: len(workers_of(sidecar)) == 2 and not stuck <= set(workers_of(sidecar)), 45, "a worker in its place")
    workload.do("register_host", "there", "there", 0, MiB)


def test_without_a_dma_buf_memory_is_shared_by_its_handle(rocm, start_sidecar, start_amd, monkeypatch):
    sidecar = start_sidecar("a", workers=2)
    monkeypatch.setenv("GANTRY_FAKE_GPU_FAIL", "hsa_amd_portable_export_dmabuf=4096")
    workload = start_amd(sidecar, "reader", 0)
    workload.do("allocate", "into", MiB)
    assert workload.do("verify", "into", MiB) is None
    assert workload.do("last_error") == 0


@pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "-")
@pytest.mark.parametrize("rocm", RELEASES[-1:], indirect=True)
@pytest.mark.parametrize("legacy", ["0", "1"], ids=["over-sockets", "of-the-kernel"])
def test_between_network_namespaces(rocm, containers, monkeypatch, legacy):
    """Descriptors arrive whatever the runtime's handles do; those that are asked for over a socket do not."""
    monkeypatch.setenv("HSA_ENABLE_IPC_MODE_LEGACY", legacy)
    by_descriptors = containers(Isolated, 0, 1)
    by_descriptors.register()
    assert [by_descriptors.move(operation) for operation in ("read", "write")] == ["ipc", "ipc"]


@pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "-")
@pytest.mark.parametrize("rocm", RELEASES[:1], indirect=True)
def test_a_handle_that_its_own_sidecar_does_not_reach(rocm, containers, monkeypatch):
    """Over a socket, where the two share no network: refused with the reason, at once."""
    monkeypatch.setenv("HSA_ENABLE_IPC_MODE_LEGACY", "0")
    with pytest.raises(gantry.Error) as caught:
        containers(Isolated, 0, 1).register()
    assert caught.value.code == "device_error" and "another pod" in str(caught.value), caught.value
