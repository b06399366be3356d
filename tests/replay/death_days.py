"""Days on which somebody is killed: the consumer, the producer, the sidecar of either, in the middle of a read."""

import signal
import time

from connector_rank import DEADLINE
from engines import Wrong, brief, problem, refusal, require, standing_still
from paged_cache import Geometry
from pull_days import PROMPT_BLOCKS, Consumer, Producer, finish
from workloads import ended, send, wait_for

GEOMETRY = Geometry(layers=32, kinds=("k", "v"), blocks=640, block_bytes=512)  # a prompt is more than a socket holds
ATTEMPTS_MAX = 40  # deaths, until one was in the middle of a read; with many requests, some more
SHORT_LEASE = 0.5  # what is left of a hold when its reader is dead
STILL_SECONDS = 1.5  # for which nothing moves, so that a death is noticed in the middle of a read
NOTICED_SECONDS = 30  # by then a consumer knows that a read has failed; its deadline is later


class Pair:
    def __init__(self, day):
        self.day, self.number = day, 0
        self.producer, self.consumer = Producer(day, GEOMETRY), Consumer(day, GEOMETRY)
        self.handshake()

    def handshake(self):
        self.consumer.handshake(self.producer)

    def begin(self):
        self.number += 1
        request = f"r{self.number}"
        self.consumer.load(self.producer.prefill(request, PROMPT_BLOCKS), self.producer)
        return request

    def in_a_read(self):
        """Nothing moves, most likely in the middle of a read; gives its request."""
        return self.day.in_the_middle(self.consumer.engine.processes[0], (f"r{self.number + 1}", 0), self.begin, reads=True)

    def whole_request(self):
        finish(self.day, self.producer, self.consumer, self.begin())

    def kill_in_a_read(self, victim):
        """Kills while a read is under way and none of its bytes gets on, until that was noticed or could have been."""
        with self.in_a_read() as request:
            if self.day.way == "shm":
                victim.kill()
                later = time.monotonic() + STILL_SECONDS
                while time.monotonic() < later and self.consumer.engine.processes[0].do("progress", (request, 0))[0] == "running":
                    time.sleep(0.02)
            else:  # the owner's sidecar stands still; it must go on to notice, and then who reads must not
                with standing_still([self.day.d.process.pid]):
                    victim.kill()
                    if not ended(self.day.p.process.pid):
                        send([self.day.p.process.pid], signal.SIGCONT)
                        wait_for(self._taken_back, NOTICED_SECONDS, "the buffers of the dead to be taken back")
        return request

    def _taken_back(self):
        buffers = self.day.p.ask("GET", "/v1/buffers?limit=1000")[1]["buffers"]
        return all(buffer["state"] != "active" for buffer in buffers)

    def noticed(self, request, codes):
        """Whether the consumer was told that the read failed, in time. One that had all its bytes succeeds, at its deadline:
        until then its message may still be delivered."""
        began = time.monotonic()
        end = self.day.until(lambda: self.consumer.ends(request), f"the end of {request}", DEADLINE + NOTICED_SECONDS,
                             only=self.consumer.engine)[0]
        if end["state"] == "succeeded":
            return False
        require(time.monotonic() - began < NOTICED_SECONDS, f"{request} ended late: {brief(end)}")
        require(end["state"] == "failed" and end["error"]["code"] in codes, f"{request}: {brief(end)}")
        self.consumer.engine.caches[0].accept(self.consumer.blocks[request])  # get_block_ids_with_load_errors
        return True

    def require_refusal(self, code, what, before=()):
        """A read by a hold that was consumed is refused with `code`; while word of the death is on its way, with one of `before`."""
        deadline = time.monotonic() + NOTICED_SECONDS
        while True:
            found = problem(self.consumer.engine.processes[0], "read", (what, 0), 0, [0], [0], "r1")
            if found is None or found.code not in before or time.monotonic() > deadline:
                break
            time.sleep(0.005)
        require(found is not None and found.code == code, f"{what} is answered by {found}, not {code}")
        return found.message


