"""The transport of vLLM's p2p tier over NIXL's backend GANTRY. p2p_transports.py has the checks."""

import contextlib
import shutil
from pathlib import Path

import pytest
from conftest import end_to_end
from forks import IMPORT_SECONDS

SCRIPT = Path(__file__).with_name("p2p_transports.py")
SECONDS = 100

pytestmark = pytest.mark.timeout(SECONDS + IMPORT_SECONDS)


@contextlib.contextmanager
def sidecars(*flags):
    short = Path(end_to_end.short_folder())
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, short, ignore_errors=True)
        made = [end_to_end.SidecarProcess(name, short, flags=flags) for name in ("one", "two")]
        for sidecar in made:
            stack.callback(sidecar.kill)
            sidecar.start()
        yield made


def run(forks, folder, path, made):
    log = folder / "p2p_transports.log"
    status = forks.start([SCRIPT, *(sidecar.run_dir for sidecar in made)], log, path=[path]).wait(SECONDS)
    return status, log.read_text(errors="replace")


def test_blocks_of_files_in_dev_shm_are_written(forks, folder, nixl_with_plugin):
    with sidecars("--unsealed-memory") as made:
        status, log = run(forks, folder, nixl_with_plugin, made)
    assert status == 0, log[-6000:]
    assert "take the path shm" in log


def test_such_files_are_refused_without_the_setting(forks, folder, nixl_with_plugin):
    with sidecars() as made:
        status, log = run(forks, folder, nixl_with_plugin, made)
    assert status != 0
    assert "start the sidecar with --unsealed-memory" in log, log[-6000:]
