"""What only the node itself knows: its files and its containers' processes, seen from outside without a program in the container."""

import stat
from pathlib import Path

from cluster import status_of

TASKS = "run/containerd/io.containerd.runtime.v2.task/k8s.io"


class NodeFiles:
    def __init__(self, node):
        self._node = node
        self.root = Path(f"/proc/{node.first_pid()}/root")

    def names(self, folder):
        """Of the files of a folder of the node; none where there is no such folder."""
        path = self.root / folder.lstrip("/")
        return sorted(it.name for it in path.iterdir()) if path.is_dir() else []

    def process(self, pod, container):
        """The /proc folder of the container's first process."""
        name = status_of(pod, container)["containerID"].removeprefix("containerd://")
        return self.root / "proc" / (self.root / TASKS / name / "init.pid").read_text()

    def environment(self, pod, container):
        lines = (self.process(pod, container) / "environ").read_text().split("\0")
        return dict(line.split("=", 1) for line in lines if "=" in line)

    def devices(self, pod, container, *patterns):
        """{name below /dev of the container: mode} of device files."""
        dev = self.process(pod, container) / "root" / "dev"
        return {str(it.relative_to(dev)): stat.S_IMODE(it.stat().st_mode) for pattern in patterns for it in dev.glob(pattern)}

    def kill(self, pod, container):
        """SIGKILL, as the kernel does it when there is no memory left."""
        self._node.run("kill", "-KILL", self.process(pod, container).name)
