"""vLLM's own NixlConnector over NIXL's backend GANTRY, unchanged: the tokens are those of one engine, and of NixlConnector over UCX.

The caches are tensors of the CPU, which the plugin adopts: one block of 64 MiB, which malloc maps by itself whatever was freed before.
"""

import contextlib
from concurrent.futures import ThreadPoolExecutor

import pytest
from backends import ON_GPU
from conftest import end_to_end
from leftovers import totals_of
from prompts import LENGTHS, PATHS, PROMPTS, TOGETHER
from vllm_servers import Engine, Pair, free_port, wait_for
from workers import copy_workers_of, go_on, stand_still

pytestmark = [pytest.mark.timeout(900), pytest.mark.skipif(ON_GPU, reason="the GPU's bundle has no NIXL")]

NAMES = [f"{PATHS[0]} {length}" for length in LENGTHS]
TOGETHER_NAMES = [f"{PATHS[0]} together {i}" for i in range(TOGETHER)]


def transfer(backend):
    return {"kv_connector": "NixlConnector", "kv_role": "kv_both", "kv_buffer_device": "cpu", "kv_load_failure_policy": "recompute",
            "kv_connector_extra_config": {"backends": [backend]}}


@contextlib.contextmanager
def running(environment, folder, forks, backend, path="", sidecars=(None, None)):
    engines = []
    try:
        for name, sidecar in zip(("prefill", "decode"), sidecars):
            more = {"VLLM_NIXL_SIDE_CHANNEL_PORT": str(free_port()), "VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1"}
            if sidecar is not None:
                more["GANTRY_RUN_DIR"] = str(sidecar.run_dir)
            engines.append(Engine(f"nixl-{backend}-{name}", environment, folder, path=path, transfer=transfer(backend), more=more, forks=forks))
        for engine in engines:
            engine.wait_until_ready()
        yield Pair(*engines, sidecars)
    finally:
        for engine in engines:
            engine.stop()


@pytest.fixture(scope="module")
def nixl_pair(environment, folder, forks, expected, nixl_with_plugin):
    with contextlib.ExitStack() as stack:
        sidecars = [end_to_end.SidecarProcess(f"nixl-{name}", folder) for name in ("prefill", "decode")]
        for sidecar in sidecars:
            stack.callback(sidecar.stop)
            sidecar.start()
        yield stack.enter_context(running(environment, folder, forks, "GANTRY", nixl_with_plugin, sidecars))


def reads(pair):
    """How many reads vLLM has counted at the decoder. It counts none of an engine that has read nothing."""
    try:
        return pair.decode.metric("vllm:nixl_bytes_transferred_count")
    except AssertionError:
        return 0


def failed_reads(pair):
    """How many reads vLLM has counted as failed. It has no such series before the first one."""
    try:
        return pair.decode.metric("vllm:nixl_num_failed_transfers_total")
    except AssertionError:
        return 0


def bytes_by_shm(sidecar):
    """The bytes that a sidecar has moved by shm for reads."""
    series = 'gantry_transfer_bytes_total{op="read",path="shm"} '
    lines = sidecar.ask("GET", "/metrics")[1].splitlines()
    return sum(float(line.removeprefix(series)) for line in lines if line.startswith(series))


def all_are_right(pair, expected):
    for name in NAMES:
        assert pair.complete(PROMPTS[name]) == expected[name]
    assert pair.complete_together([PROMPTS[name] for name in TOGETHER_NAMES]) == [expected[name] for name in TOGETHER_NAMES]


def every_prompt_was_read(pair):
    """The tokens alone do not say so: the decoder computes a prompt whose read failed."""
    wait_for(lambda: reads(pair) >= len(NAMES + TOGETHER_NAMES), lambda: f"the reads are counted: {reads(pair)}, {failed_reads(pair)} failed")
    assert (reads(pair), failed_reads(pair)) == (len(NAMES + TOGETHER_NAMES), 0)


