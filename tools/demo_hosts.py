"""Where the pods of tools/demo run: in network namespaces of two hosts where that is allowed, else on this one."""

import os
import subprocess


class Hosts:
    """Where pod-a and pod-c run: two network namespaces joined by a veth pair, or both here."""

    PORT = 7450

    def __init__(self):
        self.names = [f"gantry-demo-{os.getpid()}-{side}" for side in "ac"]
        self.addresses = ["127.0.0.1", "127.0.0.1"]
        self.prefixes = [[], []]
        self.separate = os.geteuid() == 0 and self._join()

    def _join(self):
        addresses = ["10.91.8.1", "10.91.8.2"]
        commands = [["netns", "add", name] for name in self.names]
        commands.append(["link", "add", "wire", "netns", self.names[0], "type", "veth", "peer", "name", "wire", "netns",
                         self.names[1]])
        for name, address in zip(self.names, addresses):
            commands += [["-n", name, "addr", "add", f"{address}/24", "dev", "wire"],
                         ["-n", name, "link", "set", "wire", "up"], ["-n", name, "link", "set", "lo", "up"]]
        try:
            for command in commands:
                subprocess.run(["ip", *command], check=True, capture_output=True, timeout=10)
        except (OSError, subprocess.SubprocessError):
            self.close()
            return False
        self.addresses = addresses
        self.prefixes = [["ip", "netns", "exec", name] for name in self.names]
        return True

    def describe(self):
        return "two network namespaces" if self.separate else "loopback"

    def close(self):
        for name in self.names if os.geteuid() == 0 else []:
            try:
                subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=10)
            except OSError:
                return
