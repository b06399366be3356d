"""Two sidecars of one node, for the time of an example. In a deployment each pod has its own."""

from __future__ import annotations

import contextlib
import http.client
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Iterator, Optional, Union

BUILT = Path(__file__).resolve().parents[3] / "build" / "release" / "bin" / "gantry-sidecar"
READY_SECONDS = 60
STOP_SECONDS = 20


def is_ready(run_dir: Path) -> bool:
    """Whether a sidecar answers there and its copy workers have started."""
    connection = http.client.HTTPConnection("localhost", timeout=5)
    connection.sock = socket.socket(socket.AF_UNIX)
    try:
        connection.sock.connect(str(run_dir / "api.sock"))
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def start(program: Union[str, Path], folder: Path, name: str, workers: int) -> subprocess.Popen:
    """A sidecar with the run directory `folder`/`name`, which meets others in `folder`/node."""
    command = [program, "--name", name, "--run-dir", folder / name, "--node-dir", folder / "node",
               "--workers", str(workers)]
    with open(folder / f"{name}.log", "wb") as log:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


@contextlib.contextmanager
def two_sidecars(program: Optional[str] = None, workers: int = 4) -> Iterator[list[Path]]:
    """Gives their two run directories; stops them and removes their files at the end.

    program  the gantry-sidecar to start; None: the one on the PATH, or of this checkout's build
    workers  copy workers of each; with GPU memory each takes about half a gigabyte of one GPU

    Exits with the end of the log when one is not ready within READY_SECONDS.
    """
    program = program or shutil.which("gantry-sidecar") or BUILT
    if not Path(program).exists():
        sys.exit(f"there is no {program}: make build, or name a gantry-sidecar")
    # A Unix socket's path is limited to 107 bytes, so not below a long TMPDIR.
    folder = Path(tempfile.mkdtemp(prefix="gantry-example-", dir="/tmp"))
    started = {}
    try:
        for name in ("pod-a", "pod-b"):
            started[name] = start(program, folder, name, workers)
        deadline = time.monotonic() + READY_SECONDS
        for name, process in started.items():
            while not is_ready(folder / name):
                if process.poll() is not None or time.monotonic() > deadline:
                    log = (folder / f"{name}.log").read_text(errors="replace")
                    sys.exit(f"{name} is not ready:\n{log[-2000:]}")
                time.sleep(0.02)
        yield [folder / name for name in started]
    finally:
        for process in started.values():
            process.terminate()
        for process in started.values():
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(folder, ignore_errors=True)
