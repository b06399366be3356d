"""What sidecars exported where this machine's Prometheus does not reach them, served to it once more: files NAME-NUMBER.txt in a folder."""

import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


def records(folder, name):
    """The texts of one sidecar, in order."""
    files = sorted(Path(folder).glob(f"{name}-*.txt"), key=lambda path: int(path.stem.split("-")[1]))
    assert files, f"nothing of the sidecar {name} was recorded in {folder}"
    return [path.read_text() for path in files]


class Replay:
    """Serves records as /metrics, each for `seconds_each` from the first request on, and the last one from then on."""

    def __init__(self, texts, seconds_each):
        self.texts, self.seconds_each, self.begun = texts, seconds_each, None
        replay = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                body = replay.now().encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = "127.0.0.1:%d" % self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def now(self):
        self.begun = self.begun or time.monotonic()
        return self.texts[min(int((time.monotonic() - self.begun) / self.seconds_each), len(self.texts) - 1)]

    def at_the_last(self):
        return self.begun is not None and time.monotonic() - self.begun > self.seconds_each * (len(self.texts) - 0.5)

    def close(self):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
