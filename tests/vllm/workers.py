"""Two workers of the connector without engines, each at a sidecar of its own, and what cases do with them."""

import json
import os
import signal
import socket
from pathlib import Path
from urllib.parse import quote

from leftovers import descriptors_of, kept_by, left_at, nothing_more_is_left, totals_of
from vllm_servers import wait_for

READ_DEADLINE = 5
HOLD_SECONDS = 300


class WorkerProcess:
    """worker_process.py's side of a connection; a call is one of its commands."""

    def __init__(self, server, sidecar, workload, settings=None, in_parts=False):
        self.sidecar, self.workload = sidecar, workload
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(60)
        self._socket.connect(str(server))
        self._lines = self._socket.makefile("rw")
        self.pid = self._ask({"worker": {"run_dir": str(sidecar.run_dir), "workload": workload, "in_parts": in_parts,
                                         "settings": {"hold_ttl": HOLD_SECONDS, "read_deadline": READ_DEADLINE} | (settings or {})}})

    def _ask(self, question):
        self._lines.write(json.dumps(question) + "\n")
        self._lines.flush()
        answer = json.loads(self._lines.readline())
        assert "error" not in answer, answer["error"]
        return answer["value"]

    def do(self, command, **arguments):
        return self._ask({"do": command, **arguments})

    def kill(self):
        try:
            os.kill(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._lines.close()
        self._socket.close()

    def fds(self):
        self.do("collect")
        return kept_by([self.pid])

    def sockets(self):
        return len([each for each in descriptors_of(self.pid) if each.startswith("socket:")])

    def mappings(self):
        """How often it has the cache mapped."""
        return Path(f"/proc/{self.pid}/maps").read_text().count("memfd:vllm-kv-cache")


class Workers:
    """A producer and a consumer. Their caches are filled anew before each read, so that stale bytes are found."""

    def __init__(self, server, sidecars, settings):
        self._server, self._settings = server, {name: value for name, value in settings.items() if name != "in_parts"}
        self.prefill_sidecar, self.decode_sidecar = sidecars
        self._requests, self._seed = 0, 0
        self._address, self._told = None, {}
        self.start_producer()
        self.consumer = WorkerProcess(server, self.decode_sidecar, "vllm-decode", self._settings, settings.get("in_parts", False))

    def start_producer(self):
        self.producer = WorkerProcess(self._server, self.prefill_sidecar, "vllm-prefill", self._settings)

    def close(self):
        for worker in (self.producer, self.consumer):
            worker.kill()

    def offer(self, blocks, name=None):
        """The producer has new content and holds these blocks. Returns what begin() takes, or None: no hold stands."""
        self._requests += 1
        self._seed = self._seed + 2  # odd ones are the consumer's
        name = name or f"request {self._requests}"
        self.producer.do("fill", seed=self._seed)
        ended = self.producer.do("step", hold={name: blocks}, sending=[name])["sent"]
        if name in ended:
            return None
        return {"name": name, "seed": self._seed, "blocks": blocks, "source": self.producer.do("handshake")}

    def begin(self, offer, local, address=None):
        """The consumer reads the blocks of an offer into `local` of its own."""
        source = offer["source"] | ({"address": address, "node_id": "elsewhere"} if address else {})
        if address != self._address:  # one that is up stays where it is
            self.decode_sidecar.ask("DELETE", f"/v1/peers/{source['peer']}")
            self._address = address
        self.consumer.do("fill", seed=offer["seed"] + 1)
        self._told = {"received": [], "failed": [], "missing": []}
        self.step(load=[{"request_id": offer["name"], "remote_request_id": offer["name"], "source": source,
                         "local_blocks": local, "remote_blocks": offer["blocks"]}])

    def step(self, **parts):
        """One of the consumer. Returns what its engine was told of the read by this step and those before: any may tell its end."""
        said = self.consumer.do("step", **parts)
        self._told = {key: known + said[key] for key, known in self._told.items()}
        return self._told

    def end(self, offer, local):
        """Waits for the read's end. Returns whether it succeeded, as the consumer's engine is told."""
        wait_for(lambda: self.step()["received"], "the read has ended", 4 * READ_DEADLINE)
        told = self._told
        assert told["received"] == [offer["name"]] and told["failed"] in ([], [offer["name"]]), told
        if not told["failed"]:
            assert self.consumer.do("differing", seed=offer["seed"], local=local, remote=offer["blocks"]) == []
        return not told["failed"]

    def untouched(self, offer, local):
        """Whether the consumer has what it had before the read."""
        return self.consumer.do("differing", seed=offer["seed"] + 1, local=local, remote=local) == []

    def read(self, address=None, blocks=(5, 2, 9, 40), local=(0, 1, 2, 3), name=None):
        """A whole read. Returns whether it succeeded; then its bytes are right."""
        offer = self.offer(list(blocks), name)
        if offer is None:
            return False
        self.begin(offer, list(local), address)
        return self.end(offer, list(local))

    def reads_come_back(self, address=None):
        wait_for(lambda: self.read(address), "reads come back")

    def end_holds(self):
        """Makes the time of each hold end now."""
        for hold in self.holds():
            self.prefill_sidecar.ask("PATCH", f"/v1/holds/{quote(hold['id'], safe='')}", {"workload": hold["workload"], "ttl_ms": 1})
        wait_for(lambda: not self.holds(), "the holds have ended")

    def holds(self):
        return self.prefill_sidecar.ask("GET", "/v1/holds")[1]["holds"]

    def running(self):
        return totals_of(self.decode_sidecar)["transfers_running"]

    def copy_workers(self):
        """Pids; the consumer's copy what its node has."""
        return copy_workers_of(self.decode_sidecar)

    def left(self):
        """What must be the same again when all requests are over."""
        return {"holds": len(self.holds()), **left_at((self.prefill_sidecar, self.decode_sidecar)),
                "producer's descriptors": self.producer.fds(), "consumer's descriptors": self.consumer.fds()}

    def nothing_more_is_left(self, before):
        nothing_more_is_left(before, self.left)


def copy_workers_of(sidecar):
    found = sidecar.ask("GET", "/v1/status")[1]["workers"]
    return [worker["pid"] for worker in found if worker["state"] == "ready"]


def state_of(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def stand_still(pids):
    """A stop is in force when this returns."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    wait_for(lambda: all(state_of(pid) == "T" for pid in pids), "the processes stand still")


def go_on(pids):
    for pid in pids:
        try:
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            pass
