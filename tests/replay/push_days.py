"""Connectors whose producer writes: vLLM's push, with whole prompts, and MoRI's (MoRIIOConnector), layer by layer."""

import json

from engines import brief, refusal, require
from paged_cache import Geometry
from pull_days import LLAMA_8B, PROMPT_BLOCKS

LLAMA_70B_TP4 = Geometry(layers=80, kinds=("kv",), blocks=1024, block_bytes=128)  # 16 KiB in earnest, K and V in one block


class WriterPair:
    """A producer that writes, and a consumer that says where to and is told when all is there."""

    def __init__(self, day, geometry, **options):
        self.day = day
        self.p = day.engine(day.p, "prefill", geometry, **options)
        self.d = day.engine(day.d, "decode", geometry, access=["remote_write"], **options)
        self.p.handshake(self.d)
        self.d.meet(self.p)
        self.p.each("follow_events")
        self.writer, self.receiver = self.p.processes[0], self.d.processes[0]
        self.source, self.target = self.p.caches[0], self.d.caches[0]
        self.sources, self.targets = {}, {}  # blocks by request

    def prefill(self, request, count=PROMPT_BLOCKS, compute=True):
        self.sources[request] = self.p.pool.take(count)
        if compute:
            self.source.compute(self.sources[request])

    def ask_for(self, request, count=PROMPT_BLOCKS):
        """The consumer names its blocks; a message has room for some 8000 ids in JSON."""
        self.targets[request] = self.d.pool.take(count)
        self.tell_blocks(request, self.targets[request])

    def tell_blocks(self, request, blocks, **more):
        message = "PUSH_REG:" + json.dumps({"blocks": blocks, **more})
        self.receiver.do("notify", "p", self.p.address(), message, request)

    def asked(self, request):
        """What the consumer said of a request, once it has arrived."""
        for entry in self.p.messages:
            if entry[1].startswith("PUSH_REG:") and entry[2] == request:
                self.p.messages.remove(entry)
                return json.loads(entry[1][len("PUSH_REG:"):])
        return None

    def answer(self, request, theirs):
        """Writes a prompt to where the consumer said."""
        self.target.expect(theirs, self.source, self.sources[request])
        self.writer.do("write", request, 0, self.sources[request], theirs, (self.d.address(), f"done:{request}", request))

    def refused(self, request, theirs):
        return refusal(self.writer, "write", request, 0, self.sources[request], theirs)

    def ended(self, key):
        return self.p.ended.get((0, key))

    def succeeded(self, key):
        end = self.ended(key)
        require(end is None or end["state"] == "succeeded", f"{key}: {end and brief(end)}")
        return end is not None

    def told(self, text):
        """The consumer was told; at that moment every byte that it was told of must be there."""
        return self.d.take_message(text)

    def assert_arrived(self, request):
        wrong = self.target.differs_at(self.targets[request])
        require(not wrong, f"{request}: {self.target.name_of(wrong[0]) if wrong else ''} is wrong")

    def finish(self, request):
        self.p.pool.give_back(self.sources.pop(request))
        self.d.pool.give_back(self.targets.pop(request))


def push(day):
    """Whole prompts, whether the consumer asks first or the producer is ready first; the consumer is told by the write."""
    pair = WriterPair(day, LLAMA_8B)
    for number in range(day.requests):
        request = f"r-{number}"
        if number % 2:
            pair.prefill(request)
            day.step()
        pair.ask_for(request)
        asked = day.until(lambda: pair.asked(request), f"PUSH_REG of {request}")
        if number % 2 == 0:
            pair.prefill(request)
        pair.answer(request, asked["blocks"])
        day.until(lambda: pair.told(f"done:{request}"), f"the word that {request} is written")
        pair.assert_arrived(request)
        day.until(lambda: pair.succeeded(request), f"the write of {request}")
        require(pair.ended(request)["notified"], f"{request}: {brief(pair.ended(request))}")
        pair.source.compute(pair.sources[request])  # the producer's blocks are its own again
        pair.finish(request)
    day.assert_nothing_is_left()


