"""One workload of the soak: a process that reads, writes, cancels and registers at random, with a model of every byte.

Each workload has three buffers of blocks. Its `store` never changes. Its `mail` has a lane for each workload, which
that one alone writes to. Its `inbox` is written by its own reads alone. So it is known at any time what a block must
contain, but for those that a transfer may have touched which did not succeed.
"""

import collections
import random
import time

from workloads import BOTH, Memory, gantry

BLOCK = 256 << 10
WORKLOADS = 8
LANE = 8  # blocks
BLOCKS = LANE * WORKLOADS  # of every buffer
DEADLINE_SECONDS = 8
# A transfer that was stopped has ended by then: 12 s is the longest that docs/operations.md ("Who executes") says of one
# that a peer executes, which may be killed or cut off meanwhile; the rest is what a busy machine adds.
QUIET_SECONDS = 12 + 2
END_SECONDS = DEADLINE_SECONDS + QUIET_SECONDS  # by then every transfer has ended

# How a transfer may be refused or end while others die.
EXPECTED = {"cancelled", "unregistered", "not_found", "draining", "stale_generation", "peer_lost", "peer_unavailable",
            "sidecar_lost", "worker_lost", "deadline_exceeded", "shutting_down", "path_unavailable"}
# What is said by the client library when the sidecar itself was killed; the process is killed as well then.
SIDECAR_LOST = {"sidecar_lost", "peer_unavailable"}


def content(owner, block):
    """The bytes of a block of a store."""
    return random.Random(f"{owner}/{block}").randbytes(BLOCK)


class Land:
    """The memory of one workload. It outlives its processes."""

    def __init__(self, index):
        self.index, self.name = index, f"w{index}"
        self.store, self.mail, self.inbox = (Memory(BLOCKS * BLOCK) for _ in range(3))
        for block in range(BLOCKS):
            self.store.map[block * BLOCK:(block + 1) * BLOCK] = content(index, block)

    def changed_blocks_of_its_store(self):
        return [block for block in range(BLOCKS)
                if self.store.map[block * BLOCK:(block + 1) * BLOCK] != content(self.index, block)]

    def close(self):
        for memory in (self.store, self.mail, self.inbox):
            memory.close()


class Mismatch(AssertionError):
    pass


