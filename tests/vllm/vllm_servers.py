"""vLLM's servers as processes, and the part of a router: a prompt goes to the prefiller, its answer's parameters to the decoder."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

import backends

START_SECONDS = 400
STOP_SECONDS = 30
REQUEST_SECONDS = 60
PEER_WAS_LOST = " said nothing for "
HOLD_SECONDS = 300  # longer than any case waits, so that no case passes because a hold's time was over
MODEL = "tiny"
TOKENS = 12  # that are generated
# kv_transfer_config, but for the connector's own settings.
TRANSFER = {"kv_connector": "GantryConnector", "kv_connector_module_path": "gantry_vllm", "kv_role": "kv_both",
            "kv_load_failure_policy": "recompute"}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Engine:
    """`vllm serve`; without a sidecar it has no connector."""

    def __init__(self, name, environment, folder, sidecar=None, connector=TRANSFER["kv_connector"],
                 module=TRANSFER["kv_connector_module_path"], path="", flags=(), model=None, transfer=None, more=None, settings=None, forks=None):
        """`path`: another folder of Python modules; `transfer`: vLLM's whole kv_transfer_config; `more`: environment variables;
        `settings`: of the connector; None takes one away.

        `forks`, a ForkServer, starts it in seconds. Without it the command `vllm serve` does, as users have it.
        """
        self.name, self.port = name, free_port()
        self.log_path = Path(folder) / f"{name}.log"
        words = [str(model or f"{environment}/model"), "--served-model-name", MODEL, "--host", "127.0.0.1", "--port", str(self.port),
                 *backends.flags(), *flags]
        if transfer is not None:
            words += ["--kv-transfer-config", json.dumps(transfer)]
        elif sidecar is not None:
            said = {"run_dir": str(sidecar.run_dir), "hold_ttl": HOLD_SECONDS, "read_deadline": 5, **backends.CONNECTOR, **(settings or {})}
            words += ["--kv-transfer-config", json.dumps(TRANSFER | {
                "kv_connector": connector, "kv_connector_module_path": module,
                "kv_connector_extra_config": {name: value for name, value in said.items() if value is not None}})]
        variables = backends.variables()
        variables["PYTHONPATH"] += f":{path}"
        variables |= more or {}
        if forks is not None:
            self._process = forks.start(["-m", "vllm.entrypoints.cli.main", "serve", *words], self.log_path, variables,
                                        [path] if path else [])
            return
        with open(self.log_path, "wb") as log:
            self._process = subprocess.Popen(["nice", "-n", "10", *backends.serve_of(environment), *words], stdin=subprocess.DEVNULL,
                                             stdout=log, stderr=log, env=variables, start_new_session=True)

    @property
    def pid(self):
        return self._process.pid

    @property
    def log(self):
        return self.log_path.read_text(errors="replace")

    def lives(self):
        return self._process.poll() is None

    def wait_until_ready(self):
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            assert self._process.poll() is None, f"{self.name} ended:\n{self.log[-6000:]}"
            if self.healthy():
                return
            time.sleep(0.5)
        raise AssertionError(f"{self.name} is not ready after {START_SECONDS} s:\n{self.log[-6000:]}")

    def healthy(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=REQUEST_SECONDS)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def complete(self, prompt, params=None, tokens=TOKENS, salt="", seconds=REQUEST_SECONDS):
        """Returns (token ids, kv_transfer_params of the answer). Another `salt` finds nothing in the prefix cache."""
        body = {"model": MODEL, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True,
                "return_token_ids": True}
        if params is not None:
            body["kv_transfer_params"] = params
        if salt:
            body["cache_salt"] = salt
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=seconds)
        try:
            connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            text = answer.read()
            assert answer.status == 200, text
        finally:
            connection.close()
        said = json.loads(text)
        return said["choices"][0]["token_ids"], said.get("kv_transfer_params")

    def metric(self, name, label=""):
        """The sum over all series of a metric that have this label, such as 'path="shm"'. It fails where there is none."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=REQUEST_SECONDS)
        try:
            connection.request("GET", "/metrics")
            lines = connection.getresponse().read().decode().splitlines()
        finally:
            connection.close()
        found = [line for line in lines if re.match(re.escape(name) + r"[{ ]", line) and label in line]
        assert found, f"{name} has no series {label}"
        return sum(float(line.rsplit(" ", 1)[1]) for line in found)

    def reads(self):
        """(state, path) of each read that this engine's connector has said to have ended, oldest first."""
        return re.findall(r"pulls.py:\d+\] request \S+: (\w+), \d+ bytes by (\w+) in", self.log)

    def failed_reads(self):
        """The lines in which this engine's connector has said that a prompt was not read, oldest first."""
        return [line for line in self.log.splitlines() if ": its prompt is not read from " in line]

    def stop(self):
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGTERM)
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                pass
        try:
            os.killpg(self._process.pid, signal.SIGKILL)  # the engine's other processes
        except ProcessLookupError:
            pass
        self._process.wait()