def batch(day):
    """Mooncake: several prompts are asked for at once, one of them is not ready yet; each ends by itself, one not well."""
    pair = WriterPair(day, LLAMA_8B, stretch=8)
    for number in range(day.requests):
        good, late, unknown, wrong = (f"{name}-{number}" for name in ("good", "late", "unknown", "wrong"))
        pair.prefill(good)
        pair.prefill(wrong, 8)
        for request in (good, late):
            pair.targets[request] = pair.d.pool.take(PROMPT_BLOCKS)
        outside = list(range(LLAMA_8B.blocks - 4, LLAMA_8B.blocks + 4))
        pair.tell_blocks("batch", {good: pair.targets[good], late: pair.targets[late], unknown: [0], wrong: outside})
        asked = day.until(lambda: pair.asked("batch"), "the metadata")["blocks"]
        pair.answer(good, asked[good])
        require(pair.refused(wrong, asked[wrong]) == "out_of_range", "blocks that are not there are not refused")
        for request in (unknown, wrong):
            pair.writer.do("notify", "d", pair.d.address(), f"error:{request}", request)
        pair.prefill(late)
        pair.answer(late, asked[late])
        for request in (good, late):
            day.until(lambda: pair.told(f"done:{request}"), f"the word that {request} is written")
            pair.assert_arrived(request)
            day.until(lambda: pair.succeeded(request), f"the write of {request}")
            end = pair.ended(request)
            require(end["descriptors_out"] * 4 < end["descriptors_in"], f"stretches were not merged: {end['descriptors_out']}")
            pair.finish(request)
        for request in (unknown, wrong):
            day.until(lambda: pair.told(f"error:{request}"), f"the word that {request} is not")
        pair.p.pool.give_back(pair.sources.pop(wrong))
    day.assert_nothing_is_left()


def layers(day):
    """A write for each layer, submitted before it is computed; the last one tells the consumer; one request is given up."""
    pair = WriterPair(day, LLAMA_70B_TP4)
    pair.writer.do("start_clock")
    now = 0
    for number in range(day.requests):
        request, gives_up = f"r-{number}", number == day.requests - 1
        pair.prefill(request, compute=False)
        pair.ask_for(request)
        theirs = day.until(lambda: pair.asked(request), f"PUSH_REG of {request}")["blocks"]
        last = LLAMA_70B_TP4.layers - 1
        for layer in range(last + 1):
            # Transfers do not wait for each other: the last one begins when the others have ended, so it speaks for all.
            notify = (pair.d.address(), f"done:{request}", request) if layer == last else None
            fence = now + layer + (2 if layer == last else 1)
            pair.writer.do("write", (request, layer), 0, pair.sources[request], theirs, notify, (layer, layer), None, fence)
        if gives_up:
            compute_layers(day, pair, request, now, range(last // 2))
            give_up(day, pair, request, range(last // 2, last + 1))
        else:
            compute_layers(day, pair, request, now, range(last + 1))
            day.until(lambda: all(pair.succeeded((request, layer)) for layer in range(last)), f"the layers of {request}")
            require(not pair.told(f"done:{request}"), f"{request}: told before the last layer was written")
            pair.writer.do("tick", now + last + 2)
            day.until(lambda: pair.told(f"done:{request}"), f"the word that {request} is written")
            pair.assert_arrived(request)
            day.until(lambda: pair.succeeded((request, last)), f"the last layer of {request}")
        now += last + 2
        pair.writer.do("tick", now)
        pair.finish(request)
    day.assert_nothing_is_left()


def compute_layers(day, pair, request, now, layers):
    """The forward pass. In its middle exactly the layers that were computed are at the consumer."""
    for layer in layers:
        pair.source.compute(pair.sources[request], (layer, layer))
        pair.target.expect(pair.targets[request], pair.source, pair.sources[request], layers=(layer, layer))
        pair.writer.do("tick", now + layer + 1)
        if layer % 8 == 0:
            day.step()
        if layer == len(layers) // 2:
            day.until(lambda: all(pair.succeeded((request, done)) for done in range(layer + 1)), "the layers so far")
            day.assert_all_is_as_wanted()


def give_up(day, pair, request, layers):
    """The producer fails in the forward pass. It tells the consumer when nothing can be written any more."""
    day.until(lambda: all(pair.succeeded((request, layer)) for layer in range(layers[0])), "the layers so far")
    for layer in layers:
        pair.writer.do("cancel", (request, layer))
    day.until(lambda: all(pair.ended((request, layer)) for layer in layers), "the end of what was cancelled")
    states = {pair.ended((request, layer))["state"] for layer in layers}
    require(states == {"cancelled"}, f"layers that were cancelled have {states}")
    pair.writer.do("notify", "d", pair.d.address(), f"failed:{request}", request)
    day.until(lambda: pair.told(f"failed:{request}"), "the word that the producer gave up")
    require(not pair.told("done:"), "told that a request is written that was given up")
    pair.target.compute(pair.targets[request])  # the consumer computes the prompt itself
