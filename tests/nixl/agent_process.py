"""One process with one NIXL agent, told by its standard input what to do. agents.py has the other end."""

import ctypes
import fcntl
import importlib
import mmap
import os
import pickle
import sys
import time
from pathlib import Path

import numpy

sys.path.append(str(Path(__file__).resolve().parents[1] / "end_to_end"))  # the GPU's driver
F_ADD_SEALS, SEAL_SHRINK_GROW_SEAL = 1033, 0x1 | 0x2 | 0x4


class ArenaMemory:
    """Shared memory as gantry's arenas are: a sealed memfd with every page present."""

    segment = "DRAM"

    def __init__(self, size):
        fd = os.memfd_create("nixl-test", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
        os.posix_fallocate(fd, 0, size)
        fcntl.fcntl(fd, F_ADD_SEALS, SEAL_SHRINK_GROW_SEAL)
        self.array = numpy.frombuffer(mmap.mmap(fd, size), dtype=numpy.uint8)  # mmap keeps a descriptor of its own
        os.close(fd)
        self.address = self.array.ctypes.data

    def write(self, offset, data):
        self.array[offset:offset + len(data)] = numpy.frombuffer(data, dtype=numpy.uint8)

    def read(self, offset, size):
        return self.array[offset:offset + size].tobytes()


class PrivateMemory(ArenaMemory):
    """A block of malloc."""

    def __init__(self, size):
        self.array = numpy.zeros(size, dtype=numpy.uint8)
        self.address = self.array.ctypes.data


class FileMemory(ArenaMemory):
    """A file in /dev/shm, which cannot be sealed."""

    def __init__(self, size):
        path = f"/dev/shm/gantry-nixl-test-{os.getpid()}"
        with open(path, "w+b") as file:
            os.unlink(path)
            file.truncate(size)
            self.array = numpy.frombuffer(mmap.mmap(file.fileno(), size), dtype=numpy.uint8)
        self.address = self.array.ctypes.data


class GpuMemory:
    """Memory of one GPU of the driver that this process finds: NIXL_TEST_GPU, or the first."""

    segment = "VRAM"
    driver = None

    def __init__(self, size):
        from gpu_driver import Driver

        GpuMemory.driver = GpuMemory.driver or Driver(int(os.environ.get("NIXL_TEST_GPU", "0")))
        self.address = GpuMemory.driver.allocate(size)

    def write(self, offset, data):
        GpuMemory.driver.write(self.address + offset, data)

    def read(self, offset, size):
        return GpuMemory.driver.read(self.address + offset, size)


KINDS = {"arena": ArenaMemory, "private": PrivateMemory, "file": FileMemory, "gpu": GpuMemory}


class AgentCommands:
    """Each public method is a command. Names stand for what cannot leave the process."""

    def __init__(self):
        self.api = importlib.import_module(os.environ["NIXL_MODULE"] + "._api")
        self.memories, self.registrations, self.handles, self.lists = {}, {}, {}, {}
        self.agent, self.backends = None, []

    def open(self, name, parameters, backend="GANTRY", telemetry=False):
        self.backends = [backend]
        self.agent = self.api.nixl_agent(name, self.api.nixl_agent_config(backends=[], capture_telemetry=telemetry))
        self.agent.create_backend(backend, parameters)

    def plugins(self):
        return self.api.nixl_agent("lists", self.api.nixl_agent_config(backends=[])).get_plugin_list()

    def close(self):
        self.handles.clear()
        self.lists.clear()
        self.agent = None

    def allocate(self, name, size, kind="arena"):
        self.memories[name] = KINDS[kind](size)
        return self.memories[name].address

    def write(self, name, offset, data):
        self.memories[name].write(offset, data)

    def read(self, name, offset, size):
        return self.memories[name].read(offset, size)

    def free(self, name):
        del self.memories[name]

    def rename(self, name, to):
        self.memories[to] = self.memories.pop(name)

    def inode(self, name):
        """The file behind a memory, 0 where there is none."""
        address = self.memories[name].address
        for line in Path("/proc/self/maps").read_text().splitlines():
            begin, end = (int(number, 16) for number in line.split()[0].split("-"))
            if begin <= address < end:
                return int(line.split()[4])
        raise ValueError(f"{name} is not mapped")

    def register(self, name, offset, size, registration=None):
        memory = self.memories[name]
        self.registrations[registration or name] = self.agent.register_memory(
            [(memory.address + offset, size, 0, "")], memory.segment, backends=self.backends)

    def pin(self, name):
        """Pins a page of the memory for a device, as RDMA does: io_uring stands for one. The kernel's answers, -1 for a refusal."""
        libc = ctypes.CDLL(None, use_errno=True)
        setup, register, register_buffers = 425, 427, 0
        self.ring = libc.syscall(setup, 1, ctypes.create_string_buffer(120))
        place = (ctypes.c_uint64 * 2)(self.memories[name].address // mmap.PAGESIZE * mmap.PAGESIZE, mmap.PAGESIZE)
        return self.ring, libc.syscall(register, self.ring, register_buffers, place, 1)

    def unpin(self):
        os.close(self.ring)

    def deregister(self, name):
        self.agent.deregister_memory(self.registrations.pop(name))

    def metadata(self):
        return self.agent.get_agent_metadata()

    def load(self, metadata):
        return self.agent.add_remote_agent(metadata).decode()

    def connect(self, agent):
        self.agent.make_connection(agent)

    def unload(self, agent):
        self.agent.remove_remote_agent(agent)

    def prepare(self, handle, operation, local, remote, agent, segments=("DRAM", "DRAM"), message=b""):
        """`local`, `remote`: lists of (address, size)."""
        lists = [self.agent.get_xfer_descs(self._rows(side), segment) for side, segment in zip((local, remote), segments)]
        self.handles[handle] = self.agent.initialize_xfer(operation, *lists, agent, message, backends=self.backends)

    def prepare_list(self, name, agent, rows, segment="DRAM"):
        self.lists[name] = self.agent.prep_xfer_dlist(agent, self._rows(rows), segment, backends=self.backends)

    def choose(self, handle, operation, local, local_indices, remote, remote_indices, message=b""):
        self.handles[handle] = self.agent.make_prepped_xfer(
            operation, self.lists[local], numpy.array(local_indices, dtype=numpy.int32), self.lists[remote],
            numpy.array(remote_indices, dtype=numpy.int32), message, backends=self.backends)

    def post(self, handle, message=b""):
        return self.agent.transfer(self.handles[handle], message)

    def check(self, handle):
        return self.agent.check_xfer_state(self.handles[handle])

    def finish(self, handle, message=b"", seconds=20):
        """Posts and waits for the end."""
        state, end = self.post(handle, message), time.monotonic() + seconds
        while state == "PROC" and time.monotonic() < end:
            state = self.check(handle)
        return state

    def finish_often(self, handle, times):
        """Microseconds that each took, or the first state that is not DONE."""
        took = []
        for _ in range(times):
            began = time.perf_counter()
            state = self.finish(handle)
            took.append((time.perf_counter() - began) * 1e6)
            if state != "DONE":
                return state
        return took

    def telemetry(self, handle):
        """Bytes that NIXL counted of the handle's transfer."""
        return self.agent.get_xfer_telemetry(self.handles[handle]).totalBytes

    def release(self, handle):
        self.agent.release_xfer_handle(self.handles[handle])
        del self.handles[handle]

    def cost(self, handle):
        return self.agent.estimate_xfer_cost(self.handles[handle])

    def send(self, agent, message):
        self.agent.send_notif(agent, message)

    def notifications(self, count=1, seconds=10):
        """Waits for so many: [(agent, message)]."""
        found, end = [], time.monotonic() + seconds
        while len(found) < count and time.monotonic() < end:
            for agent, messages in self.agent.get_new_notifs(backends=self.backends).items():
                found += [(agent if isinstance(agent, str) else agent.decode(), message) for message in messages]
        return found

    def time_empty_notifications(self, times):
        """Microseconds of one call with nothing new."""
        began = time.perf_counter()
        for _ in range(times):
            self.agent.get_new_notifs(backends=self.backends)
        return (time.perf_counter() - began) * 1e6 / times

    def fork(self):
        """The exit code of a child that ends as programs do, with its agent."""
        child = os.fork()
        if child == 0:
            code = 1
            try:
                self.agent.get_new_notifs(backends=self.backends)
                self.close()
                code = 0
            finally:
                os._exit(code)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    def _rows(self, rows):
        return numpy.array([(address, size, 0) for address, size in rows], dtype=numpy.uint64)


def serve():
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is no answer
    commands = AgentCommands()
    while True:
        try:
            name, arguments, options = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer = True, getattr(commands, name)(*arguments, **options)
        except Exception as error:  # noqa: BLE001 - it is the answer
            answer = False, f"{type(error).__name__}: {error}"
        pickle.dump(answer, answers)
        answers.flush()


if __name__ == "__main__":
    serve()
