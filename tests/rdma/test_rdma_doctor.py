"""What `gantryctl doctor` says where there is an RDMA device."""

import json
import os
import subprocess
from pathlib import Path

from rdma_scene import DEVICE, folder, needs_guest, start_sidecar

GANTRYCTL = str(Path(os.environ["GANTRY_BIN_DIR"]) / "gantryctl")
SMALL_BYTES = 64 << 10
# As a container without the capability has it, whoever runs in it.
WITH_A_SMALL_LIMIT = ["prlimit", f"--memlock={SMALL_BYTES}", "setpriv", "--bounding-set", "-ipc_lock", "--inh-caps", "-ipc_lock"]


def findings(*words, before=()):
    said = subprocess.run([*before, GANTRYCTL, "doctor", "--json", *map(str, words)], capture_output=True, text=True, timeout=60)
    return {finding["subject"]: finding for finding in json.loads(said.stdout)["findings"]}


def test_a_device_is_said_to_be_usable_and_how_it_is_addressed():
    said = findings()
    assert "RDMA" not in said, "that there is none"
    assert said[f"RDMA {DEVICE}"]["level"] == "ok", said
    assert "RoCE v2 by GID ::ffff:" in said[f"RDMA {DEVICE}"]["said"] or "InfiniBand" in said[f"RDMA {DEVICE}"]["said"], said


@needs_guest
def test_soft_roce_takes_no_dma_buf(start_sidecar):
    said = findings("--socket", start_sidecar("a").api_socket)[f"RDMA {DEVICE} and GPUs"]
    assert said["level"] == "ok", "there is no GPU that would need it"
    assert f"RDMA device {DEVICE} takes no dma-buf (" in said["said"], said


@needs_guest
def test_a_small_limit_of_locked_memory_is_a_warning_only_where_it_binds():
    limited = findings(before=WITH_A_SMALL_LIMIT)["limit memlock"]
    assert limited["level"] == "warn" and limited["said"].startswith("64 KiB of locked memory"), limited
    assert "cannot register more memory of the host" in limited["said"] and "memlock=-1" in limited["advice"], limited
    exempt = findings(before=WITH_A_SMALL_LIMIT[:2])["limit memlock"]
    assert exempt["level"] == "ok" and "CAP_IPC_LOCK" in exempt["said"], exempt
    unlimited = findings(before=["prlimit", "--memlock=unlimited", *WITH_A_SMALL_LIMIT[2:]])["limit memlock"]
    assert unlimited["level"] == "ok", unlimited
