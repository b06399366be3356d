"""The node as seen from outside of it: its start and its end, and how commands get into it."""

import fcntl
import json
import os
import signal
import subprocess
import tempfile
import time
import zlib
from pathlib import Path

import node_images
import node_layout

ROOT = Path(__file__).resolve().parents[2]
READY_SECONDS = 120
LIFE_SECONDS = 2 * 3600


class NodeError(Exception):
    pass


def why_not():
    """Why this machine can have no node; empty where it can. What is tried is what a node's first process does."""
    if os.geteuid() != 0:
        return "a node needs root, for namespaces and mounts"
    tries = (("mount namespaces and overlay mounts", "mount -t tmpfs none /mnt && mkdir -p /mnt/u /mnt/w && "
              "mount -t overlay -o lowerdir=/etc,upperdir=/mnt/u,workdir=/mnt/w overlay /etc && mount -t proc proc /proc"),
             ("network namespaces and bridges", "ip link set lo up && ip link add node0 type bridge"))
    for what, script in tries:
        done = subprocess.run(["unshare", "--mount", "--propagation", "private", "--net", "--pid", "--ipc", "--uts", "--fork", "sh", "-ec", script],
                              capture_output=True, text=True)
        if done.returncode != 0:
            return f"a node needs {what}, which this machine refuses: {' '.join(done.stderr.split())}"
    try:
        for folder in node_layout.cgroup_parents():
            probe = folder / f"gantry-probe-{os.getpid()}"
            probe.mkdir()
            probe.rmdir()
    except OSError as error:
        return f"a node needs to make cgroups, which this machine refuses: {error}"
    return ""