def consumer(day):
    """The consumer is killed while it reads: its hold expires, the blocks are free, and its next life reads them anew."""
    pair = Pair(day)
    for attempt in range(ATTEMPTS_MAX):
        outcomes = kill_the_reader(day, pair, pair.consumer.engine)
        pair.consumer.engine.start()
        pair.handshake()
        pair.whole_request()
        day.assert_nothing_is_left()
        if outcomes == [("expired", 0)] and attempt >= day.requests // 6:
            return
    raise Wrong(f"{ATTEMPTS_MAX} consumers were killed, and none of them in the middle of a read")


def producer(day):
    """The producer is killed while it is read and comes back: the old handshake is refused, the new one reads anew."""
    pair = Pair(day)
    # The last two if the consumer stood still for longer than what is taken back waits for it: then its session is ended.
    codes = {"draining", "stale_generation", "peer_lost", "peer_unavailable"}

    def come_back():
        day.until(lambda: day.p.ask("GET", "/v1/workloads/prefill")[0] == 404, "the end", only=pair.consumer.engine)
        message = pair.require_refusal("unregistered", "a read from a producer that is gone",
                                       before={"lease_expired", "not_found"} | codes)
        require("the workload has ended" in message, f"it does not say that the producer is gone: {message}")
        pair.producer.engine.start()

    restart_until_noticed(day, pair, pair.producer.engine, come_back, codes | {"unregistered"})


def sidecar(day):
    """The producer's sidecar is killed while it is read: both sides learn it, register and shake hands again."""
    pair = Pair(day)

    def come_back():
        worker = pair.producer.engine.processes[0]
        require(refusal(worker, "check") == "sidecar_lost", "the producer does not know that its sidecar is gone")
        pair.require_refusal("peer_unavailable", "a read from a sidecar that is gone", before={"peer_lost"})
        day.p.start()
        worker.do("open_again")
        pair.producer.engine.register()
        pair.consumer.engine.meet(pair.producer.engine)

    restart_until_noticed(day, pair, day.p, come_back, {"peer_lost", "peer_unavailable"})


def restart_until_noticed(day, pair, victim, come_back, codes):
    for attempt in range(ATTEMPTS_MAX):
        pair.whole_request()
        request = pair.kill_in_a_read(victim)
        noticed = pair.noticed(request, codes)
        come_back()
        pair.producer.engine.pool.give_back(pair.producer.blocks.pop(request))
        pair.consumer.finish(request)
        pair.require_refusal("stale_generation", "a read by the handshake with the life before")
        day.assert_all_is_as_wanted()
        pair.handshake()
        pair.whole_request()
        day.assert_nothing_is_left()
        if noticed and attempt >= day.requests // 6:
            return
    raise Wrong(f"{ATTEMPTS_MAX} deaths, and none of them in the middle of a read")


def own_sidecar(day):
    """The consumer's sidecar is killed while it reads: the hold expires, and the consumer begins anew."""
    pair = Pair(day)
    for _ in range(1 + day.requests // 6):
        pair.whole_request()
        kill_the_reader(day, pair, day.d)
        begin_anew(day, pair)
        pair.whole_request()
        day.assert_nothing_is_left()


def begin_anew(day, pair):
    worker = pair.consumer.engine.processes[0]
    require(refusal(worker, "check") == "sidecar_lost", "the consumer does not know that its sidecar is gone")
    day.d.start()
    worker.do("open_again")
    pair.consumer.engine.register()
    pair.handshake()


def kill_the_reader(day, pair, victim):
    """Kills in a read; the producer, which hears no more heartbeats, has its blocks back. How the hold ended."""
    with pair.in_a_read() as request:
        victim.kill()
    refused = refusal(pair.producer.engine.processes[0], "extend", request, SHORT_LEASE)
    require(refused in (None, "lease_expired"), f"less time for a hold: {refused}")  # the latter: it was read in time
    outcomes = day.until(lambda: pair.producer.freed(request), "the end of the hold", only=pair.producer.engine)
    require(outcomes in ([("expired", 0)], [("consumed", 1)]), f"the hold of one who died ended as {outcomes}")
    pair.consumer.engine.caches[0].accept(range(GEOMETRY.blocks))
    pair.consumer.finish(request)
    return outcomes
