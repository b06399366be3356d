"""Eight workloads at two sidecars that read, write, cancel, register and delete, while all of them die at random."""

import collections
import contextlib
import multiprocessing
import random
import signal
import time

from soak_life import END_SECONDS, QUIET_SECONDS, WORKLOADS, Land, live
from workloads import connect, fd_count, metric, send, totals_of, wait_for, workers_of

# Its death stops its transfers, so their deadlines do not count.
GONE_SECONDS = QUIET_SECONDS
LEASE_SECONDS = 30  # of a workload that never attached itself: nothing else tells of its end
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
    """Two sidecars that run, and workloads on both. `more_events`: (function, weight) beside its own."""

    def __init__(self, sidecars, seed, more_events=()):
        self.seed, self.random = seed, random.Random(seed)
        self.sidecars = sidecars
        self.events = [(self.kill_a_workload, 6), (self.kill_a_worker, 2), (self.stop_a_worker_for_a_moment, 1),
                       (self.kill_a_sidecar, 0.5), *more_events]
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

    def what_is_left(self, land):
        """For the message when it does not become quiet."""
        home = self.home(land.index)
        left = [transfer for transfer in home.ask("GET", "/v1/transfers?active=true&limit=1000")[1]["transfers"]
                if transfer["workload"] == land.name]
        lease = home.ask("GET", f"/v1/workloads/{land.name}")
        return f"seed {self.seed}: the end of {land.name} at {home.name}: lease {lease}, transfers {left}, the end of"

    def kill_a_workload(self):
        inhabitant = self.random.choice(self.inhabitants)
        _, lease = self.home(inhabitant.land.index).ask("GET", f"/v1/workloads/{inhabitant.land.name}")
        inhabitant.kill()
        self.read(inhabitant)
        patience = GONE_SECONDS + (0 if lease.get("attached") else LEASE_SECONDS)
        wait_for(lambda: self.quiet(inhabitant.land), patience, lambda: self.what_is_left(inhabitant.land))
        self.inhabitants[inhabitant.land.index] = self.settle(inhabitant.land)

    def kill_a_worker(self):
        workers = workers_of(self.random.choice(self.sidecars))
        if workers:
            with contextlib.suppress(ProcessLookupError):  # one that was killed before may be reaped just now
                send([self.random.choice(workers)], signal.SIGKILL)

    def stop_a_worker_for_a_moment(self):
        workers = workers_of(self.random.choice(self.sidecars))
        if workers:
            victim = [self.random.choice(workers)]
            with contextlib.suppress(ProcessLookupError):
                send(victim, signal.SIGSTOP)
                time.sleep(0.2)
                send(victim, signal.SIGCONT)

    def kill_a_sidecar(self):
        sidecar = self.random.choice(self.sidecars)
        assert sidecar.process.poll() is None, f"seed {self.seed}: {sidecar.name} ended by itself:\n{sidecar.log}"
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
                if its_sidecar_was_killed and kind == "failed" and said.startswith(("Error: peer_", "SidecarLost: ")):
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

    def live_for(self, seconds, until=lambda counts: False):
        """`until` is asked with the counts of events by name and of transfers by outcome."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not until(self.counts):
            time.sleep(self.random.random() * 0.6)
            event = self.random.choices(*zip(*self.events))[0]
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

    def assert_nothing_is_left(self):
        for land in self.lands:
            assert not land.changed_blocks_of_its_store(), f"seed {self.seed}: the store of {land.name} was written to"
        for sidecar in self.sidecars:
            wait_for(lambda: totals_of(sidecar)["buffers"] == 0, 3, "the end of every buffer")
            wait_for(lambda: metric(sidecar, "gantry_mappings") == 0, 3, "unmapping everything")
            wait_for(lambda: metric(sidecar, "gantry_fds_held") == 0, 3, "closing every descriptor")
            assert totals_of(sidecar)["transfers_running"] == 0 and totals_of(sidecar)["bytes_inflight"] == 0
            assert fd_count(sidecar.process.pid) < 200

    def close(self):
        for inhabitant in self.inhabitants:
            inhabitant.kill()
        for land in self.lands:
            land.close()