class Node:
    """One for each folder. The first process of its namespaces holds all of it: with that process everything ends."""

    def __init__(self, folder=None):
        self.folder = Path(folder or os.environ.get("GANTRY_NODE_DIR", ROOT / "build" / "kubernetes")).resolve()
        self.layout = node_layout.Layout(self.folder)
        self.kubeconfig = self.layout.kubeconfig("admin")

    def up(self, owner=None):
        """`owner`: a process whose end is the node's."""
        if os.geteuid() != 0:
            raise NodeError("needs root, for namespaces and mounts")
        binaries = subprocess.run([ROOT / "tools" / "kubernetes-path"], check=True, capture_output=True, text=True).stdout.strip()
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.folder / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.down()
            self.layout.make(binaries, f"gantry-node-{zlib.crc32(str(self.folder).encode()):08x}")
            self._start(os.pidfd_open(owner) if owner else None)
            with tempfile.TemporaryDirectory() as work:
                self.load(node_images.write_pause_image(self.folder / "images" / "pause.tar", node_layout.PAUSE_IMAGE, work))

    def _start(self, owner_fd):
        descriptors = () if owner_fd is None else (owner_fd,)
        command = ["unshare", "--mount", "--propagation", "private", "--net", "--pid", "--ipc", "--uts", "--fork",
                   "--kill-child=KILL", "python3", "-B", str(Path(__file__).parent / "node_init.py"), str(self.folder),
                   str(LIFE_SECONDS), *map(str, descriptors)]
        with open(self.layout.log("init"), "wb") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                                       cwd="/", pass_fds=descriptors)
        self.layout.holder.write_text(f"{process.pid} {_start_time(process.pid)}")
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline and process.poll() is None:
            if self.layout.ready.exists() and self._kubectl_says_ready():
                return
            time.sleep(0.1)
        self.down()
        raise NodeError(f"not ready within {READY_SECONDS} s: {self.folder}/logs says why\n{self._last_words()}")

    def _kubectl_says_ready(self):
        asked = subprocess.run(self.kubectl_command(["get", "node", node_layout.NAME, "-o", "json"]), capture_output=True, text=True)
        if asked.returncode != 0:
            return False
        conditions = json.loads(asked.stdout)["status"].get("conditions", [])
        return any(it["type"] == "Ready" and it["status"] == "True" for it in conditions)

    def _last_words(self):
        return "\n".join(f"-- {path.name}\n" + "\n".join(path.read_text(errors="replace").splitlines()[-5:])
                         for path in sorted(self.layout.logs.glob("*.log")))

    def down(self):
        """Ends everything that runs in it, and removes what it has left outside of its folder. Twice is no error."""
        if holder := self._holder():
            os.kill(holder, signal.SIGKILL)  # unshare; the kernel ends the first process, and with it all others
            deadline = time.monotonic() + 30
            while time.monotonic() < deadline and self._runs():
                time.sleep(0.05)
        self.layout.remove_what_is_left()

    def _holder(self):
        try:
            pid, start = self.layout.holder.read_text().split()
        except (OSError, ValueError):
            return None
        return int(pid) if _start_time(int(pid)) == start else None

    def _runs(self):
        """Whether a process is left in one of the node's cgroups, or its first one."""
        return self._holder() is not None or any(path.read_text().strip() for path in self.layout.cgroup_procs())

    def first_pid(self):
        """Of the first process in the node's namespaces, as this process sees it."""
        holder = self._holder()
        children = Path(f"/proc/{holder}/task/{holder}/children").read_text().split() if holder else []
        if not children:
            raise NodeError("is not up: tests/kubernetes/node up")
        return int(children[0])

    def inside(self, command):
        """The command line that runs `command` beside the node's daemons."""
        return ["nsenter", f"--target={self.first_pid()}", "--all", "--", "env", f"PATH={self.layout.path()}",
                f"KUBECONFIG={self.kubeconfig}", *command]

    def run(self, *command):
        """Runs it beside the daemons; what it printed."""
        done = subprocess.run(self.inside(command), capture_output=True, text=True)
        if done.returncode != 0:
            raise NodeError(f"{' '.join(map(str, command))}: {done.stdout}{done.stderr}")
        return done.stdout

    def kubectl_command(self, arguments):
        """kubectl sees this machine's files, and the node's network."""
        return ["nsenter", f"--target={self.first_pid()}", "--net", "--", str(self.layout.binaries / "kubectl"),
                f"--kubeconfig={self.kubeconfig}", *arguments]

    def shell_command(self, command):
        """The command line that runs `command` with kubectl and helm: it sees this machine's files, and the node's network."""
        helm = subprocess.run([ROOT / "tools" / "helm-path"], check=True, capture_output=True, text=True).stdout.strip()
        return ["nsenter", f"--target={self.first_pid()}", "--net", "--", "env", f"PATH={self.layout.binaries}:{helm}:{os.environ['PATH']}",
                f"KUBECONFIG={self.kubeconfig}", *command]

    def load(self, archive):
        """Imports the images of an archive, as if the node had pulled them."""
        self.images("import", "--snapshotter", "overlayfs", str(Path(archive).resolve()))

    def images(self, *command):
        self.run("ctr", "--address", str(self.layout.containerd_socket), "--namespace", "k8s.io", "images", *command)

    def restart(self, daemon, how=signal.SIGTERM):
        """Ends a daemon and waits until it runs again."""
        pid_file = self.layout.pid(daemon)
        if not pid_file.exists():
            raise NodeError(f"has no daemon {daemon}: it has {' '.join(sorted(it.stem for it in pid_file.parent.glob('*.pid')))}")
        before = pid_file.read_text()
        self.run("kill", f"-{int(how)}", before)
        deadline = time.monotonic() + 30
        while pid_file.read_text() == before:
            if time.monotonic() > deadline:
                raise NodeError(f"{daemon} was not started again: see {self.layout.log(daemon)}")
            time.sleep(0.05)


def _start_time(pid):
    """Tells a process from a later one with its number; None when there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat[stat.rindex(")") + 2:].split()
    return None if fields[0] == "Z" else fields[19]
