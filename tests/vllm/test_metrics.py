"""What the engines export at /metrics and log about reads."""

import re

import pytest
from backends import BLOCK, ROOT
from prompts import PROMPTS
from vllm_servers import wait_for

pytestmark = pytest.mark.timeout(900)

LAYERS = 6
PATHS = re.search(r"^    Path:\n +type: string\n +enum: \[(.*)\]$", (ROOT / "docs" / "rest_api.yaml").read_text(), re.MULTILINE)[1].split(", ")
BLOCK_BYTES = 32 << 10  # of one layer: 32 tokens, K and V, 4 heads of 32 numbers of 4 bytes
SUMS = ["xfer_time_seconds", "post_time_seconds", "sidecar_time_seconds", "bytes_transferred", "num_blocks", "num_descriptors"]
COUNTS = ["num_failed_transfers", "num_failed_blocks", "num_failed_notifications", "num_kv_expired_reqs", "num_recomputed_reqs",
          "num_recomputed_blocks", "num_reconnects"]


def numbers(engine):
    """Every metric of the connector by its short name; a failure where one is missing."""
    found = {f"{name}{end}": engine.metric(f"vllm:gantry_{name}{end}") for name in SUMS for end in ("_sum", "_count")}
    found |= {name: engine.metric(f"vllm:gantry_{name}_total") for name in COUNTS}
    return found | {f"{name} {path}": engine.metric(f"vllm:gantry_path_{name}_total", f'path="{path}"')
                    for name in ("transfers", "bytes") for path in (*PATHS, "other")}


def difference(after, before):
    """Only what has changed."""
    return {name: after[name] - before[name] for name in after if after[name] != before[name]}


def counted(engine, before, *names):
    """What has changed once these have: the steps of a request tell one after the other."""
    wait_for(lambda: difference(numbers(engine), before).keys() >= set(names), f"{', '.join(names)} are counted")
    return difference(numbers(engine), before)


def test_a_read_is_measured(pair, expected):
    prompt = PROMPTS["measured"]
    before = numbers(pair.decode)
    assert pair.complete(prompt) == expected["measured"]
    told = counted(pair.decode, before, "transfers shm")
    blocks = -(-len(prompt) // BLOCK)
    times = {name: told.pop(f"{name}_sum") for name in ("xfer_time_seconds", "post_time_seconds", "sidecar_time_seconds")}
    assert told == {"bytes_transferred_sum": blocks * LAYERS * BLOCK_BYTES, "bytes shm": blocks * LAYERS * BLOCK_BYTES,
                    "num_blocks_sum": blocks, "num_descriptors_sum": blocks * LAYERS, "transfers shm": 1,
                    **{f"{name}_count": 1 for name in SUMS}}
    assert 0 < times["sidecar_time_seconds"] < times["xfer_time_seconds"] < 60
    assert 0 < times["post_time_seconds"] < times["xfer_time_seconds"]


def test_a_read_that_fails_and_what_is_computed_instead_are_counted(pair, expected):
    def lose_the_hold(params):
        pair.end_holds()
        return params
    pair.end_holds()  # of other cases
    wait_for(lambda: pair.prefill.metric("vllm:kv_cache_usage_perc") == 0, "the prefiller has told their ends")
    before, before_prefill = numbers(pair.decode), numbers(pair.prefill)
    assert pair.complete(PROMPTS["measured failure"], lose_the_hold) == expected["measured failure"]
    blocks = -(-len(PROMPTS["measured failure"]) // BLOCK)
    assert counted(pair.decode, before, "num_failed_transfers", "num_failed_blocks", "num_recomputed_reqs", "num_recomputed_blocks") == {
        "num_failed_transfers": 1, "num_failed_blocks": blocks, "num_recomputed_reqs": 1, "num_recomputed_blocks": blocks}
    assert counted(pair.prefill, before_prefill, "num_kv_expired_reqs") == {"num_kv_expired_reqs": 1}


def test_an_offer_that_cannot_be_used_counts_as_computed_instead(pair, expected):
    before = numbers(pair.decode)
    assert pair.complete(PROMPTS["measured"], lambda params: params | {"remote_block_ids": None}, salt="refused") == expected["measured"]
    assert counted(pair.decode, before, "num_recomputed_reqs", "num_recomputed_blocks") == {
        "num_recomputed_reqs": 1, "num_recomputed_blocks": -(-len(PROMPTS["measured"]) // BLOCK)}


def test_the_log_has_a_line_about_an_interval_with_reads(pair):
    before = pair.decode.log.count("KV Transfer metrics: ")
    pair.complete(PROMPTS["measured"], salt="logged")
    wait_for(lambda: pair.decode.log.count("KV Transfer metrics: ") > before, "the line")
    line = [line for line in pair.decode.log.splitlines() if "KV Transfer metrics: " in line][-1]
    assert re.search(r"Num successful transfers=\d+, Num by shm=\d+, Avg xfer time \(ms\)=[\d.]+, .*Throughput \(MB/s\)=[\d.]+, "
                     r".*Num failed transfers=\d+, .*Num recomputed reqs=\d+, ", line), line
