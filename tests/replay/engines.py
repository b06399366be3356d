"""The two pods of a day, the engines in them, and the scheduler that steps all of them and checks every byte."""

import contextlib
import os
import signal
import statistics
import threading
import time
from collections import Counter

from conftest import SidecarProcess
from connector_rank import ConnectorRank
from paged_cache import BlockPool, Cache
from test_notifications import free_port
from workloads import WorkloadProcess, gantry, resume, send, wait_for, workers_of

WAYS = ("shm", "tcp")
STEP_SECONDS = 0.002  # what the model itself takes in a step
CRAWL_SECONDS = (0.0002, 0.005)  # how long who crawls goes on, and stands still, by turns
END_SECONDS = 60  # by then everything that a day waits for has happened, on a busy machine too


class Wrong(AssertionError):
    """What a day found that must not be."""


def require(condition, what):
    if not condition:
        raise Wrong(what)


def brief(transfer):
    """What a message needs of a transfer."""
    return {name: transfer.get(name) for name in ("id", "state", "error", "notify_error", "path", "bytes", "bytes_moved", "timings")}


def problem(process, command, *arguments, **options):
    """The gantry.Error with which a rank's command is refused; None when it is not."""
    try:
        process.do(command, *arguments, seconds=END_SECONDS, **options)
    except gantry.Error as error:
        return error
    return None


def refusal(process, command, *arguments, **options):
    """Its code."""
    return getattr(problem(process, command, *arguments, **options), "code", None)


@contextlib.contextmanager
def standing_still(pids):
    send(pids, signal.SIGSTOP)
    try:
        yield
    finally:
        resume(pids)


@contextlib.contextmanager
def crawling(pids):
    """They go on for a moment at a time, so that what they do lasts long enough to be met in its middle."""
    over = threading.Event()

    def crawl():
        going, still = CRAWL_SECONDS
        while not over.wait(going):
            with standing_still(pids):
                time.sleep(still)

    thread = threading.Thread(target=crawl)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class Engine:
    """An engine of `ranks` processes at one sidecar, each with a cache of its own; block ids are those of all ranks.

    The caches outlive the processes: `start` begins another life of all ranks.
    """

    def __init__(self, day, sidecar, name, geometry, ranks=1, access=(), stretch=1):
        self.day, self.sidecar, self.name, self.geometry, self.access = day, sidecar, name, geometry, list(access)
        self.names = [name if ranks == 1 else f"{name}-{rank}" for rank in range(ranks)]
        self.caches = [Cache(geometry) for _ in self.names]
        self.pool = BlockPool(geometry.blocks, name, stretch)
        self.extension = 0.0
        self.start()

    def start(self):
        self.processes = [WorkloadProcess(self.sidecar, name, ConnectorRank) for name in self.names]
        self.register()

    def register(self):
        """What each rank tells in a handshake."""
        self.messages, self.holds, self.ended = [], {}, {}
        self.metadata = [process.do("register_kv_caches", f"/proc/{os.getpid()}/fd/{cache.memory.fd}",
                                    self.geometry.specs, self.access, seconds=END_SECONDS)
                         for process, cache in zip(self.processes, self.caches)]

    def handshake(self, other, sources=None, slices=None):
        """Rank r learns of the ranks sources[r] of the other engine (None: the one of its own number); see Consumer."""
        for rank, process in enumerate(self.processes):
            for index, theirs in enumerate(sources[rank] if sources else [rank]):
                pairs = process.do("add_remote", theirs, other.sidecar.name, other.sidecar.peer_address,
                                   other.metadata[theirs], slices(rank, index) if slices else None, seconds=END_SECONDS)
                require(pairs == len(self.geometry.specs), f"{pairs} pairs for {len(self.geometry.specs)} buffers")

    def meet(self, other):
        for state in self.each("meet", other.sidecar.name, other.sidecar.peer_address):
            require(state == "up", f"{other.sidecar.name} is {state}")

    def each(self, command, *arguments, **options):
        return [process.do(command, *arguments, seconds=END_SECONDS, **options) for process in self.processes]

    def address(self, rank=0):
        """Whom a message to this life of a rank is for."""
        return f"{self.names[rank]}@{self.metadata[rank]['generation']}"

    # The step, in two halves so that the ranks take it at the same time.

    def post_step(self):
        for process in self.processes:
            process.post("step", self.extension)

    def end_step(self):
        for rank, process in enumerate(self.processes):
            report = process.result(END_SECONDS)
            self.day.counts["heartbeats"] += report["extended"]
            require(not report["undelivered"], f"{process.name}: {report['undelivered']}")
            self.messages += [(rank, message, request) for message, request in report["messages"]]
            for hold, outcome, consumers in report["holds"]:
                self.holds.setdefault(hold, []).append((outcome, consumers))
            for key, view in report["transfers"]:
                self.ended[rank, key] = view
                self.day.count(view)

    def take_message(self, text):
        """Takes one message from what has arrived; None when it has not."""
        for entry in self.messages:
            if entry[1].startswith(text):
                self.messages.remove(entry)
                return entry
        return None

    def kill(self):
        for process in self.processes:
            process.kill()

    def close(self):
        self.kill()
        for cache in self.caches:
            cache.close()


