"""A device plugin between a fake kubelet and a fake node, both as processes: pods come and go, one in four cannot be given its GPU."""

import re
import subprocess
import time

from conftest import BIN_DIR

START_SECONDS = 20


class PluginProcess:
    def __init__(self, folder):
        self._log = folder / "plugin.log"
        self._processes = []
        try:
            node = self._start([BIN_DIR / "fake_node"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            arguments = list(iter(lambda: node.stdout.readline().decode().strip(), ""))
            self._start([BIN_DIR / "gantry-device-plugin", *arguments, "--metrics-listen=127.0.0.1:0", "--reconcile-ms=200",
                         "--settle-ms=20"])
            self.address = f"127.0.0.1:{self._port()}"
        except BaseException:
            self.close()
            raise

    def close(self):
        for process in reversed(self._processes):
            if process.stdin is None:
                process.kill()
            else:
                process.stdin.close()  # the node ends by itself then, and takes its folders along
            process.wait(20)

    def _start(self, command, **streams):
        with open(self._log, "ab") as log:
            process = subprocess.Popen(command, stderr=log, **{"stdin": subprocess.DEVNULL, "stdout": log, **streams})
        self._processes.append(process)
        return process

    def _port(self):
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and all(process.poll() is None for process in self._processes):
            if found := re.search('"metrics are served".*?"port":"?(\\d+)', self._log.read_text(errors="replace")):
                return found[1]
            time.sleep(0.05)
        raise AssertionError(f"the device plugin does not serve metrics:\n{self._log.read_text(errors='replace')}")
