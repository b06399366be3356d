"""Programs that the fork server starts: their ends are told, and none is left where the tests end."""

import os

import pytest
from forks import IMPORT_SECONDS
from vllm_servers import wait_for

pytestmark = pytest.mark.timeout(120 + IMPORT_SECONDS)

FOR_EVER = ["-m", "http.server", "--bind", "127.0.0.1", "0"]


def is_there(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("leaves", [True, False])
def test_the_exit_status_of_a_program(forks, folder, leaves):
    def status(*arguments):
        return forks.start(["-m", *arguments], folder / f"{leaves}.log", leaves=leaves).wait(60)
    assert status("json.tool", "--help") == 0
    assert "usage" in (folder / f"{leaves}.log").read_text()
    assert status("json.tool", folder / "not-there") not in (0, None)
    assert status("no_such_module") not in (0, None)


def test_a_program_ends_where_nobody_waits_for_it(forks, folder):
    program = forks.start(FOR_EVER, folder / "left.log")
    assert (folder / "left.log").exists(), "once its pid is known"
    assert program.poll() is None and is_there(program.pid)
    program.close()
    wait_for(lambda: not is_there(program.pid), "it has ended")
