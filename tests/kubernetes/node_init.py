"""The first process of the node's namespaces: makes their mounts and network, starts the daemons and starts again what ends.

  node_init.py FOLDER SECONDS [OWNER]     ends, and all with it, after SECONDS or with the process of the descriptor OWNER
"""

import os
import select
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import node_layout  # noqa: E402

RESTART_AFTER_SECONDS = 1.0
START_SECONDS = 60
# What the kubelet sets for the whole machine: it writes into files of the node instead.
KERNEL_SETTINGS = {"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
                   "kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000"}
# The daemons' own folders: over this machine's lie those of the node.
COVERED = ("/etc", "/var/lib", "/var/log")


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stdout}{done.stderr}")


def make_mounts(folder):
    run("mount", "-t", "proc", "proc", "/proc")
    settings = folder / "kernel"
    for name, value in KERNEL_SETTINGS.items():
        file = settings / name.replace("/", ".")
        file.parent.mkdir(exist_ok=True)
        file.write_text(value + "\n")
        if Path("/proc/sys", name).exists():
            run("mount", "--bind", str(file), f"/proc/sys/{name}")
    for path in COVERED:
        upper, work = (folder / "covers" / kind / path.strip("/").replace("/", ".") for kind in ("upper", "work"))
        upper.mkdir(parents=True)
        work.mkdir(parents=True)
        run("mount", "-t", "overlay", "-o", f"lowerdir={path},upperdir={upper},workdir={work}", "overlay", path)
    run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    for name in ("kubelet",):
        (folder / name).mkdir()
        Path("/var/lib", name).mkdir(exist_ok=True)
        run("mount", "--bind", str(folder / name), f"/var/lib/{name}")
    for path in ("/etc/cdi", "/run/cdi", "/run/netns"):
        Path(path).mkdir(parents=True, exist_ok=True)
    run("mount", "--make-rshared", "/")


def make_network():
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "add", "node0", "type", "bridge")
    run("ip", "address", "add", f"{node_layout.ADDRESS}/24", "dev", "node0")
    run("ip", "link", "set", "node0", "up")
    run("ip", "route", "add", "default", "dev", "node0", "src", node_layout.ADDRESS)
    for name in ("ipv4/ip_forward", "ipv4/conf/all/route_localnet", "bridge/bridge-nf-call-iptables"):
        Path("/proc/sys/net", name).write_text("1")


def make_cgroups(name):
    for path in node_layout.cgroup_parents():
        (path / name).mkdir(exist_ok=True)
        if path.name == "cpuset":  # version 1: a new one has no processor
            for file in ("cpuset.cpus", "cpuset.mems"):
                (path / name / file).write_text((path / file).read_text())


class Daemons:
    def __init__(self, layout):
        self.layout = layout
        self.commands, self.running, self.due = {}, {}, {}

    def start(self, name):
        environment = {"PATH": self.layout.path(), "HOME": str(self.layout.folder)}
        with open(self.layout.log(name), "ab") as log:
            process = subprocess.Popen(self.commands[name], stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", env=environment,
                                       start_new_session=True)
        self.running[process.pid] = name
        file = self.layout.pid(name)
        file.with_suffix(".new").write_text(str(process.pid))
        file.with_suffix(".new").rename(file)

    def add(self, name, command, address):
        self.commands[name] = command
        self.start(name)
        deadline = time.monotonic() + START_SECONDS
        while address and not answers(address):
            if time.monotonic() > deadline:
                sys.exit(f"{name} does not answer at {address}")
            self.look_after(0.1)

    def look_after(self, seconds):
        """Reaps what ended, orphans too; starts daemons again whose time has come."""
        time.sleep(seconds)
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            if name := self.running.pop(pid, None):
                print(f"{name} ended with {os.waitstatus_to_exitcode(status)}", flush=True)
                self.due[name] = time.monotonic() + RESTART_AFTER_SECONDS
        for name in [name for name, when in self.due.items() if when <= time.monotonic()]:
            del self.due[name]
            self.start(name)


def answers(address):
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with urllib.request.urlopen(address, timeout=2, context=context):
            return True
    except urllib.error.HTTPError as error:
        return error.code == 401  # it asks who that is: it answers
    except OSError:
        return False


def main(folder, seconds, owner=None):
    os.umask(0o022)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))
    layout = node_layout.Layout(Path(folder))
    make_mounts(layout.folder)
    make_network()
    make_cgroups(layout.cgroup)
    daemons = Daemons(layout)
    for daemon in layout.daemons():
        daemons.add(*daemon)
    layout.ready.touch()
    until = time.monotonic() + float(seconds)
    while time.monotonic() < until:
        if owner is not None and select.select([int(owner)], [], [], 0)[0]:
            sys.exit("its owner is gone")
        daemons.look_after(0.2)
    sys.exit("its time is over")


if __name__ == "__main__":
    main(*sys.argv[1:])
