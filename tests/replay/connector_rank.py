"""What a connector does inside one rank of an engine, in a process of its own; the scheduler tells it by a pipe."""

import ctypes
import time

from workloads import gantry

DEADLINE = 60.0  # seconds that a transfer has, unless said


class ConnectorRank:
    """One workload with a paged cache. Nothing here waits: `step` is called once for each step of the engine."""

    def __init__(self, run_dir, name):
        self.run_dir, self.name = run_dir, name
        self._open()

    def _open(self):
        self.client = gantry.Client(self.run_dir, self.name, engine_id=self.name)
        self.cursor = 0  # of the events of this life
        self.views, self.holds, self.transfers, self.beats = {}, {}, {}, {}
        self.clock, self.by_events = None, False

    def open_again(self):
        """After the sidecar was restarted: a new lease; the memory is registered anew by the next command."""
        self.client.close()
        self._open()

    def check(self):
        self.client.check()

    def register_kv_caches(self, path, specs, access):
        """The buffers of the cache, all of one allocation. Answers what the handshake tells the other engine."""
        with open(path, "r+b", buffering=0) as file:
            self.arena = self.client.adopt(file.fileno())
        self.buffers = self.client.register_many([
            gantry.BufferSpec(name, self.arena.view(offset, length), access, gantry.Layout(block_bytes))
            for name, offset, length, block_bytes in specs])
        return {"workload": self.name, "generation": self.client.generation,
                "buffers": {buffer.name: buffer.generation for buffer in self.buffers}}

    def start_clock(self):
        """The counter that fences wait for; `tick` raises it."""
        page = self.client.arena(4096)
        self.clock = self.client.register("clock", page, access=())
        self.counter = ctypes.c_uint64.from_buffer(page)

    def tick(self, value):
        self.counter.value = value

    def meet(self, peer, address):
        """For messages alone."""
        return self.client.set_peer(peer, address)["state"]

    def add_remote(self, key, peer, address, metadata, slices=None):
        """The answer to a handshake: the peer, and a view that refuses every other life of its buffers. How many pairs.

        "aux" has blocks of its own, so it is a group of its own, 1.
        """
        self.client.set_peer(peer, address)
        theirs = metadata["buffers"]
        pairs = [(buffer.name, f"{buffer.name}@{theirs[buffer.name]}") for buffer in self.buffers
                 if buffer.name in theirs and buffer.name != "aux"]
        aux = {1: gantry.ViewGroup([("aux", f"aux@{theirs['aux']}")])} if "aux" in theirs else {}
        chosen = None if slices is None else [gantry.Slice((mine, length), (other, length)) for mine, other, length in slices]
        groups = {0: gantry.ViewGroup(pairs, chosen), **aux}
        self.views[key] = self.client.view(metadata["workload"], peer=peer, groups=groups)
        return len(self.views[key])

    # Transfers. `key` names one until it has ended; several may be under way for a request. With `follow_events` the step
    # learns of their ends by the events, in one call for all of them; else it asks for each, as vLLM does.

    def follow_events(self):
        self.by_events = True

    def read(self, key, view, mine, theirs, hold, notify=None, consumers=None, deadline=DEADLINE):
        self.transfers[key] = self.client.read(self.views[view], local_blocks=mine, remote_blocks=theirs, hold=hold,
                                               hold_consumers=consumers, deadline=deadline, notify=self._message(notify))

    def write(self, key, view, mine, theirs, notify=None, layers=None, aux=None, fence=None, deadline=DEADLINE):
        groups = {0: gantry.Blocks(mine, theirs, layers)} if mine else {}
        if aux is not None:
            groups[1] = gantry.Blocks([aux[0]], [aux[1]])
        self.transfers[key] = self.client.write(
            self.views[view], groups=groups, notify=self._message(notify), deadline=deadline,
            fence=None if fence is None else (self.clock, 0, fence))

    def _message(self, notify):
        return None if notify is None else gantry.Message(notify[0], notify[1], notify[2])

    def cancel(self, key):
        """Asks for the end of a transfer and does not wait for it: `step` says when nothing of it moves any more."""
        try:
            self.transfers[key].cancel(0)
        except TimeoutError:
            pass

    def progress(self, key):
        status = self.transfers[key].poll()
        return status.state, status.bytes_moved, status.bytes

    # Promises and messages.

    def hold(self, request, names, blocks, ttl, consumers):
        self.holds[request] = self.client.hold(request, gantry.HoldGroup(names, blocks), ttl, expected_consumers=consumers)
        return self.holds[request].expires_unix

    def extend(self, request, ttl):
        self.holds[request].extend(ttl)

    def release(self, request):
        return self.holds[request].release()

    def notify(self, peer, to, data, request):
        return self.client.notify(to, data, peer=peer, request_id=request)

    def beat(self, request, peer, to, interval):
        """From now on `step` tells the owner every `interval` seconds that this request's blocks are still wanted."""
        self.beats[request] = (peer, to, interval)
        self._beaten = 0.0

    def beat_no_more(self, request):
        self.beats.pop(request, None)

    # The engine's step.

    def step(self, extension=0.0):
        """One look at the events and at each transfer. `extension`: seconds that a heartbeat gives to a hold."""
        self._send_beats()
        events, self.cursor, lost = self.client.poll_events(self.cursor, max_events=1000)
        assert lost == 0, f"{self.name} lost {lost} events"
        report = {"transfers": [] if self.by_events else self._ended(), "messages": [], "holds": [], "undelivered": [], "extended": 0}
        for event in events:
            if event.type == "notification":
                self._take(event, report, extension)
            elif event.type == "transfer" and self.by_events:
                key = next(key for key, transfer in self.transfers.items() if transfer.id == event.subject)
                del self.transfers[key]
                report["transfers"].append((key, event.fields["transfer"]))
            elif event.type == "hold":
                report["holds"].append((event.subject, event.fields["hold"]["outcome"], event.fields["hold"]["consumers"]))
            elif event.type == "notification_outcome" and not event.fields["delivery"]["delivered"]:
                report["undelivered"].append((event.subject, event.fields["delivery"]))
        return report

    def _send_beats(self):
        due = {}
        for request, (peer, to, interval) in self.beats.items():
            if time.monotonic() - self._beaten >= interval:
                due.setdefault((peer, to), []).append(request)
        for (peer, to), requests in due.items():
            self._beaten = time.monotonic()
            self.client.notify(to, "HB:" + ",".join(requests), peer=peer)

    def _take(self, event, report, extension):
        message = event.message
        if not message.startswith(b"HB:"):
            report["messages"].append((message.decode(), event.fields["notification"].get("request_id")))
            return
        for request in message[3:].decode().split(","):
            try:
                self.holds[request].extend(extension)
                report["extended"] += 1
            except gantry.Error as error:
                if error.code != "lease_expired":  # a heartbeat that crossed the end of the read
                    raise

    def _ended(self):
        """Of each transfer that has ended since the last step what became of it."""
        ended = []
        for key, transfer in list(self.transfers.items()):
            if transfer.poll().done:
                del self.transfers[key]
                ended.append((key, transfer.details()))
        return ended
