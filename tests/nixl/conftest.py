"""Sidecars and agents for all cases."""

import contextlib
import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from agents import LIB_DIR, NEWEST, ROOT, Agent, install


def _end_to_end():
    path = ROOT / "tests" / "end_to_end" / "conftest.py"
    spec = importlib.util.spec_from_file_location("end_to_end_conftest", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


end_to_end = _end_to_end()


@pytest.fixture(scope="session")
def environment():
    if "GANTRY_NIXL_ENVIRONMENT" in os.environ:
        return Path(os.environ["GANTRY_NIXL_ENVIRONMENT"])
    return Path(subprocess.run([Path(__file__).with_name("environment")], check=True, capture_output=True,
                               text=True).stdout.strip())


@pytest.fixture(scope="session")
def wheels():
    path = Path(end_to_end.short_folder())
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def folder():
    path = Path(end_to_end.short_folder())
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def place(environment, folder):
    """A virtual environment that holds NIXL's two wheels, by links."""
    subprocess.run([environment / "venv" / "bin" / "python", "-m", "venv", "--system-site-packages", folder / "venv"], check=True)
    python = folder / "venv" / "bin" / "python"
    packages = subprocess.run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], check=True,
                              capture_output=True, text=True).stdout.strip()
    numpy = next((environment / "venv" / "lib").glob("python*/site-packages"))
    for source in (environment / "nixl-cu12==1.5.1", environment / "nixl-cu13==1.5.1"):
        for entry in source.iterdir():
            if not (os.path.exists(f"{packages}/{entry.name}")):
                subprocess.run(["cp", "-rs", entry, packages], check=True)
    return python, packages, str(numpy)


class World:
    """Sidecars and agents of one case."""

    def __init__(self, environment, wheels, folder, stack):
        self.environment, self._wheels, self.folder, self._stack = environment, wheels, folder, stack

    def sidecar(self, name, **options):
        sidecar = end_to_end.SidecarProcess(name, self.folder, **options)
        self._stack.callback(sidecar.kill)
        return sidecar.start()

    def process(self, name, wheel=NEWEST, **variables):
        """An agent's process, in which no agent is yet."""
        return self.process_at(install(self.environment, wheel, self._wheels), name, wheel, **variables)

    def process_at(self, place, name, wheel=NEWEST, **variables):
        python = self.environment / "venv" / "bin" / "python"
        agent = Agent(python, place, name, self.folder, wheel, **variables)
        self._stack.callback(agent.kill)
        return agent

    def agent(self, name, sidecar, wheel=NEWEST, parameters=None, telemetry=False, **variables):
        agent = self.process(name, wheel, **variables)
        agent.open(name, {"run_dir": str(sidecar.run_dir), **(parameters or {})}, telemetry=telemetry)
        return agent


@pytest.fixture
def gpus(monkeypatch, folder):
    """Every process of the case sees two GPUs of the fake driver."""
    if os.environ.get("GANTRY_GPU") == "real":
        return
    monkeypatch.setenv("GANTRY_FAKE_GPU_DIR", str(folder))
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{LIB_DIR.parent / 'fake_gpu'}:{os.environ.get('LD_LIBRARY_PATH', '')}")


@pytest.fixture
def world(environment, wheels, folder):
    with contextlib.ExitStack() as stack:
        yield World(environment, wheels, folder, stack)