class Life:
    """What one process does. `reference(other)` is how it names the workload of that index."""

    def __init__(self, run_dir, lands, index, reference, seed):
        self.lands_of_all, land = lands, lands[index]
        self.land, self.reference, self.random = land, reference, random.Random(seed)
        self.client = gantry.Client(run_dir, land.name)
        self.arenas = {name: self.client.adopt(getattr(land, name).fd) for name in ("store", "mail", "inbox")}
        self.counts = collections.Counter()
        self.inbox = {}  # block -> (owner, block of the owner's store)
        self.lanes = {}  # (workload, block of its mail) -> block of this one's store
        self.layout = gantry.Layout(BLOCK)
        self.buffers = {name: self.registered(name, ("remote_read",) if name == "store" else BOTH)
                        for name in ("store", "mail", "inbox")}

    def registered(self, name, access):
        """Tries again while workers that were killed just now are being replaced."""
        end = time.monotonic() + QUIET_SECONDS
        while True:
            try:
                return self.client.register(name, self.arenas[name].view(0, BLOCKS * BLOCK), layout=self.layout, access=access)
            except gantry.Error as error:
                if error.code != "worker_lost" or time.monotonic() > end:
                    raise
                self.counts["refused " + error.code] += 1
                time.sleep(0.02)

    def step(self):
        deeds = [(self.read, 6), (self.write, 5), (self.read_back, 4), (self.look, 2), (self.register_and_delete, 1),
                 (self.replace_mail, 0.2)]
        deed = self.random.choices([deed for deed, _ in deeds], [weight for _, weight in deeds])[0]
        try:
            deed()
        except gantry.Error as error:
            if error.code not in EXPECTED:
                raise
            self.counts["refused " + error.code] += 1
            if error.code in SIDECAR_LOST:
                time.sleep(0.02)

    def move(self, operation, local, remote, local_blocks, remote_blocks):
        """Indices in the lists of blocks of which it is certain that they arrived, and of which it is not."""
        everything = range(len(local_blocks))
        at_peer = remote.count("/") == 2
        try:
            transfer = operation(local, remote, local_blocks=local_blocks, remote_blocks=remote_blocks,
                                 deadline=DEADLINE_SECONDS, priority=self.random.randint(-10, 10),
                                 executor="peer" if at_peer and self.random.random() < 0.3 else "any")
        except gantry.Error as error:
            if error.code in SIDECAR_LOST and self.sidecar_is_gone():
                self.counts["no answer " + error.code] += 1
                time.sleep(0.02)
                return [], list(everything)  # it may have begun, and moved what it moved
            raise
        try:
            if self.random.random() < 0.15:
                time.sleep(self.random.choice([0, 0, 0.0005, 0.002]))
                transfer.cancel(END_SECONDS)
            transfer.wait(END_SECONDS)
            self.counts["succeeded"] += 1
            self.counts["executed by the peer"] += transfer.details()["executor"] == "peer"
            return list(everything), []
        except gantry.Error as error:
            if error.code not in EXPECTED:
                raise
            details = transfer.details()
            self.counts[f"{details['state']} {error.code}"] += 1
            if details["state"] not in ("failed", "cancelled", "expired"):
                if error.code not in SIDECAR_LOST:
                    raise Mismatch(f"a transfer is {details['state']} after {END_SECONDS} s: {details}") from None
                return [], list(everything)  # nobody can tell any more
            failed = set(details["failed_items"])
            return [index for index in everything if index not in failed], sorted(failed)

    def sidecar_is_gone(self):
        try:
            self.client.request("GET", "/v1/info")
            return False
        except gantry.Error as error:
            return error.code in SIDECAR_LOST

    def check(self, memory, block, owner, source, what):
        # The stores are compared with what they must contain when everything is over.
        wanted = self.lands_of_all[owner].store.map[source * BLOCK:(source + 1) * BLOCK]
        found = memory.map[block * BLOCK:(block + 1) * BLOCK]
        if found != wanted:
            raise Mismatch(f"{self.land.name}: block {block} after {what} is not block {source} of w{owner}, but "
                           f"{self.describe(found)}")

    def describe(self, found):
        """Where the two halves of a block come from."""
        half = BLOCK // 2
        told = []
        for name, start in (("begins", 0), ("ends", half)):
            places = [f"{name} as block {block} of w{owner}" for owner, land in enumerate(self.lands_of_all)
                      for block in range(BLOCKS)
                      if land.store.map[block * BLOCK + start:block * BLOCK + start + half] == found[start:start + half]]
            told += places or [f"{name} like none"]
        return " and ".join(told)

    def some(self, blocks, most):
        return self.random.sample(blocks, min(len(blocks), self.random.randint(1, most)))

    def fill_inbox(self, remote, remote_blocks, sources, what):
        """Reads into random blocks; sources[i] is the (owner, block of its store) that remote_blocks[i] contains."""
        local_blocks = self.random.sample(range(BLOCKS), len(remote_blocks))
        arrived, unknown = self.move(self.client.read, self.buffers["inbox"], remote, local_blocks, remote_blocks)
        for index in unknown:
            self.inbox.pop(local_blocks[index], None)
        for index in arrived:
            self.inbox[local_blocks[index]] = sources[index]
            self.check(self.land.inbox, local_blocks[index], *sources[index], what)

    def read(self):
        owner = self.random.randrange(WORKLOADS)
        blocks = self.some(range(BLOCKS), 48)
        self.fill_inbox(f"{self.reference(owner)}/store", blocks, [(owner, block) for block in blocks], "a read")

    def write(self):
        owner = self.random.randrange(WORKLOADS)
        lane = self.some(range(LANE * self.land.index, LANE * (self.land.index + 1)), LANE)
        mine = self.random.sample(range(BLOCKS), len(lane))
        mail = f"{self.reference(owner)}/mail"
        arrived, unknown = self.move(self.client.write, self.buffers["store"], mail, mine, lane)
        for index in unknown:
            self.lanes.pop((owner, lane[index]), None)
        for index in arrived:
            self.lanes[owner, lane[index]] = mine[index]

    def read_back(self):
        if not self.lanes:
            return
        owner = self.random.choice(sorted(self.lanes))[0]
        blocks = [block for known, block in self.lanes if known == owner]
        self.fill_inbox(f"{self.reference(owner)}/mail", blocks,
                        [(self.land.index, self.lanes[owner, block]) for block in blocks], "reading back")

    def look(self):
        for block in self.some(sorted(self.inbox), 16):
            self.check(self.land.inbox, block, *self.inbox[block], "others")

    def register_and_delete(self):
        """A buffer of pieces in any order over the store, read by its own workload."""
        order = self.some(range(BLOCKS), 16)
        views = [self.arenas["store"].view(block * BLOCK, BLOCK) for block in order]
        name = f"extra-{self.random.randrange(1 << 30)}"
        with self.client.register(name, views, layout=self.layout):
            self.fill_inbox(name, list(range(len(order))), [(self.land.index, block) for block in order], "pieces")

    def replace_mail(self):
        """Others see another generation, and what is in the memory stays."""
        try:
            self.buffers["mail"].unregister(drain=END_SECONDS)
        finally:
            self.buffers["mail"] = self.client.register("mail", self.arenas["mail"].view(0, BLOCKS * BLOCK),
                                                        access=BOTH, layout=self.layout)


def live(pipe, run_dir, lands, index, reference, seed):
    """Steps until it is told to stop. Reports its counts every now and then, and what went wrong."""
    try:
        life = Life(run_dir, lands, index, reference, seed)
        while not pipe.poll():
            for _ in range(10):
                life.step()
            pipe.send(("going on", dict(life.counts)))
            life.counts.clear()
        for block in life.inbox:
            life.check(life.land.inbox, block, *life.inbox[block], "all")
        pipe.send(("done", dict(life.counts)))
    except (BrokenPipeError, EOFError):
        return
    except BaseException as error:
        pipe.send(("failed", f"{type(error).__name__}: {error}"))
