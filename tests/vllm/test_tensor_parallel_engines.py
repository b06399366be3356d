"""An engine of two ranks and one of one rank: prompts go from each to the other, and the tokens are those of one engine.

The engine of two ranks, one of its ranks alone, and its sidecar die by kill -9 in the middle of a read.
"""

import os
import signal

import pytest
from backends import ON_GPU, PATHS, flags_of_ranks, sidecar_prefix
from conftest import end_to_end
from leftovers import nothing_is_left, totals_of, workloads_of
from prompts import PROMPTS
from test_kills_of_engines import PROMPT, WAYS, in_the_middle, kill_and_start, reads_come_back
from vllm_servers import Engine, Pair, wait_for

pytestmark = pytest.mark.timeout(900)

RANKS = 2


class TwoRanks:
    """An engine of two ranks at a sidecar of its own."""

    def __init__(self, environment, folder, forks):
        self._start = lambda: Engine("engine-two-ranks", environment, folder, self.sidecar, flags=flags_of_ranks(RANKS), forks=forks)
        self.sidecar = end_to_end.SidecarProcess("ranks", folder, flags=("--peer-listen", "127.0.0.1:0"), prefix=sidecar_prefix())
        self.sidecar.start()
        self.engine = None

    def start(self):
        """Where a case before has ended the engine, another one starts."""
        if self.engine is not None and not self.engine.healthy():
            self.engine.stop()
            self.engine = None
        if self.engine is None:
            self.engine = self._start()
            self.engine.wait_until_ready()

    def stop(self):
        for part in (self.engine, self.sidecar):
            if part is not None:
                part.stop()


@pytest.fixture(scope="module")
def ranks(environment, folder, forks, pair):
    both = TwoRanks(environment, folder, forks)
    yield both
    both.stop()


@pytest.fixture
def two_ranks(ranks):
    ranks.start()
    return ranks.engine, ranks.sidecar


@pytest.mark.parametrize("sizes", ["1 to 2", "2 to 1"])
@pytest.mark.parametrize("length", [1, 200, 500])
def test_prompts_between_engines_of_other_sizes(pair, two_ranks, expected, sizes, length):
    engine, sidecar = two_ranks
    if sizes == "1 to 2":
        both = Pair(pair.prefill, engine, [pair.prefill_sidecar, sidecar])
    else:
        both = Pair(engine, pair.decode, [sidecar, pair.decode_sidecar])
    prompt, tokens = PROMPTS[f"{PATHS[0]} {length}"], expected[f"{PATHS[0]} {length}"]
    # Sums of two ranks are rounded otherwise on a GPU, and so a token may be another one.
    right = [tokens, engine.complete(prompt, salt="alone")[0]] if ON_GPU else [tokens]
    assert both.complete_by_reads(prompt, tokens, reads=RANKS, path=PATHS[0], salt=f"tp {sizes}") in right
    wait_for(lambda: not both.holds(), "the holds have ended")
    for each in (both.prefill, both.decode):
        wait_for(lambda each=each: each.metric("vllm:kv_cache_usage_perc") == 0, f"{each.name} has free blocks only")


def test_halves_in_the_wrong_order_give_other_tokens(pair, two_ranks, expected):
    """The control of the others: both halves are used."""
    engine, sidecar = two_ranks

    def swap(params):
        params["gantry"]["workers"] = params["gantry"]["workers"][::-1]
        return params
    both = Pair(engine, pair.decode, [sidecar, pair.decode_sidecar])
    name = f"{PATHS[0]} 200"
    said = both.complete_by_reads(PROMPTS[name], expected[name], reads=RANKS, path=PATHS[0], change=swap, salt="swapped")
    assert said != expected[name]


def under_way(sidecar):
    """How many transfers have not ended. One is queued while pieces of another fill the ring of a worker that stands still."""
    totals = totals_of(sidecar)
    return totals["transfers_running"] + totals["transfers_queued"]


def both_ranks_are_read(pair):
    wait_for(lambda: under_way(pair.decode_sidecar) == RANKS, "both ranks are read", 20)


@pytest.mark.parametrize("way", WAYS)
def test_the_sidecar_of_two_ranks_dies_in_the_middle_of_a_read(pair, two_ranks, expected, way):
    engine, sidecar = two_ranks
    both = Pair(engine, pair.decode, [sidecar, pair.decode_sidecar])
    kill_and_start(sidecar)  # each rank keeps a descriptor more from the first loss on
    reads_come_back(both, expected)

    def die():
        if way == "shm":  # over a slow link the one may keep the other from its begin
            both_ranks_are_read(both)
        kill_and_start(sidecar)
    with nothing_is_left(both, lost_holds=True):
        params = both.offer(PROMPTS[PROMPT], salt=f"sidecar of two ranks {way}")
        assert in_the_middle(both, params, f"sidecar of two ranks {way}", die, WAYS[way]) == expected[PROMPT]
        reads_come_back(both, expected)


def pid_of_rank(sidecar, rank):
    (pid,) = [workload["pid"] for workload in sidecar.ask("GET", "/v1/status")[1]["workloads"] if workload["name"].endswith(f"-{rank}")]
    return pid


def kill_rank(engine, sidecar):
    os.kill(pid_of_rank(sidecar, 1), signal.SIGKILL)


def kill_engine(engine, sidecar):
    os.killpg(engine.pid, signal.SIGKILL)


@pytest.mark.parametrize("kill", [kill_rank, kill_engine])
def test_ranks_die_in_the_middle_of_a_read(pair, two_ranks, expected, kill):
    """One of them, which vLLM answers by ending the whole engine, or all processes. Copy workers go on when nothing of the ranks is left."""
    engine, sidecar = two_ranks
    both_sidecars = [sidecar, pair.decode_sidecar]
    both = Pair(engine, pair.decode, both_sidecars)
    for each in (pair, both):
        reads_come_back(each, expected)
    salt = kill.__name__
    with nothing_is_left(Pair(pair.prefill, pair.decode, both_sidecars)):
        params = both.offer(PROMPTS[PROMPT], salt=salt)
        before = len(pair.decode.reads())

        def die():
            both_ranks_are_read(both)
            kill(engine, sidecar)
            wait_for(lambda: under_way(pair.decode_sidecar) == 0, "the reads have ended")
        assert in_the_middle(both, params, salt, die) == expected[PROMPT]
        assert len(pair.decode.reads()) == before, "no read succeeded"
        wait_for(lambda: not engine.lives(), "it has ended")
        wait_for(lambda: not workloads_of(sidecar) and totals_of(sidecar)["buffers"] == 0,
                 lambda: f"nothing of the ranks is left: {workloads_of(sidecar)}, {totals_of(sidecar)}")
        reads_come_back(pair, expected)
