"""One pair of engines with their sidecars, and the answers of a monolithic engine, for all cases."""

import contextlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from backends import ON_GPU, ROOT, decoders_variables, python_of, sidecar_prefix, variables, why_not
from forks import ForkServer
from vllm_servers import Engine, Pair, free_port
from workers import Workers

PLUGIN = Path(os.environ.get("GANTRY_LIB_DIR", ROOT / "build" / "release" / "lib")) / "libplugin_GANTRY.so"
REFERENCE_SECONDS = 300
LINES_SHOWN = 25  # of each engine's log, where a case fails
CONNECTORS_LINE = re.compile(r"\[(%s):\d+\]|ERROR" % "|".join(
    re.escape(path.name) for path in (ROOT / "connectors" / "vllm" / "gantry_vllm").glob("*.py")))
LOG_SIZES = pytest.StashKey[dict]()


def _end_to_end():
    path = ROOT / "tests" / "end_to_end" / "conftest.py"
    spec = importlib.util.spec_from_file_location("end_to_end_conftest", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


end_to_end = _end_to_end()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Two processes may share the cases. One has those with engines, whose tokens are compared; the other has the rest."""
    if why := why_not():
        for item in items:
            item.add_marker(pytest.mark.skip(reason=why))
    if config.pluginmanager.hasplugin("xdist"):
        for item in items:
            item.add_marker(pytest.mark.xdist_group("engines" if "expected" in item.fixturenames else "classes"))


def logs_of(item):
    folder = getattr(item, "funcargs", {}).get("folder")
    return sorted(folder.glob("*.log")) if folder is not None else []


def pytest_runtest_call(item):
    item.stash[LOG_SIZES] = {log.name: log.stat().st_size for log in logs_of(item)}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    """A case that failed shows what the connector said in each engine while it ran."""
    report = yield
    if report.when == "call" and report.failed:
        for log in logs_of(item):
            with open(log, "rb") as lines:
                lines.seek(item.stash[LOG_SIZES].get(log.name, 0))
                said = [line for line in lines.read().decode(errors="replace").splitlines() if CONNECTORS_LINE.search(line)]
            if said:
                report.sections.append((log.name, "\n".join(said[-LINES_SHOWN:])))
    return report


@pytest.fixture(scope="session")
def environment():
    if "GANTRY_VLLM_ENVIRONMENT" in os.environ:
        return Path(os.environ["GANTRY_VLLM_ENVIRONMENT"])
    return Path(subprocess.run([Path(__file__).with_name("environment")], check=True, capture_output=True,
                               text=True).stdout.strip())


@pytest.fixture(scope="session")
def folder():
    path = Path(end_to_end.short_folder())
    yield path
    if "GANTRY_VLLM_LOGS" in os.environ:
        for log in [*path.glob("*.log"), *path.glob("*/log")]:
            shutil.copyfile(log, Path(os.environ["GANTRY_VLLM_LOGS"]) / "-".join(log.relative_to(path).parts))
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session")
def nixl_with_plugin(environment, folder):
    """A folder of Python modules: vLLM's NIXL by links, with the plugin beside its own. `pip install ./connectors/nixl` has the same effect."""
    place = folder / "nixl-with-plugin"
    place.mkdir()
    packages = next((environment / "venv" / "lib").glob("python*/site-packages"))
    for source in [*packages.glob("nixl*"), *packages.glob(".nixl*")]:
        subprocess.run(["cp", "-rs", source, place], check=True)
    folders = list(place.glob(".nixl_cu*.mesonpy.libs/plugins"))
    assert folders, f"{packages} has no folder of NIXL's plugins"
    for plugins in folders:
        (plugins / PLUGIN.name).unlink(missing_ok=True)  # a link there leads into the environment that others use
        shutil.copy(PLUGIN, plugins)
    yield place
    shutil.rmtree(place)


@pytest.fixture(scope="session")
def forks(environment, folder):
    """Starts programs that use vLLM; None on a GPU, where each imports it."""
    server = None if ON_GPU else ForkServer(environment, folder)
    yield server
    if server is not None:
        server.stop()


@pytest.fixture(scope="session")
def expected(environment, folder, forks):
    """What the monolithic engine says to each prompt, by its name. It has ended before the pair starts."""
    return answers_of(environment, environment / "model", folder, forks)


def answers_of(environment, model, folder, forks, **more):
    """`more`: vLLM's arguments beside those of all engines."""
    out, log_path = folder / f"{model.name}.json", folder / f"{model.name}.log"
    program = [Path(__file__).with_name("reference.py"), model, out, json.dumps(more)]
    if forks is not None:
        forks.run(program, log_path, REFERENCE_SECONDS)
    else:
        with open(log_path, "wb") as log:
            done = subprocess.run(["nice", "-n", "10", python_of(environment), *program], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                  env=variables(), timeout=REFERENCE_SECONDS, check=False)
        assert done.returncode == 0, log_path.read_text(errors="replace")[-6000:]
    return json.loads(out.read_text())


@pytest.fixture(scope="session")
def pair(environment, folder, forks, expected):
    with running_pair(environment, folder, ("prefill", "decode"), forks=forks) as both:
        yield both


@contextlib.contextmanager
def running_pair(environment, folder, names, **options):
    """Two sidecars with these names and an engine at each. The options are the engines'."""
    sidecars = [end_to_end.SidecarProcess(name, folder, flags=("--peer-listen", "127.0.0.1:0"), prefix=sidecar_prefix())
                for name in names]
    engines = []
    try:
        for sidecar in sidecars:
            sidecar.start()
        engines += [Engine(f"engine-{sidecar.name}", environment, folder, sidecar, more=more, **options)
                    for sidecar, more in zip(sidecars, ({}, decoders_variables()))]
        for engine in engines:
            engine.wait_until_ready()
        yield Pair(*engines, sidecars)
    finally:
        for part in engines + sidecars:
            part.stop()


@pytest.fixture(scope="session")
def worker_server(forks):
    """The socket at which workers without engines are had, each in a process of its own."""
    return forks.ready()


@pytest.fixture
def workers(request, worker_server):
    """A producer and a consumer at fresh sidecars. A parameter has settings of their connector."""
    own_folder = Path(end_to_end.short_folder())
    sidecars = [end_to_end.SidecarProcess(name, own_folder, flags=(
        "--peer-listen", f"127.0.0.1:{free_port()}", "--data-listen", f"127.0.0.1:{free_port()}"))
                for name in ("prefill", "decode")]  # the ports of another life are the same
    made = None
    try:
        for sidecar in sidecars:
            sidecar.start()
        made = Workers(worker_server, sidecars, getattr(request, "param", {}))
        yield made
    finally:
        if made is not None:
            made.close()
        for sidecar in sidecars:
            sidecar.kill()
        shutil.rmtree(own_folder, ignore_errors=True)


@pytest.fixture
def tcp_address(pair):
    """Where the prefiller's sidecar listens for peers on TCP."""
    return re.findall('"the peer API listens on TCP","address":"([^"]+)"', pair.prefill_sidecar.log)[-1]