class Day:
    """Sidecars "p" and "d", which meet over the node's directory (shm) or over TCP, and the engines at them."""

    def __init__(self, folder, way, requests=3):
        self.way, self.requests = way, requests
        self.engines, self.counts, self.paths, self.step_times = [], Counter(), Counter(), []
        self.p, self.d = (self._sidecar(name, folder) for name in "pd")
        self.began = time.monotonic()

    def _sidecar(self, name, folder):
        if self.way != "tcp":
            return SidecarProcess(name, folder)
        address = f"127.0.0.1:{free_port()}"  # the same after a restart
        # One connection, so that what is on its way does not hold a whole prompt: it must be possible to abort one.
        return SidecarProcess(name, folder, flags=["--peer-listen", address, "--data-streams", "1"], address=address)

    def __enter__(self):
        for sidecar in (self.p, self.d):
            sidecar.start()
        return self

    def __exit__(self, *_):
        for engine in self.engines:
            engine.close()
        for sidecar in (self.p, self.d):
            sidecar.kill()

    def engine(self, sidecar, name, geometry, **options):
        self.engines.append(Engine(self, sidecar, name, geometry, **options))
        return self.engines[-1]

    def step(self, only=None):
        """One step of every engine, or of one while the sidecar of the other cannot answer."""
        began = time.perf_counter()
        engines = [only] if only else self.engines
        for engine in engines:
            engine.post_step()
        for engine in engines:
            engine.end_step()
        self.step_times.append(time.perf_counter() - began)
        time.sleep(STEP_SECONDS)

    def until(self, condition, what, seconds=END_SECONDS, only=None):
        """Steps all engines, or one, until the condition is true, and answers what it was."""
        deadline = time.monotonic() + seconds
        while not (value := condition()):
            require(time.monotonic() < deadline, f"{what}: not within {seconds} s")
            self.step(only)
        return value

    def movers(self, reads=False):
        """Without whom no byte gets from p to d: the copy workers of who asked, over TCP also the sidecar of the other."""
        asking, other = (self.d, self.p) if reads else (self.p, self.d)
        return workers_of(asking) + ([other.process.pid] if self.way == "tcp" else [])

    @contextlib.contextmanager
    def in_the_middle(self, process, key, begin, reads=False):
        """Of the transfer that `begin` begins something is under way, and nothing gets on; most likely some of it is not issued yet."""
        movers = self.movers(reads)
        if self.way == "shm":  # the jobs that fit into the ring of a worker that stands still
            with standing_still(movers):
                begun = begin()
                self._wait_for_progress(process, key, lambda state, moved: state == "running")
                yield begun
        else:
            with crawling(movers):
                begun = begin()
                self._wait_for_progress(process, key, lambda state, moved: moved > 0)
            with standing_still(movers):
                yield begun

    def _wait_for_progress(self, process, key, enough):
        later = time.monotonic() + END_SECONDS
        while (now := process.do("progress", key))[0] in ("queued", "running") and not enough(*now[:2]):
            require(time.monotonic() < later, f"{key} does not begin within {END_SECONDS} s")

    def count(self, view):
        self.counts["transfers"] += 1
        self.counts[view["state"]] += 1
        self.counts["bytes"] += view["bytes_moved"]
        self.counts["descriptors"] += view["descriptors_in"]
        self.paths[view["path"]] += 1
        require(view["path"] == self.way, f"a transfer went over {view['path']}: {view['paths']}")

    def assert_all_is_as_wanted(self):
        """When nothing moves: every byte of every cache, guards and free blocks included."""
        for engine in self.engines:
            for name, cache in zip(engine.names, engine.caches):
                cache.assert_all_is_as_wanted(name)

    def assert_nothing_is_left(self):
        """Nothing moves, and no promise stands, when a day is over."""
        for sidecar in (self.p, self.d):
            wait_for(lambda: not sidecar.ask("GET", "/v1/transfers?active=true")[1]["transfers"], END_SECONDS,
                     f"the end of every transfer at {sidecar.name}")
        require(not self.p.ask("GET", "/v1/holds")[1]["holds"], "a hold is left")
        self.assert_all_is_as_wanted()

    def row(self):
        """What the table says of this day."""
        middle = statistics.median(self.step_times) if self.step_times else 0.0
        return {"steps": len(self.step_times), "transfers": self.counts["transfers"],
                "not succeeded": self.counts["transfers"] - self.counts["succeeded"],
                "blocks": self.counts["descriptors"], "MiB": self.counts["bytes"] / (1 << 20),
                "path": "+".join(sorted(self.paths)), "ms/step": middle * 1e3,
                "ms/step max": max(self.step_times, default=0.0) * 1e3, "seconds": time.monotonic() - self.began}
