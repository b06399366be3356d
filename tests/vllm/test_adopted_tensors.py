"""Host memory of numpy and torch, adopted in place. adopted_tensors.py has the checks, as vLLM's environment has both."""

import shutil
from pathlib import Path

import pytest
from conftest import end_to_end
from forks import IMPORT_SECONDS

SCRIPT = Path(__file__).with_name("adopted_tensors.py")
SECONDS = 100


@pytest.mark.timeout(SECONDS + IMPORT_SECONDS)
def test_arrays_and_tensors(forks, folder):
    short = Path(end_to_end.short_folder())
    sidecar = end_to_end.SidecarProcess("adopter", short)
    try:
        sidecar.start()
        forks.run([SCRIPT, sidecar.run_dir], folder / "adopted_tensors.log", SECONDS, leaves=False)
    finally:
        sidecar.kill()
        shutil.rmtree(short, ignore_errors=True)
