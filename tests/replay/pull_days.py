"""vLLM's pull (NixlConnector): the producer holds blocks for a time, the consumer reads them by number and says so."""

import time

from engines import brief, refusal, require
from paged_cache import Geometry

LLAMA_8B = Geometry(layers=32, kinds=("k", "v"), blocks=1600, block_bytes=128)  # 16 tokens a block, 32 KiB in earnest
PROMPT_BLOCKS = 512  # 8192 tokens: 32768 blocks of 64 buffers
LEASE = 2.0  # seconds that a hold stands without a heartbeat, which comes every sixth of it
EXTENSION = 30.0  # what a heartbeat gives: in earnest 20 s beside a lease of 30, here enough for a machine that stalls


class Producer:
    """The scheduler of a prefill engine: it owns blocks until an event says that their hold has ended."""

    def __init__(self, day, geometry=LLAMA_8B, **options):
        self.engine = day.engine(day.p, "prefill", geometry, access=["remote_read"], **options)
        self.engine.extension = EXTENSION
        self.blocks, self.consumers = {}, {}

    def prefill(self, request, count=PROMPT_BLOCKS, ttl=EXTENSION, consumers=1):
        """Computes a prompt and answers kv_transfer_params, which the router takes to the decode engine."""
        blocks = self.blocks[request] = self.engine.pool.take(count)
        self.consumers[request] = consumers
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
    """The scheduler of a decode engine. Rank r reads from the producer's ranks sources[r] (its own number unless said), of
    which slices(r, i) says what of each block comes from the i-th."""

    def __init__(self, day, geometry=LLAMA_8B, sources=None, slices=None, **options):
        self.day, self.slices = day, slices
        self.engine = day.engine(day.d, "decode", geometry, **options)
        self.sources = sources or [[rank] for rank in range(len(self.engine.processes))]
        self.blocks = {}

    def handshake(self, producer):
        self.engine.handshake(producer.engine, self.sources, self.slices)

    def load(self, params, producer, count=None):
        """Starts the reads of the last `count` blocks of a prompt; those before are in the prefix cache."""
        request, theirs = params["request"], params["blocks"][-(count or len(params["blocks"])):]
        mine = self.blocks[request] = self.engine.pool.take(len(theirs))
        for rank, index, source in self._reads():
            slices = self.slices and self.slices(rank, index)
            self.engine.caches[rank].expect(mine, producer.engine.caches[source], theirs, slices)
            notify = (producer.engine.address(source), f"{request}:1", request)
            self.engine.processes[rank].do("read", (request, index), source, mine, theirs, request, notify)

    def _reads(self):
        return [(rank, index, source) for rank, sources in enumerate(self.sources) for index, source in enumerate(sources)]

    def ends(self, request):
        """How the reads of a request ended, once all of them have."""
        ends = [self.engine.ended.get((rank, (request, index))) for rank, index, _ in self._reads()]
        return None if None in ends else ends

    def loaded(self, request):
        """Whether every rank has what it asked for, each byte of which is compared; Wrong when one has failed."""
        ends = self.ends(request)
        for end in ends or []:
            require(end["state"] == "succeeded" and end["notified"], f"{request}: {brief(end)}")
        for name, cache in zip(self.engine.names, self.engine.caches) if ends else []:
            wrong = cache.differs_at(self.blocks[request])
            require(not wrong, f"{request} at {name}: {cache.name_of(wrong[0]) if wrong else ''} is wrong")
        return ends is not None

    def finish(self, request):
        self.engine.pool.give_back(self.blocks.pop(request))


def pull(day):
    """Reads that overlap, a prefix that is there already, a prompt that is, and heartbeats for one that waits."""
    producer, consumer = Producer(day), Consumer(day)
    consumer.handshake(producer)
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


def finish(day, producer, consumer, request, outcomes=None):
    """Until the consumer has it, and the producer has its blocks back and was told by everybody who read them."""
    day.until(lambda: consumer.loaded(request), f"{request} at the consumer")
    found = day.until(lambda: producer.freed(request), f"the end of the hold of {request}")
    wanted = outcomes or [("consumed", producer.consumers[request])] * len(producer.engine.processes)
    require(sorted(found) == sorted(wanted), f"the hold of {request} ended as {found}")
    for _ in range(sum(len(sources) for sources in consumer.sources)):
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
    consumer.handshake(producer)
    params = producer.prefill("late", ttl=0.5)
    outcomes = day.until(lambda: producer.freed("late"), "the expiry")
    require(outcomes == [("expired", 0)], f"{outcomes}")
    mine = consumer.engine.pool.take(PROMPT_BLOCKS)
    code = refusal(consumer.engine.processes[0], "read", ("late", 0), 0, mine, params["blocks"], "late")
    require(code == "lease_expired", f"a late read: {code}")
    day.assert_all_is_as_wanted()
    consumer.engine.pool.give_back(mine)
    consumer.load(producer.prefill("late"), producer)  # computed again
    finish(day, producer, consumer, "late")
    day.assert_nothing_is_left()
