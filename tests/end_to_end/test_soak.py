"""Two sidecars and eight workloads that read, write, cancel, register, delete and die at random, checked byte by byte.

GANTRY_SOAK_SECONDS sets how long (60), GANTRY_SOAK_SEED what happens; a failure names the seed.
"""

import collections
import multiprocessing
import os
import random
import signal
import time

import pytest

from soak_life import END_SECONDS, WORKLOADS, Land, live
from workloads import connect, fd_count, metric, send, totals_of, wait_for, workers_of

SOAK_SECONDS = float(os.environ.get("GANTRY_SOAK_SECONDS", "60"))
SILENCE_SECONDS = 2 * END_SECONDS  # a workload that says nothing for so long hangs
FLAGS = ["--worker-restart-ms-max", "200", "--log-level", "warning"]
_forking = multiprocessing.get_context("fork")


class Inhabitant:
    """The process that lives on a land at the moment."""

    def __init__(self, lands, index, sidecar, reference, seed):
        self.land, self.sidecar = lands[index], sidecar
        self.pipe, theirs = _forking.Pipe()
        self.process = _forking.Process(target=live, args=(theirs, str(sidecar.run_dir), lands, index, reference, seed),
                                        daemon=True)
        self.process.start()
        theirs.close()
        self.heard = time.monotonic()

    def kill(self):
        self.process.kill()
        self.process.join()


class World:
    def __init__(self, start_sidecar, seed):
        self.seed, self.random = seed, random.Random(seed)
        self.sidecars = [start_sidecar(name, workers=2, flags=FLAGS) for name in ("a", "b")]
        self.lands = [Land(index) for index in range(WORKLOADS)]
        self.counts = collections.Counter()
        self.join_peers()
        self.inhabitants = [self.settle(land) for land in self.lands]

    def home(self, index):
        return self.sidecars[index % 2]

    def join_peers(self):
        for one, other in (self.sidecars, self.sidecars[::-1]):
            connect(one, other)

    def settle(self, land):
        home = self.home(land.index)

        def reference(index):
            return f"w{index}" if self.home(index) is home else f"{self.home(index).name}/w{index}"

        return Inhabitant(self.lands, land.index, home, reference, self.random.random())

    def quiet(self, land):
        """Whether nothing is left of the process that lived there: neither its lease nor a byte that moves."""
        home = self.home(land.index)
        active = home.ask("GET", "/v1/transfers?active=true&limit=1000")[1]["transfers"]
        return (home.ask("GET", f"/v1/workloads/{land.name}")[0] == 404
                and not any(transfer["workload"] == land.name for transfer in active))

    def kill_a_workload(self):
        inhabitant = self.random.choice(self.inhabitants)
        inhabitant.kill()
        self.read(inhabitant)
        wait_for(lambda: self.quiet(inhabitant.land), END_SECONDS, "the end of a workload")
        self.inhabitants[inhabitant.land.index] = self.settle(inhabitant.land)

    def kill_a_worker(self):
        workers = workers_of(self.random.choice(self.sidecars))
        if workers:
            send([self.random.choice(workers)], signal.SIGKILL)

    def stop_a_worker_for_a_moment(self):
        workers = workers_of(self.random.choice(self.sidecars))
        if workers:
            victim = [self.random.choice(workers)]
            send(victim, signal.SIGSTOP)
            time.sleep(0.2)
            send(victim, signal.SIGCONT)

    def kill_a_sidecar(self):
        sidecar = self.random.choice(self.sidecars)
        sidecar.kill()
        for inhabitant in self.inhabitants:
            if inhabitant.sidecar is sidecar:
                inhabitant.kill()
                self.read(inhabitant, its_sidecar_was_killed=True)
        sidecar.start()
        self.join_peers()
        for index, inhabitant in enumerate(self.inhabitants):
            if inhabitant.sidecar is sidecar:
                self.inhabitants[index] = self.settle(inhabitant.land)

    def read(self, inhabitant, its_sidecar_was_killed=False):
        """Takes what the process said; fails when something was wrong. Whether it is done."""
        try:
            while inhabitant.pipe.poll():
                kind, said = inhabitant.pipe.recv()
                if its_sidecar_was_killed and kind == "failed" and said.startswith("Error: peer_"):
                    return False  # it had no time to begin
                assert kind != "failed", f"seed {self.seed}: {inhabitant.land.name}: {said}"
                inhabitant.heard = time.monotonic()
                self.counts.update(said)
                if kind == "done":
                    return True
        except (EOFError, ConnectionResetError):
            return False  # killed in the middle of a word
        silence = time.monotonic() - inhabitant.heard
        assert silence < SILENCE_SECONDS, f"seed {self.seed}: {inhabitant.land.name} hangs"
        return False

    def live_for(self, seconds):
        events = [(self.kill_a_workload, 6), (self.kill_a_worker, 2), (self.stop_a_worker_for_a_moment, 1),
                  (self.kill_a_sidecar, 0.5)]
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(self.random.random() * 0.6)
            event = self.random.choices([event for event, _ in events], [weight for _, weight in events])[0]
            self.counts[event.__name__] += 1
            event()
            for inhabitant in self.inhabitants:
                self.read(inhabitant)

    def end(self):
        for inhabitant in self.inhabitants:
            inhabitant.pipe.send("stop")
        for inhabitant in self.inhabitants:
            wait_for(lambda: self.read(inhabitant), SILENCE_SECONDS, f"the end of {inhabitant.land.name}")
            inhabitant.kill()

    def close(self):
        for inhabitant in self.inhabitants:
            inhabitant.kill()
        for land in self.lands:
            land.close()


@pytest.mark.parametrize("seconds", [
    pytest.param(5, id="seconds"),
    pytest.param(SOAK_SECONDS, id="minutes", marks=[pytest.mark.soak, pytest.mark.timeout(SOAK_SECONDS + 120)])])
def test_soak(start_sidecar, seconds):
    seed = int(os.environ.get("GANTRY_SOAK_SEED", random.randrange(1 << 32)))
    world = World(start_sidecar, seed)
    try:
        world.live_for(seconds)
        world.end()
        print(f"seed {seed}: {dict(sorted(world.counts.items()))}")
        assert world.counts["succeeded"] > 20 * seconds, f"seed {seed}: {world.counts}"
        for land in world.lands:
            assert not land.changed_blocks_of_its_store(), f"seed {seed}: the store of {land.name} was written to"
        for sidecar in world.sidecars:
            wait_for(lambda: totals_of(sidecar)["buffers"] == 0, 3, "the end of every buffer")
            wait_for(lambda: metric(sidecar, "gantry_mappings") == 0, 3, "unmapping everything")
            wait_for(lambda: metric(sidecar, "gantry_fds_held") == 0, 3, "closing every descriptor")
            assert totals_of(sidecar)["transfers_running"] == 0 and totals_of(sidecar)["bytes_inflight"] == 0
            assert fd_count(sidecar.process.pid) < 200
    finally:
        world.close()
