"""Control groups (cgroups) with a limit of memory or of processes, below the one that the tests run in: its limits go on to hold."""

import itertools
import os
import re
from pathlib import Path

from workloads import wait_for


_numbers = itertools.count(1)
_users = itertools.count(10_000 + 1000 * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]))


def new_user():
    """The id of a user that no other test has, also of those that run at once: RLIMIT_NPROC counts all threads of a user."""
    return next(_users)


def own_group(controller):
    """(folder of this process's group of "memory" or "pids", whether it is of version 2), or None where none is mounted."""
    paths = {names: path for _, names, path in (line.rstrip("\n").split(":", 2) for line in open("/proc/self/cgroup"))}
    unified = not any(controller in names.split(",") for names in paths)
    path = next((path for names, path in paths.items() if controller in names.split(",")), paths.get(""))
    kind = r"cgroup2 \S+ " if unified else rf"cgroup \S+ \S*\b{controller}\b"
    mount = re.search(rf"^\S+ \S+ \S+ (\S+) (\S+) .* - {kind}", Path("/proc/self/mountinfo").read_text(), re.M)
    if not mount or path is None:
        return None
    relative = os.path.relpath(path, mount[1])
    return Path(mount[2]) / ("" if relative.startswith("..") else relative), unified


class Group:
    """Raises OSError where none can be made: as another user, or below a group of version 2 that has processes."""

    def __init__(self, controller, limit):
        found = own_group(controller)
        if found is None:
            raise OSError(f"no controller of {controller} is mounted")
        above, unified = found
        self._limit = {"memory": "memory.max" if unified else "memory.limit_in_bytes", "pids": "pids.max"}[controller]
        self.folder = above / f"gantry-test-{os.getpid()}-{next(_numbers)}"
        self.folder.mkdir()
        try:
            if unified and controller not in (self.folder / "cgroup.controllers").read_text().split():
                raise OSError(f"{above} gives its children no controller of {controller}")
            self.set(limit)
        except OSError:
            self.folder.rmdir()
            raise

    @property
    def prefix(self):
        """The beginning of a command that is to run in the group; its PID is the command's own."""
        return ["sh", "-c", f'echo $$ >"{self.folder}/cgroup.procs" && exec "$@"', "sh"]

    def set(self, limit):
        (self.folder / self._limit).write_text(str(limit))

    def join(self):
        """Puts the calling process in; what it had taken before stays where it is."""
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def remove(self):
        """Waits for the processes in it to end: the kernel counts one that was killed for a moment."""
        def removed():
            try:
                self.folder.rmdir()
            except OSError:
                return False
            return True

        wait_for(removed, 10, "the removal of the control group")


class MemoryGroup(Group):
    def __init__(self, limit):
        super().__init__("memory", limit)


class PidsGroup(Group):
    """`limit`: of all threads of all processes in it."""

    def __init__(self, limit="max"):
        super().__init__("pids", limit)

    def allow(self, free):
        """`free` more threads from now on; all of those that there are stay. With 0 none, also where some end."""
        self.set(int((self.folder / "pids.current").read_text()) + free if free else 1)
