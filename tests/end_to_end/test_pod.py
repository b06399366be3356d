"""A sidecar as a container of a pod has it: what the device plugin and Kubernetes put into its environment, and the file in
which Kubernetes looks for why it ended.

The folder of peers is mounted where the plugin mounts it, in a mount namespace of the sidecar's own.
"""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from conftest import BIN_DIR, UnixConnection
from rest_contract import CheckedClient

from workloads import LARGE, Scene, new_memory, send, start_workload, wait_for

PEERS = "/run/gantry/peers"
POD = {"GANTRY_POD_NAME": "one", "GANTRY_POD_NAMESPACE": "team"}
SLOT = {"GANTRY_SLOT": "slot-003", "GANTRY_SLOT_POD": "one", "GANTRY_SLOT_NAMESPACE": "team",
        "GANTRY_SLOT_CONTAINER": "gantry-sidecar", "GANTRY_SLOT_GPUS": "", "GANTRY_SLOT_PEER_GPUS": "",
        "GANTRY_SLOT_RDMA_DEVICES": ""}
NO_GPUS = "--gpu-workers=0"
NOBODY = 65534

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount")


@pytest.fixture
def container(folder, start_sidecar):
    """container(SLOT, ...): a sidecar with these variables; `source`, of the folder, is mounted at PEERS."""
    message = folder / "termination-log"
    message.touch()

    def start(*variables, source=None, uid=None, flags=(NO_GPUS,), name="one", wait=True):
        values = {key: value for some in (POD, *variables) for key, value in some.items()}
        prefix = ["env", f"GANTRY_TERMINATION_LOG={message}",
                  *(f"{key}={value}" for key, value in values.items() if value is not None)]
        node_dir = None
        if source:
            place = folder / "peers" / source
            place.mkdir(parents=True, exist_ok=True)
            place.chmod(0o1777)
            # /run may be anything here: what is mounted over it is this namespace's alone.
            mount = (f"mount -t tmpfs none /run && mkdir -p {PEERS} && mount --bind {place} {PEERS} && "
                     'exec "$@"')
            prefix = ["unshare", "--mount", "sh", "-c", mount, "sh", *prefix]
            node_dir = PEERS
        if uid is not None:
            folder.chmod(0o755)
            run_dir = folder / name
            run_dir.mkdir(exist_ok=True)
            os.chown(run_dir, uid, uid)
            message.chmod(0o666)
            prefix += ["setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups"]
        sidecar = start_sidecar(name, wait=wait, prefix=prefix, node_dir=node_dir or folder / "own-node-dir",
                                flags=flags)
        sidecar.message = message
        return sidecar

    return start


def ends(sidecar):
    """The exit status and the termination message of a sidecar that must not start."""
    return sidecar.process.wait(15), sidecar.message.read_text()


def pod_of(sidecar):
    """By the documented schema."""
    return CheckedClient(UnixConnection(sidecar.api_socket))("GET", "/v1/status")[1]["pod"]


def doctor(sidecar):
    done = subprocess.run([BIN_DIR / "gantryctl", "--socket", str(sidecar.api_socket), "--json", "doctor"],
                          capture_output=True, text=True, timeout=20)
    return [finding for finding in json.loads(done.stdout)["findings"] if finding["subject"].startswith("pod")]


@needs_root
def test_a_slot_as_it_should_be(container):
    sidecar = container(SLOT, source="team", flags=[NO_GPUS, "--require-slot"])
    assert pod_of(sidecar) == {
        "name": "one", "namespace": "team", "findings": [],
        "slot": {"id": "slot-003", "container": "gantry-sidecar", "gpus": [], "peer_gpus": [], "rdma_devices": []}}
    (finding,) = doctor(sidecar)
    assert finding["level"] == "ok" and "team/one has slot-003" in finding["said"]
    assert sidecar.stop() == 0
    assert sidecar.message.read_text() == "", "an end that was asked for needs no reason"


def test_outside_of_kubernetes_nothing_is_found(sidecar):
    assert pod_of(sidecar) == {"findings": []}
    assert doctor(sidecar) == []


def test_the_slot_of_another_pod_ends_it_before_it_touches_anything(container):
    sidecar = container(SLOT, {"GANTRY_SLOT_POD": "two"}, wait=False)
    status, message = ends(sidecar)
    assert status == 2
    assert "slot-003 is bound to the pod team/two, and this is team/one" in message
    assert "delete the pod" in message
    assert message.split(":")[0] == "slot" and "neighbour" in sidecar.log
    assert not list(sidecar.run_dir.glob("*.sock")) and "copy worker" not in sidecar.log


