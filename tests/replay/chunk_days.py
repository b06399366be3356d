"""SGLang: chunks of a prompt are written as it is computed, the last one with the first token; some rooms are aborted."""

import time

from engines import Wrong, brief, require
from paged_cache import Geometry, runs
from push_days import WriterPair

# Page size 1: a page is a token, 2 KiB in earnest. The allocator hands out stretches of 64 of them.
LLAMA_8B_PAGES = Geometry(layers=32, kinds=("k", "v"), blocks=20480, block_bytes=16, aux_bytes=256)
PROMPT_PAGES = 8192  # of 64 buffers: 524288 descriptors
CHUNK_PAGES = 1024  # as many indices as SGLang puts into one batch
STRETCH = 64
ABORTS_MAX = 40  # rooms that are tried until one is aborted while its bytes move
STILL_SECONDS = 0.2  # for which nothing moves, and a room that is aborted has not ended
QUIET_SECONDS = 0.3  # for which nothing may be written into pages that are used again


class Rooms(WriterPair):
    """Senders and receivers of SGLang, by room; each has one block of the auxiliary buffer at either side."""

    def __init__(self, day):
        super().__init__(day, LLAMA_8B_PAGES, stretch=STRETCH)
        self.aux = {}

    def bootstrap(self, room):
        """send_metadata of the receiver: its pages and its block of aux. Answers them as the sender got them."""
        self.aux[room] = len(self.aux) % Geometry.AUX_BLOCKS
        self.targets[room] = self.d.pool.take(PROMPT_PAGES)
        self.tell_blocks(room, list(runs(self.targets[room])), aux=self.aux[room])
        said = self.day.until(lambda: self.asked(room), f"the metadata of {room}")
        return [page for first, count in said["blocks"] for page in range(first, first + count)], said["aux"]

    def send(self, room, number, chunk, is_last=False, pages=CHUNK_PAGES):
        """KVSender.send(): one chunk. Its notification comes when its own bytes are there, whatever else is under way."""
        mine, theirs = (blocks[number * pages:(number + 1) * pages] for blocks in (self.sources[room], self.targets[room]))
        self.target.expect(theirs, self.source, mine)
        notify = (self.d.address(), f"{room}_kv_{number}_{int(is_last)}", room)
        self.writer.do("write", (room, chunk), 0, mine, theirs, notify)

    def send_aux(self, room, aux):
        self.source.compute_aux(aux)
        self.target.expect_aux(aux, self.source, aux)
        notify = (self.d.address(), f"{room}_aux", room)
        self.writer.do("write", (room, "aux"), 0, [], [], notify, None, (aux, aux))

    def poll(self, room, arrived):
        """KVReceiver.poll(): what has arrived of a room; success when the last chunk, all before it and aux are there."""
        while (entry := self.d.take_message(f"{room}_")) is not None:
            arrived.add(entry[1][len(room) + 1:])
        last = [name for name in arrived if name.startswith("kv_") and name.endswith("_1")]
        return bool(last) and "aux" in arrived and len(arrived) == int(last[0].split("_")[1]) + 2


def chunks(day):
    """Chunked prefill over pages of one token with a first token at the end; then rooms that are aborted by either side."""
    rooms = Rooms(day)
    for number in range(day.requests):
        whole_room(day, rooms, f"room{number}")
    for by_receiver in (False, True):
        abort_while_bytes_move(day, rooms, by_receiver)
    whole_room(day, rooms, "after")
    day.assert_nothing_is_left()


def whole_room(day, rooms, room):
    rooms.prefill(room, PROMPT_PAGES, compute=False)
    theirs, aux = rooms.bootstrap(room)
    require(theirs == rooms.targets[room], f"{room}: the pages that were said are not those that were meant")
    count, arrived = PROMPT_PAGES // CHUNK_PAGES, set()
    for number in range(count):
        rooms.source.compute(rooms.sources[room][number * CHUNK_PAGES:(number + 1) * CHUNK_PAGES])
        rooms.send(room, number, number, number == count - 1)
        day.step()
        require(not rooms.poll(room, arrived), f"{room}: success before the first token was sent")
    rooms.send_aux(room, aux)
    day.until(lambda: rooms.poll(room, arrived), f"all of {room}")
    rooms.assert_arrived(room)
    day.until(lambda: all(rooms.succeeded((room, chunk)) for chunk in [*range(count), "aux"]), f"the writes of {room}")
    rooms.finish(room)


