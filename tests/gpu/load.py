"""The matrix products of matmul_load.py as a process of its own, and how many there were."""

import pathlib
import subprocess
import sys
import threading

HERE = pathlib.Path(__file__).resolve().parent


class Load:
    """Begins when it is made, on every GPU; end() ends it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen([sys.executable, str(HERE / "matmul_load.py")], stdout=subprocess.PIPE,
                                         text=True)
        if self._process.stdout.readline().strip() != "ready":
            raise RuntimeError("the matrix products did not start")
        self._rates = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self._process.stdout:
            moment, rate = map(float, line.split())
            self._rates.append((moment, rate))

    def rate(self, start: float, end: float) -> float:
        """Products a second in [start, end] of the monotonic clock, of seconds that lie wholly within."""
        within = [rate for moment, rate in self._rates if moment - 1 >= start and moment <= end]
        return sum(within) / len(within) if within else float("nan")

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
