"""pip puts the plugin where NIXL finds it, and takes it away again."""

import json
import os
import subprocess

import pytest
from agents import PLUGIN, ROOT

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


@pytest.mark.parametrize("module", ["nixl_cu12", "nixl_cu13"])
def test_nixl_finds_the_plugin_that_pip_installed(world, place, module):
    python, packages, numpy = place
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", ROOT / "connectors" / "nixl"],
                   check=True, env={**os.environ, "GANTRY_NIXL_PLUGIN": str(PLUGIN)})
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
