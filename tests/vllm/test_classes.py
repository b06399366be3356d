"""Cases of single classes that need vLLM's modules and no engine: *_cases.py, each in a process of the environment."""

import subprocess
from pathlib import Path

import pytest
from vllm_servers import environment_of

CASES = sorted(path.stem for path in Path(__file__).parent.glob("*_cases.py"))
SECONDS = 180


@pytest.mark.timeout(SECONDS + 30)
@pytest.mark.parametrize("module", CASES)
def test_classes(environment, module):
    done = subprocess.run([environment / "venv" / "bin" / "python", "-m", "unittest", module], cwd=Path(__file__).parent,
                          stdin=subprocess.DEVNULL, env=environment_of(), timeout=SECONDS, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
