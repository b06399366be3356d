"""NIXL agents as processes, with a wheel of NIXL each, and the plugin beside the wheel's own."""

import os
import pickle
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
LIB_DIR = Path(os.environ.get("GANTRY_LIB_DIR", ROOT / "build" / "release" / "lib"))
PLUGIN = LIB_DIR / "libplugin_GANTRY.so"
VERSIONS = [line.strip() for line in (HERE / "versions.txt").read_text().split()]
REFUSED = "nixl-cu12==0.10.1"
SUPPORTED = [wheel for wheel in VERSIONS if wheel != REFUSED]
NEWEST = "nixl-cu13==1.5.1"


class Failed(Exception):
    """A command raised in the agent's process."""


def install(environment, wheel, folder):
    """A copy of the wheel, by links, with the plugin. Returns its folder."""
    place = Path(folder) / wheel
    if not place.exists():
        subprocess.run(["cp", "-rs", environment / wheel, place], check=True)
        folders = list(place.glob(".nixl_cu*.mesonpy.libs/plugins"))
        assert folders, f"{wheel} has no folder of plugins"
        for plugins in folders:
            (plugins / PLUGIN.name).unlink(missing_ok=True)  # a link there leads into the environment that others use
            shutil.copy(PLUGIN, plugins)
    return place


class Agent:
    """A process with an agent. Commands are methods: agent.post("handle")."""

    def __init__(self, python, place, name, folder, wheel=NEWEST, **variables):
        """`place`: a folder with the wheel, and with the plugin."""
        self.name, self.log_path = name, Path(folder) / f"agent-{name}.log"
        module = "nixl" if (place / "nixl").exists() else wheel.split("==")[0].replace("-", "_")
        paths = [str(place), os.environ.get("PYTHONPATH", "")]
        if wheel < "nixl-cu12==1.4":
            paths.append(str(HERE / "no_torch"))
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                [python, HERE / "agent_process.py"], stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=log,
                env={**os.environ, "PYTHONPATH": ":".join(paths), "NIXL_MODULE": module, **variables})

    def __getattr__(self, command):
        if command.startswith("_"):
            raise AttributeError(command)
        return lambda *arguments, **options: self._ask(command, arguments, options)

    def _ask(self, command, arguments, options):
        self.start(command, *arguments, **options)
        return self.answer()

    def start(self, command, *arguments, **options):
        pickle.dump((command, arguments, options), self.process.stdin)
        self.process.stdin.flush()

    def answer(self):
        try:
            succeeded, answer = pickle.load(self.process.stdout)
        except EOFError:
            raise AssertionError(f"{self.name} ended with {self.process.wait()}:\n{self.log}") from None
        if not succeeded:
            raise Failed(answer)
        return answer

    @property
    def log(self):
        return self.log_path.read_text(errors="replace")

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def stop(self):
        """Lets it end by itself."""
        if self.process.poll() is None:
            self.process.stdin.close()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()
                raise AssertionError(f"{self.name} does not end:\n{self.log}") from None
        return self.process.returncode


def introduce(*agents):
    """Each learns of the others."""
    metadata = [agent.metadata() for agent in agents]
    for agent in agents:
        for other, blob in zip(agents, metadata):
            if other is not agent:
                agent.load(blob)