def test_a_slot_that_has_to_be_there_and_is_not(container):
    status, message = ends(container(flags=["--require-slot"], wait=False))
    assert (status, "GANTRY_SLOT is not set" in message, "gantry.dev/transfer" in message) == (2, True, True), message
    sidecar = container(name="two")
    assert pod_of(sidecar) == {"name": "one", "namespace": "team", "findings": []}
    assert "no slot" in doctor(sidecar)[0]["said"]


@needs_root
def test_the_peer_folder_of_another_namespace(container):
    status, message = ends(container(SLOT, source="others", wait=False))
    assert status == 2 and "others of the node, and the namespace is team" in message


@needs_root
def test_a_peer_folder_that_this_user_cannot_write_to(container, folder):
    (folder / "peers" / "team").mkdir(parents=True)
    sidecar = container(SLOT, source="team", uid=NOBODY)
    assert sidecar.stop() == 0
    (folder / "peers" / "team").chmod(0o755)
    sidecar.start(wait=False)
    status, message = ends(sidecar)
    assert status == 2 and f"user {NOBODY} may make no sockets in {PEERS}: Permission denied" in message


def test_what_is_only_missing_is_a_warning(container):
    sidecar = container(SLOT, {"GANTRY_SLOT_GPUS": "GPU-1,GPU-2", "GANTRY_SLOT_RDMA_DEVICES": "mlx5_77",
                               "GANTRY_POD_NAMESPACE": None}, flags=[])
    findings = pod_of(sidecar)["findings"]
    assert [(each["level"], each["subject"]) for each in findings] == [
        ("warning", subject) for subject in ("slot", "GPU GPU-1", "GPU GPU-2", "RDMA mlx5_77")]
    assert "mlx5_77" in sidecar.log and all(each["said"] and each["advice"] for each in findings)
    told = doctor(sidecar)[1:]
    assert [(each["level"], each["said"], each["advice"]) for each in told] == [
        ("warn", each["said"], each["advice"]) for each in findings]


def test_a_start_that_fails_is_said_in_the_termination_message(container):
    status, message = ends(container(flags=["--rest-listen", "0.0.0.0:0"], wait=False))
    assert status == 1 and message.startswith("the sidecar cannot start: ") and "loopback" in message


@pytest.mark.parametrize("flags, said", [(["--workers=many"], "--workers"), (["--nonsense"], "--nonsense"),
                                         (["--deadline-ms-default=10", "--deadline-ms-max=5"], "--deadline-ms-max")])
def test_settings_that_are_wrong_are_said_in_the_termination_message(container, flags, said):
    status, message = ends(container(flags=flags, wait=False))
    assert status == 2 and said in message


def test_a_long_message_is_cut_and_a_missing_file_is_not_made(container, folder):
    sidecar = container(SLOT, {"GANTRY_SLOT_POD": "x" * 9000}, wait=False)
    status, message = ends(sidecar)
    assert (status, len(message)) == (2, 4096)
    sidecar.message.unlink()
    sidecar.start(wait=False)
    assert sidecar.process.wait(15) == 2 and not sidecar.message.exists()


def test_an_end_by_force_is_said_in_the_termination_message(start_sidecar, start_workload, new_memory, folder):
    """A transfer that cannot become quiet in the time that SIGTERM leaves."""
    message = folder / "log"
    message.touch()
    scene = Scene(start_sidecar, start_workload, new_memory, LARGE,
                  flags=["--shutdown-ms=300", "--quiesce-ms-max=60000", f"--termination-log={message}"])
    scene.hold()
    scene.a.process.send_signal(signal.SIGTERM)
    assert scene.a.process.wait(10) == 1
    assert "did not stop within 300 ms of SIGTERM" in message.read_text()


@pytest.mark.smoke
def test_sigterm_drains(start_sidecar, start_workload, new_memory):
    """It waits for what moves, and leaves nothing that moves, is mapped or runs."""
    scene = Scene(start_sidecar, start_workload, new_memory, LARGE)
    _, workers = scene.hold()
    begin = time.monotonic()
    scene.a.process.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    assert scene.a.process.poll() is None
    send(workers, signal.SIGCONT)
    assert scene.a.process.wait(10) == 0 and time.monotonic() - begin < 5
    assert not list(scene.a.run_dir.glob("*.sock"))
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers), 2, "the workers to end")
    left = bytes(scene.target.map)
    scene.source.fill()
    time.sleep(0.2)
    assert bytes(scene.target.map) == left
    assert scene.b.ask("GET", "/readyz")[0] == 200, "the peer goes on"
