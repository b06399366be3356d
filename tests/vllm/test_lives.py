"""Names and lives: requests of any id, an engine that comes back under its name, a cache that outlives its sidecar."""

import pytest
from forks import IMPORT_SECONDS
from vllm_servers import wait_for

pytestmark = pytest.mark.timeout(120 + IMPORT_SECONDS)

LOCAL, REMOTE = [0, 1, 2, 3], [5, 2, 9, 40]


@pytest.mark.parametrize("name", ["cmpl-1", "with space/slash?#%25", "Ünïcödé 例", "x" * 512, "x" * 513, "é" * 300])
def test_a_request_has_any_text_as_its_id(workers, name):
    workers.reads_come_back()
    wait_for(lambda: not workers.holds(), "the holds of these reads have ended")
    offer = workers.offer(REMOTE, name)
    (hold,) = workers.holds()
    assert (hold["id"] == name) == (len(name.encode()) <= 512), "operators find a request by its own id"
    workers.begin(offer, LOCAL)
    assert workers.end(offer, LOCAL)
    wait_for(lambda: not workers.holds(), "the hold has ended")


def test_an_engine_that_comes_back_under_its_name_has_promised_nothing(workers):
    """The blocks have the same numbers, and another content."""
    workers.reads_come_back()
    old = workers.offer(REMOTE)
    workers.producer.kill()
    wait_for(lambda: not workers.prefill_sidecar.ask("GET", "/v1/status")[1]["workloads"], "its lease has ended")
    workers.start_producer()
    new = workers.offer(REMOTE)
    workers.begin(old, LOCAL)
    assert not workers.end(old, LOCAL), "the old promise was kept by the new life"
    assert workers.untouched(old, LOCAL)
    workers.begin(new, LOCAL)
    assert workers.end(new, LOCAL)


def test_the_cache_is_mapped_once_however_often_its_sidecar_comes_back(workers):
    workers.reads_come_back()
    assert workers.consumer.mappings() == 1
    for _ in range(2):
        for sidecar in (workers.prefill_sidecar, workers.decode_sidecar):
            sidecar.kill()
            sidecar.start()
        workers.reads_come_back()
        assert (workers.producer.mappings(), workers.consumer.mappings()) == (1, 1)
