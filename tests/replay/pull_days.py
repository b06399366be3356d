"""vLLM's pull (NixlConnector): the producer holds blocks for a time, the consumer reads them by number and says so."""

import time

from engines import refusal, require
from paged_cache import Geometry

LLAMA_8B = Geometry(layers=32, kinds=("k", "v"), blocks=2048, block_bytes=128)  # 16 tokens a block, 32 KiB in earnest
PROMPT_BLOCKS = 512  # 8192 tokens: 32768 blocks of 64 buffers
LEASE = 2.0  # seconds that a hold stands without a heartbeat, which comes every sixth of it
EXTENSION = 30.0  # what a heartbeat gives: in earnest 20 s beside a lease of 30, here enough for a machine that stalls


class Producer:
    """The scheduler of a prefill engine: it owns blocks until an event says that their hold has ended."""

    def __init__(self, day, geometry=LLAMA_8B, **options):
        self.engine = day.engine(day.p, "prefill", geometry, access=["remote_read"], **options)
        self.engine.extension = EXTENSION
        self.blocks = {}

    def prefill(self, request, count=PROMPT_BLOCKS, ttl=EXTENSION, consumers=1):
        """Computes a prompt and answers kv_transfer_params, which the router takes to the decode engine."""
        blocks = self.blocks[request] = self.engine.pool.take(count)
        for cache in self.engine.caches:
            cache.compute(blocks)
        until = self.engine.each("hold", request, self.engine.geometry.names, blocks, ttl, consumers)
        return {"request": request, "blocks": blocks, "expires": max(until)}

    def freed(self, request):
        """The outcome of the hold at each rank, once it is over at all of them; then the blocks are used anew."""
        if len(self.engine.holds.get(request, [])) < len(self.engine.processes):
            return None
        blocks = self.blocks.pop(request)
        self.engine.pool.give_back(blocks)
        for cache in self.engine.caches:
            cache.compute(blocks)  # whoever still reads would find this
        return self.engine.holds.pop(request)


class Consumer:
    """The scheduler of a decode engine."""

    def __init__(self, day, geometry=LLAMA_8B, **options):
        self.day = day
        self.engine = day.engine(day.d, "decode", geometry, **options)
        self.blocks = {}

    def load(self, params, producer, count=None):
        """Starts the read of the last `count` blocks of a prompt; those before are in the prefix cache."""
        request, theirs = params["request"], params["blocks"][-(count or len(params["blocks"])):]
        mine = self.blocks[request] = self.engine.pool.take(len(theirs))
        for rank, (process, cache) in enumerate(zip(self.engine.processes, self.engine.caches)):
            cache.expect(mine, producer.engine.caches[rank], theirs)
            notify = (producer.engine.address(rank), f"{request}:1", request)
            process.do("read", request, rank, mine, theirs, request, notify)

    def loaded(self, request):
        """Whether every rank has what it asked for, each byte of which is compared; Wrong when one has failed."""
        ends = [self.engine.ended.get((rank, request)) for rank in range(len(self.engine.processes))]
        if None in ends:
            return False
        for end, cache, name in zip(ends, self.engine.caches, self.engine.names):
            require(end["state"] == "succeeded", f"{request} at {name}: {end}")
            require(end["notified"], f"{request} at {name}: {end}")
            wrong = cache.differs_at(self.blocks[request])
            require(not wrong, f"{request} at {name}: {cache.name_of(wrong[0]) if wrong else ''} is wrong")
        return True

    def finish(self, request):
        self.engine.pool.give_back(self.blocks.pop(request))


def pull(day):
    """Reads that overlap, a prefix that is there already, a prompt that is, and heartbeats for one that waits."""
    producer, consumer = Producer(day), Consumer(day)
    consumer.engine.handshake(producer.engine)
    waiting = producer.prefill("waiting", ttl=LEASE)
    consumer.engine.processes[0].do("beat", "waiting", "p", producer.engine.address(), LEASE / 6)
    day.until(lambda: day.counts["heartbeats"], "a heartbeat")
    started = [f"r-{number}" for number in range(day.requests)]
    for number, request in enumerate(started):
        consumer.load(producer.prefill(request), producer, count=PROMPT_BLOCKS - 100 * (number % 3))
        if number:  # two at once
            finish(day, producer, consumer, started[number - 1])
    finish(day, producer, consumer, started[-1])
    nothing_to_read(day, producer, consumer)
    day.until(lambda: time.time() > waiting["expires"] + 0.1, "the time that it would have had without heartbeats")
    consumer.load(waiting, producer)
    finish(day, producer, consumer, "waiting")
    consumer.engine.processes[0].do("beat_no_more", "waiting")
    day.assert_nothing_is_left()


def finish(day, producer, consumer, request):
    day.until(lambda: consumer.loaded(request), f"{request} at the consumer")
    outcomes = day.until(lambda: producer.freed(request), f"the end of the hold of {request}")
    require(outcomes == [("consumed", 1)] * len(outcomes), f"the hold of {request} ended as {outcomes}")
    for _ in producer.engine.processes:
        day.until(lambda: producer.engine.take_message(f"{request}:1"), f"the notification of {request}")
    consumer.finish(request)


def nothing_to_read(day, producer, consumer):
    """The whole prompt is in the prefix cache: no transfer, so the consumer says so, and the producer takes it back."""
    producer.prefill("cached")
    consumer.engine.processes[0].do("notify", "p", producer.engine.address(), "cached:1", "cached")
    day.until(lambda: producer.engine.take_message("cached:1"), "the word that nothing is wanted")
    producer.engine.each("release", "cached")
    require(day.until(lambda: producer.freed("cached"), "the release") == [("released", 0)], "a hold that was released")


def late(day):
    """A hold whose consumer is too late ends at its time; the read is refused before a byte moves."""
    producer, consumer = Producer(day), Consumer(day)
    consumer.engine.handshake(producer.engine)
    params = producer.prefill("late", ttl=0.5)
    outcomes = day.until(lambda: producer.freed("late"), "the expiry")
    require(outcomes == [("expired", 0)], f"{outcomes}")
    mine = consumer.engine.pool.take(PROMPT_BLOCKS)
    code = refusal(consumer.engine.processes[0], "read", "late", 0, mine, params["blocks"], "late")
    require(code == "lease_expired", f"a late read: {code}")
    day.assert_all_is_as_wanted()
    consumer.engine.pool.give_back(mine)
    consumer.load(producer.prefill("late"), producer)  # computed again
    finish(day, producer, consumer, "late")
    day.assert_nothing_is_left()
