"""Cases of single classes that need vLLM's modules and no engine: *_cases.py, each in a process of the environment."""

from pathlib import Path

import pytest
from forks import IMPORT_SECONDS

CASES = sorted(path.stem for path in Path(__file__).parent.glob("*_cases.py"))
SECONDS = 180


@pytest.mark.timeout(SECONDS + IMPORT_SECONDS)
@pytest.mark.parametrize("module", CASES)
def test_classes(forks, folder, module):
    forks.run(["-m", "unittest", module], folder / f"{module}.log", SECONDS, path=[Path(__file__).parent], leaves=False)