class Pair:
    """A prefiller and a decoder, each with a sidecar of its own."""

    def __init__(self, prefill, decode, sidecars):
        self.prefill, self.decode = prefill, decode
        self.prefill_sidecar, self.decode_sidecar = sidecars

    def offer(self, prompt, salt=""):
        """The prefiller computes the prompt. Returns the parameters for the decoder."""
        _, params = self.prefill.complete(prompt, {"do_remote_decode": True}, tokens=1, salt=salt)
        assert params and params["do_remote_prefill"], params
        return params

    def complete(self, prompt, change=lambda params: params, salt=""):
        """Returns the decoder's tokens. `change` is what a router does to the parameters on their way."""
        return self.decode.complete(prompt, change(self.offer(prompt, salt)), salt=salt)[0]

    def complete_by_reads(self, prompt, expected, reads=1, path="shm", change=lambda params: params, salt=""):
        """Returns the decoder's tokens of a prompt for which it has read so often, all by this path.

        Sidecars that hear nothing for five seconds lose each other, as on a machine that stands still. The decoder computes the
        prompt then, which gives the expected tokens too. So there are three attempts, and that has to be the reason of each failure.
        """
        for attempt in range(3):
            before, failures = len(self.decode.reads()), len(self.decode.failed_reads())
            tokens = self.complete(prompt, change, f"{salt} {attempt}" if attempt else salt)
            wait_for(lambda: len(self.decode.reads()) >= before + reads or len(self.decode.failed_reads()) > failures,
                     "the reads are logged")
            why = self.decode.failed_reads()[failures:]
            if not why:
                assert self.decode.reads()[before:] == [("succeeded", path)] * reads
                return tokens
            assert all(PEER_WAS_LOST in line for line in why), why
            assert tokens == expected
        raise AssertionError(f"three reads in turn have failed: {self.decode.log[-3000:]}")

    def complete_together(self, prompts, change=lambda params: params):
        with ThreadPoolExecutor(len(prompts)) as pool:
            return list(pool.map(lambda prompt: self.complete(prompt, change), prompts))

    def holds(self):
        """Holds of the prefiller that have not ended."""
        return self.prefill_sidecar.ask("GET", "/v1/holds")[1]["holds"]

    def shorten_holds(self, seconds):
        """Each hold ends so many seconds from now on, unless it is renewed."""
        for hold in self.holds():
            self.prefill_sidecar.ask("PATCH", f"/v1/holds/{quote(hold['id'], safe='')}", {"workload": hold["workload"], "ttl_ms": int(seconds * 1000)})

    def end_holds(self):
        """Makes the time of each hold end now."""
        self.shorten_holds(0.001)
        wait_for(lambda: not self.holds(), "the holds have ended")


def wait_for(condition, what, seconds=60):
    end, pause = time.monotonic() + seconds, 0.002
    while not condition():
        assert time.monotonic() < end, f"{what() if callable(what) else what}: not within {seconds} s"
        time.sleep(pause)
        pause = min(2 * pause, 0.1)
