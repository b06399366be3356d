"""A sidecar of another version: one line says so, where the engine starts and where it runs, and the engine lives on."""

import json
import os
import socket
import socketserver
import tempfile
import threading
import time
import unittest
from http.server import BaseHTTPRequestHandler
from types import SimpleNamespace

import gantry
from gantry_vllm.handshake import Handshake
from gantry_vllm.holds import Holds
from gantry_vllm.metadata import Load
from gantry_vllm.pulls import Pulls
from gantry_vllm.session import Session
from gantry_vllm.settings import Settings
from gantry_vllm.stats import Recorder
from gantry_vllm.tensor_parallel import BlockShape, Topology

LEASE = {"lease_token": "0" * 32, "generation": "0" * 16, "handoff_socket": "", "wants_dma_bufs": False}
INFO = {"name": "prefill", "version": gantry.library_version(), "node_id": "n", "peer_address": "unix:/p.sock"}
SECONDS = 20


class Front(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True

    def serve(self):
        self.serve_forever(poll_interval=0.01)

    def handle_error(self, *_):
        """A client has gone."""


class FakeSidecar:
    """Answers by `answers`: {the begin of "METHOD /target": what it says, as JSON or as text}, and everything else with 404."""

    def __init__(self, run_dir, answers):
        fake = self
        self._handoff, self._connections = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET), []

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self):
                fake._connections.append(self.connection)
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                found = [said for begin, said in answers.items() if f"{self.command} {self.path}".startswith(begin)]
                text = (found[0] if found and isinstance(found[0], str) else json.dumps(found[0] if found else {})).encode()
                self.send_response(200 if found else 404)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_PUT = do_POST = do_DELETE = do_PATCH = answer

            def log_message(self, *_):
                """Not to the log."""

        for name in ("api.sock", "handoff.sock"):
            if os.path.exists(f"{run_dir}/{name}"):
                os.unlink(f"{run_dir}/{name}")
        self._handoff.bind(f"{run_dir}/handoff.sock")
        self._handoff.listen()
        self._front = Front(f"{run_dir}/api.sock", Handler)
        for serve in (self._front.serve, self._serve_leases):
            threading.Thread(target=serve, daemon=True).start()

    def _serve_leases(self):
        while True:
            try:
                connection = self._handoff.accept()[0]
            except OSError:
                return
            self._connections.append(connection)
            threading.Thread(target=self._serve_lease, args=(connection,), daemon=True).start()

    @staticmethod
    def _serve_lease(connection):
        try:
            while connection.recv(65536):
                connection.send(b'{"type":"ok"}')
        except OSError:
            pass

    def end(self):
        self._front.shutdown()
        self._front.server_close()
        for each in (self._handoff, *self._connections):
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            each.close()


class OtherVersions(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir="/tmp")
        self.addCleanup(folder.cleanup)
        self.run_dir = folder.name
        self.recorder = Recorder(recomputes=True)

    def answered(self, **changes):
        """A sidecar of this version, but for these answers."""
        self.sidecar = FakeSidecar(self.run_dir, {"PUT /v1/workloads/": changes.get("lease", LEASE), "GET /v1/info": changes.get("info", INFO),
                                                  "DELETE ": {}, "POST /v1/completions:poll": {"events": [], "cursor": 0},
                                                  **changes.get("more", {})})
        self.addCleanup(self.sidecar.end)

    def session(self):
        session = Session(self.run_dir, "vllm", self.recorder)
        self.addCleanup(session.close)
        return session

    def wait_for(self, condition):
        end = time.monotonic() + SECONDS
        while not condition():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)

    def test_a_start_that_is_not_understood_ends_with_one_line(self):
        for what, said, why in (("lease", {"lease": {"id": "new"}}, "answer has no lease that this library understands; use a libgantry.so of"),
                                ("lease", "<html>", "answer has no lease that this library understands"),
                                ("info", {"sidecar": {"name": "p"}, "version": "9.0.0"}, "the sidecar, of version 9.0.0, does not say its name"),
                                ("info", ["9.0.0"], "of version None, does not say its name"),
                                ("info", "<html>", "of version None, does not say its name")):
            with self.subTest(said), self.assertRaisesRegex(gantry.Error, why) as raised:
                self.answered(**{what: said})
                self.session()
            self.assertEqual(raised.exception.code, "version_mismatch")
            self.assertNotIn("\n", str(raised.exception))
            self.sidecar.end()

    def test_one_that_is_understood_is_taken_with_a_line_that_names_both(self):
        self.answered(info=INFO | {"version": "9.0.0"})
        with self.assertLogs("vllm.gantry", "WARNING") as logged:
            self.assertEqual(self.session().peer_name, "prefill")
        line, = logged.output
        self.assertIn(f"the sidecar prefill has version 9.0.0, and the libgantry of this engine {gantry.library_version()}", line)

    def test_the_same_version_is_no_line(self):
        self.answered()
        with self.assertNoLogs("vllm.gantry", "WARNING"):
            self.session()

    def test_an_upgrade_that_is_not_understood_is_said_and_the_steps_go_on(self):
        self.answered()
        session = self.session()
        holds = Holds(session, 1, 30, 1, self.recorder, SimpleNamespace())
        pulls = Pulls(session, Topology(0, 1, 4), BlockShape(1, 4, 64), Settings(read_deadline=1), self.recorder, in_parts=True)
        for part in (holds, pulls):
            self.addCleanup(part.close)
        with self.assertLogs("gantry", "WARNING") as logged:
            self.sidecar.end()
            self.answered(info={"version": "9.0.0"})
            self.wait_for(lambda: any("not back yet: version_mismatch: the sidecar, of version 9.0.0" in line for line in logged.output))
        self.assertIsNone(session.client)
        self.step_without_a_sidecar(holds, pulls)
        self.sidecar.end()
        self.answered(info=INFO | {"version": "9.0.1"})
        with self.assertLogs("vllm.gantry", "WARNING") as logged:
            self.wait_for(lambda: session.client is not None)
        self.assertIn("has version 9.0.1", logged.output[0])
        self.step_without_a_sidecar(holds, pulls)  # it has no such requests

    def step_without_a_sidecar(self, holds, pulls):
        """Nothing is offered and nothing is read, and the engine is told so."""
        putting = holds.put({"offered": [1]})
        self.assertTrue(putting.wait(SECONDS))
        self.assertEqual(putting.stands, {"offered": False})
        pulls.start(Load("read", "read", (Handshake("prefill", "unix:/p.sock", "w"),), [1], [2]))
        ended = set()
        self.wait_for(lambda: ended.update(pulls.take_ended()[1]) or ended)
        self.assertEqual((ended, holds.take_ended()), ({"read"}, {"offered"}))


if __name__ == "__main__":
    unittest.main()
