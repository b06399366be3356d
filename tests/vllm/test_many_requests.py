"""Hundreds of requests with aborts and a restart of the decoder's sidecar: no wrong token, and nothing is left."""

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from leftovers import nothing_is_left, tree_of
from prompts import MANY, PROMPTS

pytestmark = pytest.mark.timeout(900)

REQUESTS = 300
WARM_UP = 60  # twice
TOGETHER = 4
TOKENS = 6  # of each answer
ABORT_SECONDS = 0.1
ABORTED_TOKENS = 400  # of an answer that takes far longer
ENGINE_GROWTH_MAX = 24 << 20
SIDECAR_GROWTH_MAX = 16 << 20


def memory_of(owners):
    """Bytes that each process has of its own, by the name of its owner and its pid; mapped caches are left out."""
    found = {}
    for name, pid in owners:
        for each in tree_of(pid):
            try:
                status = Path(f"/proc/{each}/status").read_text()
            except FileNotFoundError:
                continue  # it has ended
            said = dict(line.split(":", 1) for line in status.splitlines())
            found[f"{name} {said['Name'].strip()} {each}"] = int(said["RssAnon"].split()[0]) * 1024
    return found


def engines_of(pair):
    return [(engine.name, engine.pid) for engine in (pair.prefill, pair.decode)]


def sidecars_of(pair):
    return [(sidecar.name, sidecar.process.pid) for sidecar in (pair.prefill_sidecar, pair.decode_sidecar)]


def run(pair, expected, numbers, together=TOGETHER):
    """These requests, some at a time; returns how many were aborted."""
    def one(number):
        chance = random.Random(number)
        name, salt = chance.choice(MANY), f"many {number}"
        params = pair.offer(PROMPTS[name], salt=salt)
        if chance.random() < 0.1:
            try:
                pair.decode.complete(PROMPTS[name], params, ABORTED_TOKENS, salt, ABORT_SECONDS)
            except TimeoutError:
                return 1
        elif chance.random() < 0.05:
            pair.decode.complete([1], params | {"remote_block_ids": [[]]}, salt=salt)  # is not read
        else:
            assert pair.decode.complete(PROMPTS[name], params, TOKENS, salt)[0] == expected[name][:TOKENS], (number, name)
        return 0
    with ThreadPoolExecutor(together) as pool:
        return sum(pool.map(one, numbers))


def test_many_requests(pair, expected):
    numbers = iter(range(REQUESTS))
    aborted = run(pair, expected, [next(numbers) for _ in range(WARM_UP)], together=1)
    with ThreadPoolExecutor(1) as pool:
        rest = pool.submit(run, pair, expected, [next(numbers) for _ in range(WARM_UP)])
        pair.decode_sidecar.kill()
        pair.decode_sidecar.start()
        aborted += rest.result()
    with nothing_is_left(pair):
        memory, sidecar_memory = memory_of(engines_of(pair)), memory_of(sidecars_of(pair))
        before = len(pair.decode.reads())
        # One at a time: vLLM keeps a kernel for each number of tokens that was computed at once, whatever the connector does.
        aborted += run(pair, expected, list(numbers), together=1)
        assert aborted > 0
        assert len(pair.decode.reads()) - before > (REQUESTS - 2 * WARM_UP) // 2
    for most, earlier, now in ((ENGINE_GROWTH_MAX, memory, memory_of(engines_of(pair))),
                               (SIDECAR_GROWTH_MAX, sidecar_memory, memory_of(sidecars_of(pair)))):
        more = {name: (earlier[name], now[name]) for name in now.keys() & earlier.keys() if now[name] > earlier[name] + most}
        assert not more, (more, now)
