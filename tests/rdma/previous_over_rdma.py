"""A sidecar of the version before beside one of this, over RDMA: either of them moves the bytes.

GANTRY_PREVIOUS_BIN_DIR names the folder of its programs; "make test-previous" runs this, and no other tier does.
"""

import pytest

from rdma_scene import MiB, RdmaScene, SLOW, folder, new_memory, resources, start_sidecar, start_workload
from previous_version import start_before  # after rdma_scene, which knows where it is

SIZE = 4 * MiB
SMALL = ["--rdma-chunk-bytes", "262144"]  # many keys of the owner's, of the mover's one


@pytest.fixture(params=["a", "b"], ids=["the mover", "the owner"])
def make_scene(request, start_sidecar, start_workload, new_memory):
    """make_scene(size=…): an RdmaScene, one of whose sidecars is of the version before."""
    def start(name, **options):
        return start_before(start_sidecar, name, **options) if name == request.param else start_sidecar(name, **options)

    return lambda **options: RdmaScene(start, start_workload, new_memory, **options)


def test_bytes_move_and_buffers_are_taken_back(make_scene):
    scene = make_scene(size=SIZE, over_tcp=True, b_flags=SMALL)
    for operation in ("read", "write"):
        scene.everything_works(operation)
    scene.owner.do("unregister", "kv")
    status, problem = scene.move()
    assert status in (404, 409, 410), (status, problem)
    assert resources()["mr"] == 1  # the mover's
    scene.owner.register(scene.source, ("kv", 0, SIZE))
    scene.everything_works()


def test_an_owner_that_is_killed_in_the_middle_is_told_as_lost_and_returns(make_scene):
    scene = make_scene(size=2 * SIZE, a_flags=SLOW)
    scene.lose_the_owner()
    for operation in ("read", "write"):
        scene.everything_works(operation)
