"""Sidecars, servers of LMCache and bare channels for all cases."""

import contextlib
import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from programs import ROOT, Commands, Coordinator, Server


def _end_to_end():
    path = ROOT / "tests" / "end_to_end" / "conftest.py"
    spec = importlib.util.spec_from_file_location("end_to_end_conftest", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


end_to_end = _end_to_end()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Two processes may share the cases: one has the servers, the other the bare channels."""
    if config.pluginmanager.hasplugin("xdist"):
        for item in items:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


@pytest.fixture(scope="session")
def environment():
    if "GANTRY_LMCACHE_ENVIRONMENT" in os.environ:
        return Path(os.environ["GANTRY_LMCACHE_ENVIRONMENT"])
    return Path(subprocess.run([Path(__file__).with_name("environment")], check=True, capture_output=True, text=True).stdout.strip())


@pytest.fixture(scope="session")
def folder():
    path = Path(end_to_end.short_folder())
    yield path
    shutil.rmtree(path, ignore_errors=True)


def sidecar_in(folder, stack, name, **options):
    sidecar = end_to_end.SidecarProcess(name, folder, **options)
    stack.callback(sidecar.kill)
    return sidecar.start()


class Servers:
    """Two servers that know each other, a sidecar for each, and an engine that is a client of both."""

    def __init__(self, environment, folder, stack):
        self.sidecars = [sidecar_in(folder, stack, name) for name in ("a", "b")]
        coordinator = Coordinator(environment, folder)
        self.one, self.two = (Server(environment, folder, name, sidecar, coordinator)
                              for name, sidecar in zip(("one", "two"), self.sidecars))
        for program in (coordinator, self.one, self.two):
            stack.callback(program.kill)
            program.start()
        self.engine = Commands(environment, folder, "engine", "engine_process.py")
        stack.callback(self.engine.kill)
        for server, other in ((self.one, self.two), (self.two, self.one)):
            server.wait_until(lambda: server.peers() == [other.name], "knows the other server")
            self.engine.connect(server.name, server.url)


@pytest.fixture(scope="module")
def servers(environment, folder):
    with contextlib.ExitStack() as stack:
        yield Servers(environment, folder, stack)


class Channels:
    """Makes processes with a channel each."""

    def __init__(self, environment, folder):
        self._environment, self.folder, self._idle, self._count = environment, folder, [], 0
        self.stack = contextlib.ExitStack()

    def warm(self, count):
        """Processes import LMCache for seconds: several do it at once."""
        while len(self._idle) < count:
            self._count += 1
            process = Commands(self._environment, self.folder, f"channel{self._count}", "channel_process.py")
            self.stack.callback(process.kill)
            self._idle.append(process)

    def process(self):
        self.warm(1)
        return self._idle.pop(0)

    def give_back(self, process):
        """Another case takes it; its channel is closed."""
        self._idle.append(process)

    def sidecar(self, name, **options):
        return sidecar_in(self.folder, self.stack, name, **options)


@pytest.fixture(scope="module")
def channels(environment, folder):
    made = Channels(environment, folder)
    with made.stack:
        yield made
