"""pip puts the plugin where NIXL finds it, and takes it away again."""

import json
import os
import re
import shutil
import subprocess

import pytest
from agents import PLUGIN, ROOT
from conftest import end_to_end

BIN_DIR = end_to_end.BIN_DIR

PROGRAM = """
import json, sys
from nixl._api import nixl_agent, nixl_agent_config
import gantry_nixl
import numpy
agent = nixl_agent("installed", nixl_agent_config(backends=[]))
agent.create_backend("GANTRY", {"run_dir": sys.argv[1]})
memory = numpy.frombuffer(gantry_nixl.host_memory(1 << 20), dtype=numpy.uint8)
registered = agent.register_memory([(memory.ctypes.data, memory.nbytes, 0, "")], "DRAM", backends=["GANTRY"])
agent.deregister_memory(registered)
print(json.dumps([agent.get_plugin_list(), [str(path) for path in gantry_nixl.plugin_files()]]))
"""


@pytest.fixture(scope="session")
def plugin_wheel(environment, wheels):
    """Built once for each of pytest's processes, from a copy, by the environment's own tools: nothing is fetched."""
    source, built = wheels / "source", wheels / "plugin"
    shutil.copytree(ROOT / "connectors" / "nixl", source, ignore=shutil.ignore_patterns("build", "*.egg-info"))
    subprocess.run([environment / "venv" / "bin" / "python", "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check",
                    "--no-index", "--no-deps", "--no-build-isolation", "--wheel-dir", built, source],
                   check=True, env={**os.environ, "GANTRY_NIXL_PLUGIN": str(PLUGIN)})
    return next(built.glob("gantry_nixl-*-py3-none-*.whl"))


def install_plugin(python, wheel):
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps", wheel],
                   check=True)


@pytest.mark.parametrize("module", ["nixl_cu12", "nixl_cu13"])
def test_nixl_finds_the_plugin_that_pip_installed(world, place, plugin_wheel, module):
    python, packages, numpy = place
    install_plugin(python, plugin_wheel)
    sidecar = world.sidecar("one")
    program = PROGRAM.replace("nixl._api", f"{module}._api")
    done = subprocess.run([python, "-c", program, str(sidecar.run_dir)], capture_output=True, text=True, timeout=60, check=False,
                          env={**os.environ, "PYTHONPATH": numpy})
    assert done.returncode == 0, done.stderr
    plugins, files = json.loads(done.stdout.splitlines()[-1])
    assert {"GANTRY", "UCX"} <= set(plugins)
    assert files == [f"{packages}/.nixl_cu{major}.mesonpy.libs/plugins/libplugin_GANTRY.so" for major in (12, 13)]
    subprocess.run([python, "-m", "pip", "uninstall", "--quiet", "--yes", "gantry-nixl"], check=True)
    assert not any(os.path.exists(file) for file in files)


def test_the_guide_does_what_it_says(place, plugin_wheel, folder):
    """Its block "Run", with other folders, in an environment as its block "Install" makes it."""
    python, _, numpy = place
    install_plugin(python, plugin_wheel)
    guide = (ROOT / "docs" / "getting_started_nixl.md").read_text()
    script = re.search(r"## Run\n\n```sh\n(.*?)```", guide, re.S)[1].replace("/tmp/nixl-run", str(folder))
    script = script.replace("build/release/bin", str(BIN_DIR)).replace("python3 - <<", f"{python} - <<")
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=100, check=False, cwd=ROOT,
                          env={**os.environ, "PYTHONPATH": numpy})
    assert re.search(r"prints `(.*?)`", guide)[1] in done.stdout, done.stderr
    assert re.search(r"The line `(.*?)` says", guide)[1] in done.stderr