def abort_while_bytes_move(day, rooms, by_receiver):
    """Rooms whose prompt goes out at once and is aborted, until one was in the middle of its bytes."""
    for attempt in range(ABORTS_MAX):
        room = f"{'receiver' if by_receiver else 'sender'}{attempt}"
        rooms.prefill(room, PROMPT_PAGES)
        rooms.bootstrap(room)
        if by_receiver:
            rooms.receiver.do("notify", "p", rooms.p.address(), "ABORT", room)
            day.until(lambda: rooms.p.take_message("ABORT"), "the word of the receiver")
        end = send_and_abort(day, rooms, room)
        if 0 < end["bytes_moved"] < end["bytes"]:
            return
    raise Wrong(f"none of {ABORTS_MAX} rooms was aborted while its bytes moved")


def send_and_abort(day, rooms, room):
    """KVSender.abort(), in the middle of a prompt: the receiver hears of it once nothing is written any more, and uses the pages at once.

    For a while nothing moves, so that what was under way arrives late.
    """
    key = (room, "all")
    with day.in_the_middle(rooms.writer, key, lambda: rooms.send(room, 0, "all", pages=PROMPT_PAGES)):
        rooms.writer.do("cancel", key)
        later = time.monotonic() + STILL_SECONDS
        day.until(lambda: rooms.ended(key) or time.monotonic() > later, "a while", only=rooms.p)
        reused = rooms.ended(key)  # although nobody can be asked: then nothing may be under way
        if reused:
            rooms.target.compute(rooms.targets[room])  # another request's
    end = day.until(lambda: rooms.ended(key), f"the end of {room}")
    require(end["state"] in ("cancelled", "succeeded"), f"{room}: {brief(end)}")
    rooms.writer.do("notify", "d", rooms.d.address(), f"aborted:{room}", room)
    day.until(lambda: rooms.told(f"aborted:{room}"), f"the word that {room} is aborted")
    told = rooms.told(f"{room}_")
    require(end["state"] == "succeeded" or not told, f"{room}: {end['state']}, and yet the receiver was told {told}")
    if not reused:
        rooms.target.compute(rooms.targets[room])
    quiet_until = time.monotonic() + (QUIET_SECONDS if end["state"] == "cancelled" else 0)
    day.until(lambda: time.monotonic() > quiet_until, "a while")
    wrong = rooms.target.differs_at(rooms.targets[room])
    require(not wrong, f"{room} was written after its end: {rooms.target.name_of(wrong[0]) if wrong else ''}")
    rooms.finish(room)
    return end


def slices(day):
    """One producer with all heads, two consumers with half of them each: a descriptor for each token, layer and rank."""
    half = LLAMA_8B_PAGES.block_bytes
    pages = PROMPT_PAGES + 2 * CHUNK_PAGES
    both, one = (Geometry(LLAMA_8B_PAGES.layers, ("k", "v"), pages, size) for size in (2 * half, half))
    p = day.engine(day.p, "prefill", both, stretch=STRETCH)
    d = day.engine(day.d, "decode", one, ranks=2, access=["remote_write"], stretch=STRETCH)
    p.handshake(d, [[0, 1]], lambda _, rank: [(rank * half, 0, half)])
    mine, theirs = p.pool.take(PROMPT_PAGES), d.pool.take(PROMPT_PAGES)
    p.caches[0].compute(mine)
    for rank, cache in enumerate(d.caches):
        cache.expect(theirs, p.caches[0], mine, [(0, rank * half, half)])
    keys = [(chunk, rank) for chunk in range(PROMPT_PAGES // CHUNK_PAGES) for rank in range(2)]
    for chunk, rank in keys:
        part = slice(chunk * CHUNK_PAGES, (chunk + 1) * CHUNK_PAGES)
        p.processes[0].do("write", (chunk, rank), rank, mine[part], theirs[part], (d.address(rank), f"kv_{chunk}", None))
        day.step()
    for chunk, rank in keys:
        end = day.until(lambda: p.ended.get((0, (chunk, rank))), "the end of a chunk")
        require(end["state"] == "succeeded" and end["notified"], brief(end))
        require(end["descriptors_in"] == CHUNK_PAGES * len(both.names), brief(end))
    for rank, cache in enumerate(d.caches):
        require(not cache.differs_at(theirs), f"rank {rank} has not what was written")
    day.until(lambda: len(d.messages) == len(keys), "the word of every chunk")
    day.assert_nothing_is_left()