def read_again(pair, expected, salt):
    """A prompt is read, and not computed; a peer that is back may need some attempts."""
    before, attempts = reads(pair), iter(range(1000))
    wait_for(lambda: pair.complete(PROMPTS["killed"], salt=f"{salt} {next(attempts)}") == expected["killed"] and reads(pair) > before,
             lambda: f"reads come back: {pair.decode.log[-3000:]}")


def test_ucx_gives_the_same_tokens(environment, folder, forks, expected):
    """First, so that the engines of the other cases are not there yet."""
    with running(environment, folder, forks, "UCX") as pair:
        all_are_right(pair, expected)
        every_prompt_was_read(pair)


def test_prompts_are_read_over_shm(nixl_pair, expected):
    all_are_right(nixl_pair, expected)
    every_prompt_was_read(nixl_pair)
    assert bytes_by_shm(nixl_pair.decode_sidecar) == nixl_pair.decode.metric("vllm:nixl_bytes_transferred_sum")
    assert "take the path shm" in nixl_pair.decode.log
    for engine in (nixl_pair.prefill, nixl_pair.decode):
        assert engine.log.count("is adopted: it is shared memory from now on") == 1
    wait_for(lambda: nixl_pair.prefill.metric("vllm:kv_cache_usage_perc") == 0, "the prefiller is told that its blocks were read")


def test_blocks_in_the_wrong_order_give_other_tokens(nixl_pair, expected):
    """The control of all others: the decoder does use what it reads."""
    def reverse(params):
        params["remote_block_ids"] = [blocks[::-1] for blocks in params["remote_block_ids"]]
        return params
    assert nixl_pair.complete(PROMPTS["reversed"], reverse) != expected["reversed"]


@pytest.mark.parametrize("side", [0, 1], ids=["prefill", "decode"])
def test_a_sidecar_dies_between_two_requests(nixl_pair, expected, side):
    """NixlConnector then has the prompt computed, as it is told to: no token is wrong, and both engines live."""
    sidecar = (nixl_pair.prefill_sidecar, nixl_pair.decode_sidecar)[side]
    read_again(nixl_pair, expected, f"before {sidecar.name}")
    sidecar.kill()
    name = ("prefill sidecar lost", "decode sidecar lost")[side]
    assert nixl_pair.complete(PROMPTS[name]) == expected[name]
    sidecar.start()
    read_again(nixl_pair, expected, f"after {sidecar.name}")
    assert nixl_pair.prefill.healthy() and nixl_pair.decode.healthy()


@pytest.mark.parametrize("side", [0, 1], ids=["prefill", "decode"])
def test_a_sidecar_dies_in_the_middle_of_a_read(nixl_pair, expected, side):
    """The decoder's copy workers stand still meanwhile.

    With the decoder's sidecar they end, so that the read fails and the decoder computes the prompt. Without the prefiller's they go on and have
    its memory mapped: the read may still succeed, or fail. No token is wrong in either case.
    """
    sidecar = (nixl_pair.prefill_sidecar, nixl_pair.decode_sidecar)[side]
    read_again(nixl_pair, expected, f"before the middle {side}")
    params, failed = nixl_pair.offer(PROMPTS["killed"], salt=f"middle {side}"), failed_reads(nixl_pair)
    standing = copy_workers_of(nixl_pair.decode_sidecar)
    stand_still(standing)
    try:
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(nixl_pair.decode.complete, PROMPTS["killed"], params, salt=f"middle {side}")
            try:
                wait_for(lambda: totals_of(nixl_pair.decode_sidecar)["transfers_running"] > 0, "the read is under way", 20)
                sidecar.kill()
                sidecar.start()
            finally:
                go_on(standing)
            assert answer.result()[0] == expected["killed"]
    finally:
        go_on(standing)
    if side == 1:
        wait_for(lambda: failed_reads(nixl_pair) > failed, "the failed read is counted")
    read_again(nixl_pair, expected, f"after the middle {side}")
    assert nixl_pair.prefill.healthy() and nixl_pair.decode.healthy()
