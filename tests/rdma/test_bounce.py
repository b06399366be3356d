"""GPU memory that the RDMA devices do not take, as soft-RoCE takes no dma-bufs: by RDMA nevertheless, through staging memory.

The tests are those of such memory over tcp. The GPUs are the fake driver's.
"""

import pytest

from rdma_scene import MiB, assert_moved, folder, metric, needs_guest, reasons, resources, start_sidecar, wait_for
from gpu_workloads import gpus, start_gpu_workload
from test_gpu_over_tcp import (LENGTH, THEIRS, GpuMemory, HostMemory, Sides, sides_of, slices_of,  # noqa: F401
                               test_a_byte_at_every_kind_of_place, test_host_and_gpu_memory_in_one_transfer,
                               test_many_transfers_with_little_staging, test_more_bytes_than_the_staging_has,
                               test_pieces_of_virtual_memory)
from test_gpu_over_tcp_ends import (test_a_sidecar_that_is_killed, test_a_target_that_is_unregistered,  # noqa: F401
                                    test_workers_that_die, test_workers_that_stand_still)

pytestmark = needs_guest
IDLE_SECONDS = 5  # then what was lent is given back


class BouncingSides(Sides):
    path = "bounce"

    def nothing_is_staged(self, seconds=IDLE_SECONDS + 5):
        super().nothing_is_staged(seconds)


@pytest.fixture
def start_sides(gpus, start_sidecar, start_gpu_workload):
    yield from sides_of(BouncingSides, start_sidecar, start_gpu_workload)
