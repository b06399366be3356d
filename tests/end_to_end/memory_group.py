"""A control group (cgroup) with a memory limit, below the one that the tests run in: its limits go on to hold."""

import os
import re
from pathlib import Path


def own_group():
    """(folder of this process's memory group, whether it is of version 2), or None where none is mounted."""
    paths = {names: path for _, names, path in (line.rstrip("\n").split(":", 2) for line in open("/proc/self/cgroup"))}
    unified = not any("memory" in names.split(",") for names in paths)
    path = next((path for names, path in paths.items() if "memory" in names.split(",")), paths.get(""))
    kind = r"cgroup2 \S+ " if unified else r"cgroup \S+ \S*\bmemory\b"
    mount = re.search(rf"^\S+ \S+ \S+ (\S+) (\S+) .* - {kind}", Path("/proc/self/mountinfo").read_text(), re.M)
    if not mount or path is None:
        return None
    relative = os.path.relpath(path, mount[1])
    return Path(mount[2]) / ("" if relative.startswith("..") else relative), unified


class MemoryGroup:
    """Raises OSError where none can be made: as another user, or below a group of version 2 that has processes."""

    def __init__(self, limit):
        found = own_group()
        if found is None:
            raise OSError("no memory controller is mounted")
        above, unified = found
        self.folder = above / f"gantry-test-{os.getpid()}"
        self.folder.mkdir()
        try:
            if unified and "memory" not in (self.folder / "cgroup.controllers").read_text().split():
                raise OSError(f"{above} gives its children no memory controller")
            (self.folder / ("memory.max" if unified else "memory.limit_in_bytes")).write_text(str(limit))
        except OSError:
            self.folder.rmdir()
            raise

    def join(self):
        """Puts the calling process in; what it had taken before stays where it is."""
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def remove(self):
        """When all processes in it have ended."""
        self.folder.rmdir()
