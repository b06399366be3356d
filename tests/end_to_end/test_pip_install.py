"""The first five minutes of a connector's author, as docs/getting_started_pytorch.md has them: pip install into a new environment,
the example, and the lines that a connector needs, over the fake driver. The connector for vLLM is installed with it, as
docs/getting_started_vllm.md has it. How long each step took is printed, and not judged."""

import os
import re
import shutil
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from conftest import BIN_DIR, ROOT
from gpu_workloads import REAL, gpus
from workloads import LIB_DIR

DOCUMENT = ROOT / "docs" / "getting_started_pytorch.md"
EXAMPLE = ROOT / "client" / "python" / "examples" / "move_kv_cache.py"
PACKAGES = ("client/python", "connectors/vllm")
SECONDS = 280
pytestmark = pytest.mark.timeout(2 * SECONDS)  # the first case also makes the environment
NO_INDEX = ("No matching distribution found", "Could not find a version", "ConnectionError", "Connection refused", "Network is unreachable")

# What the lines of the document take for granted, around them.
BEFORE_AND_AFTER = """
import sys, types
import gantry
from gpu_driver import Driver, Tensor
torch = types.SimpleNamespace(cuda=types.SimpleNamespace(synchronize=lambda: None))
BLOCK, BLOCKS, LAYERS = 32768, 10, 3
producers, consumers = sys.argv[1:]

def tensors_on(ordinal, first):
    driver = Driver(ordinal)
    made = []
    for layer in range(LAYERS):
        made.append(Tensor(driver.allocate(BLOCK * BLOCKS), BLOCK * BLOCKS))
        driver.write(made[-1].address, b"".join(bytes([first + layer * BLOCKS + i]) * BLOCK for i in range(BLOCKS)))
    return driver, made

producer = {"gantry": gantry, "tensors": tensors_on(1, 0)[1]}
exec(PRODUCER.replace('"/run/gantry"', "producers"), producer | {"producers": producers}, producer)
driver, tensors = tensors_on(0, 100)
consumer = {"gantry": gantry, "torch": torch, "tensors": tensors, "name": producer["info"]["name"],
            "address": producer["info"]["peer_address"], "consumers": consumers}
exec(CONSUMER.replace('"/run/gantry"', "consumers"), consumer)
status = consumer["status"]
assert (status.state, status.path, status.bytes) == ("succeeded", "ipc", 2 * LAYERS * BLOCK), status
for layer, tensor in enumerate(tensors):
    source = {3: layer * BLOCKS + 7, 1: layer * BLOCKS + 9}
    expected = b"".join(bytes([source.get(i, 100 + layer * BLOCKS + i)]) * BLOCK for i in range(BLOCKS))
    assert driver.read(tensor.address, BLOCK * BLOCKS) == expected, layer
print("moved", gantry.__file__)
"""


def run(*command, **environment):
    """Without what leads to the checkout's package or library."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GANTRY_") and name != "PYTHONPATH"}
    return subprocess.run([*map(str, command)], cwd="/", capture_output=True, text=True, timeout=SECONDS, env=clean | environment)


class Steps:
    """How long each took, for who reads the log."""

    def __init__(self):
        self.said = []

    def time(self, name, step):
        start = time.monotonic()
        result = step()
        self.said.append(f"{name}: {time.monotonic() - start:.1f} s")
        return result


@pytest.fixture(scope="module")
def steps():
    return Steps()


@pytest.fixture(scope="module")
def python(tmp_path_factory, steps):
    """That of a new environment into which both packages were installed, from copies: pip builds in the folders themselves."""
    folder = tmp_path_factory.mktemp("connector")
    steps.time("a new environment", lambda: subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True))
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
    made = folder / "venv" / "bin" / "python"
    installed = steps.time(f"pip install {' '.join(PACKAGES)}", lambda: run(
        made, "-m", "pip", "install", "--disable-pip-version-check", *(folder / package for package in PACKAGES),
        GANTRY_LIBRARY=str(LIB_DIR / "libgantry.so")))
    if installed.returncode != 0 and any(said in installed.stderr for said in NO_INDEX):
        pytest.skip(f"pip finds no setuptools to build with: no package index can be reached: {installed.stderr[-300:]}")
    assert installed.returncode == 0, installed.stdout + installed.stderr
    return made


def test_the_example_runs_from_the_installed_package(python, steps, capsys):
    result = steps.time("the example with memory of the host", lambda: run(
        python, EXAMPLE, "--memory", "host", "--program", BIN_DIR / "gantry-sidecar", "--workers", "2"))
    assert result.returncode == 0, result.stdout + result.stderr
    assert "consumer: every byte of the cache was compared" in result.stdout
    where = run(python, "-c", "import gantry, gantry.native; print(gantry.__file__, gantry.native.lib._name)").stdout.split()
    assert all(str(python.parent.parent) in path for path in where) and len(where) == 2, where
    with capsys.disabled():
        print("\n" + "\n".join(steps.said))


def test_without_pytorch_the_example_says_what_there_is(python):
    result = run(python, EXAMPLE)
    assert result.returncode == 1 and "Traceback" not in result.stderr
    assert "No module named 'torch'; without PyTorch there is --memory host" in result.stderr


def test_the_connector_for_vllm_is_installed_with_all_its_modules(python):
    assert f"pip install {' '.join(f'./{package}' for package in PACKAGES)}" in (ROOT / "docs" / "getting_started_vllm.md").read_text()
    where = run(python, "-c", "import gantry_vllm; from importlib.metadata import requires, version; "
                "print(gantry_vllm.__file__, version('gantry-vllm'), *requires('gantry-vllm'))")
    file, *said = where.stdout.split()
    assert said == ["0.1.0", "gantry"] and file.startswith(str(python.parent.parent)), where
    names = [sorted(path.name for path in folder.iterdir() if path.is_file())
             for folder in (Path(file).parent, ROOT / "connectors" / "vllm" / "gantry_vllm")]
    assert names[0] == names[1]


@pytest.mark.parametrize("name", ["GantryConnector", "NixlConnector"])
def test_without_vllm_the_connector_says_what_it_needs(python, name):
    result = run(python, "-c", f"from gantry_vllm import {name}")
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith(f"ImportError: {name} needs vLLM 0.26 or newer in this Python's environment: No module named "), result.stderr


@pytest.mark.skipif(REAL, reason="test_move_kv_cache.py does it with PyTorch")
def test_the_lines_of_a_connector_move_gpu_memory(python, steps, gpus, start_sidecar, tmp_path, capsys):
    block = re.search(r"## What a connector does\n\n```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)[1]
    producer, consumer = block.split("# in the consumer\n")
    script = tmp_path / "connector.py"
    script.write_text(f"PRODUCER = {textwrap.dedent(producer)!r}\nCONSUMER = {consumer!r}\n{BEFORE_AND_AFTER}")
    sidecars = [start_sidecar(name, workers=2).run_dir for name in "ab"]
    result = steps.time("a connector's lines over GPU memory", lambda: run(
        python, script, *sidecars, PYTHONPATH=str(ROOT / "tests" / "end_to_end"), GANTRY_FAKE_GPU_DIR=str(gpus)))
    assert result.returncode == 0 and result.stdout.startswith(f"moved {python.parent.parent}"), result.stdout + result.stderr
    with capsys.disabled():
        print("\n" + steps.said[-1])
