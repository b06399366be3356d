"""What the tests of the Python package share: the package, a client, and a pair of clients at two sidecars."""

import os
import random
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from conftest import ROOT

LIBRARY = Path(os.environ.get("GANTRY_LIB_DIR", ROOT / "build" / "release" / "lib")) / "libgantry.so"
PACKAGE = ROOT / "client" / "python"
os.environ.setdefault("GANTRY_LIBRARY", str(LIBRARY))
sys.path.insert(0, str(PACKAGE))
import gantry  # noqa: E402

MIB = 1 << 20
BLOCK = 4096


@pytest.fixture
def client(sidecar):
    with gantry.Client(sidecar.run_dir, "w") as one:
        yield one


@pytest.fixture
def arena(client):
    return client.arena(MIB)


class Pair:
    """A source with random bytes at sidecar a and a target with zeros at sidecar b, each in the middle of its arena."""

    OFFSET, BLOCKS = 5000, 16

    def __init__(self, start_sidecar, source_access=("remote_read",), flags=()):
        self.a, self.b = start_sidecar("a", flags=list(flags)), start_sidecar("b", flags=list(flags))
        self.source_client = gantry.Client(self.a.run_dir, "prefill")
        self.client = gantry.Client(self.b.run_dir, "decode")
        self.client.set_peer("a", self.a.peer_address)
        self.source_arena, self.target_arena = self.source_client.arena(MIB), self.client.arena(MIB)
        self.source_arena[:MIB] = random.Random(1).randbytes(MIB)
        length = self.BLOCKS * BLOCK
        self.source = self.source_arena.view(self.OFFSET, length)
        self.target = self.target_arena.view(self.OFFSET, length)
        layout = gantry.Layout(BLOCK)
        self.source_buffer = self.source_client.register("k.0", self.source, access=source_access, layout=layout)
        self.buffer = self.client.register("k.0", self.target, layout=layout)

    def neighbours_are_untouched(self):
        end = self.OFFSET + self.BLOCKS * BLOCK
        return not any(self.target_arena[:self.OFFSET]) and not any(self.target_arena[end:])


@pytest.fixture
def pair(start_sidecar):
    return Pair(start_sidecar)


def code_of(call, *arguments, **named):
    with pytest.raises(gantry.Error) as caught:
        call(*arguments, **named)
    return caught.value.code


def run_script(text, *arguments, **options):
    """Another Python process with the package; returns its exit code, stdout, stderr."""
    environment = os.environ | {"PYTHONPATH": str(PACKAGE)}
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(text), *map(str, arguments)], capture_output=True,
                          text=True, timeout=60, env=environment, **options)
    return done.returncode, done.stdout, done.stderr


def buffers_at(sidecar, workload="w"):
    status, body = sidecar.ask("GET", f"/v1/buffers?workload={workload}")
    return [buffer["name"] for buffer in body["buffers"]] if status == 200 else []


def wait_until(condition, seconds=5):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not condition():
        time.sleep(0.02)
    return condition()
