"""The side of the tests of fork_server.py: programs that use vLLM and begin at once."""

import json
import select
import socket
import subprocess
from pathlib import Path

import backends
from vllm_servers import wait_for

IMPORT_SECONDS = 300
ANSWER_SECONDS = 60


class Forked:
    """A program of the server, with those parts of subprocess.Popen that the tests use."""

    def __init__(self, path, said):
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(ANSWER_SECONDS)
        self._socket.connect(str(path))
        self._socket.sendall(json.dumps(said).encode() + b"\n")
        self._said, self._status = b"", None
        self.pid = int(self._line(ANSWER_SECONDS))

    def poll(self):
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout=None):
        if self._status is None:
            self._status = int(self._line(timeout))
            self.close()
        return self._status

    def close(self):
        """Ends the program, and all of its session, where it runs."""
        self._socket.close()

    def _line(self, seconds):
        while b"\n" not in self._said:
            if not select.select([self._socket], [], [], seconds)[0]:
                raise subprocess.TimeoutExpired("a program", seconds)
            more = self._socket.recv(100)
            assert more, "the process that waits for the program's end was killed"
            self._said += more
        line, self._said = self._said.split(b"\n", 1)
        return line


class ForkServer:
    """Imports vLLM while others are at work; the first program waits for it."""

    def __init__(self, environment, folder):
        self.path, self._log_path = Path(folder) / "forks.sock", Path(folder) / "forks.log"
        command = [backends.python_of(environment), Path(__file__).with_name("fork_server.py"), self.path]
        with open(self._log_path, "wb") as log:
            self._process = subprocess.Popen(["nice", "-n", "10", *command], stdin=subprocess.PIPE, stdout=log, stderr=log,
                                             env=backends.variables(), start_new_session=True)

    def ready(self):
        """The socket at which it listens."""
        wait_for(lambda: self.path.exists() or self._process.poll() is not None, "vLLM is imported", IMPORT_SECONDS)
        assert self._process.poll() is None, self._log_path.read_text(errors="replace")[-6000:]
        return self.path

    def start(self, program, log_path, variables=None, path=(), leaves=True):
        """`program`: [file or "-m", module or argument, ...]; `path`: folders of Python modules that come first.

        `leaves`: whether it leaves threads, processes or files to the interpreter's end.
        """
        return Forked(self.ready(), {"program": [str(word) for word in program], "log": str(log_path),
                                     "variables": variables or backends.variables(), "path": [str(each) for each in path],
                                     "leaves": leaves})

    def run(self, program, log_path, seconds, path=(), leaves=True):
        """Waits for the program's end, which has to be a good one."""
        status = self.start(program, log_path, path=path, leaves=leaves).wait(seconds)
        assert status == 0, log_path.read_text(errors="replace")[-6000:]

    def stop(self):
        """As the end of the tests' process does it."""
        self._process.stdin.close()
        assert self._process.wait(IMPORT_SECONDS) == 0, self._log_path.read_text(errors="replace")[-6000:]
