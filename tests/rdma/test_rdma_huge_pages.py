"""Memory of huge pages on RDMA devices, registered at seams that lie within a page of it."""

import re
from pathlib import Path

import pytest

from rdma_scene import (DEVICE, IN_GUEST, MiB, assert_moved, folder, metric, new_memory, rdma_scene, start_sidecar, start_workload,
                        transfer)

PAGES = Path("/proc/sys/vm/nr_hugepages")
CHUNK = 768 * 1024


def of_meminfo(name):
    found = re.search(rf"^{name}:\s+(\d+)", Path("/proc/meminfo").read_text(), re.MULTILINE)
    return int(found.group(1)) if found else 0


@pytest.fixture
def huge_page():
    """The size of a huge page, of which eight are free. Before the sidecars in a test's arguments: it ends after them."""
    size, before = of_meminfo("Hugepagesize") << 10, of_meminfo("HugePages_Total")
    if IN_GUEST:
        PAGES.write_text("8")
    try:
        if of_meminfo("HugePages_Free") < 8:
            pytest.skip(f"no 8 huge pages are free: set {PAGES}, which has {before}")
        yield size
    finally:
        if IN_GUEST:
            PAGES.write_text(str(before))


def test_every_byte_of_huge_pages_moves_both_ways(huge_page, rdma_scene):
    size = 4 * huge_page
    flags = ["--rdma-chunk-bytes", str(CHUNK)]
    scene = rdma_scene(size=size, huge=True, a_flags=flags, b_flags=flags)
    assert of_meminfo("HugePages_Free") == 0, "both buffers are of huge pages"
    if IN_GUEST:
        assert metric(scene.b, f'gantry_chunks{{device="{DEVICE}"}}') == -(-size // CHUNK)
    for operation in ("read", "write"):
        scene.everything_works(operation)
    # From the end of one page to the beginning of the next, at odd places, and nothing beside them.
    scene.target.clear()
    begin, length = huge_page - MiB - 3, 2 * MiB + 5
    assert_moved(transfer(scene.a, "read", "kv", "b/owner/kv", [[0, begin, 0, begin + 1027, length]]))
    assert scene.target.map[begin:begin + length] == scene.source.map[begin + 1027:begin + 1027 + length]
    assert not any(scene.target.map[:begin]) and not any(scene.target.map[begin + length:])
