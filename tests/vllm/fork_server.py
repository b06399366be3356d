"""Forks programs that use vLLM from a process that has imported it once, as each import takes many seconds: fork_server.py SOCKET.

Each connection is one program. Its first line says which, as JSON:

{"worker": {...}}   a worker of the connector; worker_process.py says what follows
{"program": [FILE or "-m", MODULE, ARGUMENT...], "log": PATH, "variables": {...}, "path": [FOLDER...], "leaves": false}
                    what Python would run, in a session of its own. The answers are its pid and, on another line, its exit
                    status. Its session is killed where the connection ends before. "leaves": false: it leaves nothing that the
                    interpreter's end has to undo, which takes 0.7 s of a processor with vLLM's modules

It ends with its standard input, which is a pipe of the tests' process.
"""

import functools
import gc
import importlib
import json
import multiprocessing
import os
import runpy
import select
import signal
import socket
import sys
import time
import traceback
from pathlib import Path

import torch
import vllm.utils.system_utils
from vllm.distributed.device_communicators import shm_broadcast
from vllm.distributed.device_communicators.cpu_communicator import CpuCommunicator
from vllm.distributed.device_communicators.shm_broadcast import SpinCondition

# On the CPU vLLM spawns its processes, and each imports all again. On a GPU it forks them, as it does here.
vllm.utils.system_utils.get_mp_context = lambda: multiprocessing.get_context("fork")

# Its processes look for a message for a second after the last one before they sleep. Those of two engines leave no core to
# others. Between two looks they call sched_yield: on Linux 6.18 no other process ran for seconds beside two that do.
SpinCondition.__init__.__defaults__ = (0.005,)
assert hasattr(shm_broadcast, "sched_yield")
shm_broadcast.sched_yield = functools.partial(time.sleep, 0.0002)
# So do two ranks that add up by shared memory; by Gloo they sleep.
assert hasattr(CpuCommunicator, "_all_group_ranks_share_shm_group_name")
CpuCommunicator._all_group_ranks_share_shm_group_name = lambda communicator: False

# The modules that `vllm serve` imports in its three processes.
USED = ["vllm.entrypoints.cli." + name for name in ("benchmark.main", "collect_env", "download_kernels", "launch", "openai", "preload",
                                                    "run_batch", "serve", "snapshot")]
USED += ["vllm.entrypoints.openai.api_server", "vllm.model_executor.models.llama", "vllm.v1.attention.backends.cpu_attn",
         "vllm.v1.engine.core", "vllm.v1.executor.multiproc_executor", "vllm.v1.worker.cpu_worker"]


def run(said):
    """Runs a program in this process."""
    os.environ.clear()
    os.environ.update(said["variables"])
    file, *arguments = said["program"]
    sys.path[0] = str(Path(file).parent)
    sys.path[1:1] = said["path"]
    if file == "-m":
        module, *arguments = arguments
        sys.argv = [module, *arguments]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    else:
        sys.argv = [file, *arguments]
        runpy.run_path(file, run_name="__main__")


def run_and_exit(said):
    """As run(), without the interpreter's end."""
    status = 1
    try:
        run(said)
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else end.code is not None
    except Exception:  # noqa: BLE001 - as Python ends a program
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def attend(connection, program):
    """Tells the program's exit status, and ends its session when nobody wants to know."""
    poll = select.poll()
    for each in (connection, ending := os.pidfd_open(program)):
        poll.register(each, select.POLLIN)
    if ending not in dict(poll.poll()):
        os.killpg(program, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(program, 0)[1])
    try:
        connection.sendall(b"%d\n" % status)
    except BrokenPipeError:
        pass


def begin(connection):
    """In a process of its own: returns what is to be run in it, or None."""
    with connection:
        lines = connection.makefile("rw")
        said = json.loads(lines.readline())
        if "worker" in said:
            importlib.import_module("worker_process").serve(lines, said["worker"])
            return None
        program = os.fork()
        if program:
            attend(connection, program)
            return None
        os.setsid()
        with open(said["log"], "wb") as log:  # is there once the pid is known
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        connection.sendall(b"%d\n" % os.getpid())
        return said


def import_vllm():
    for module in USED:
        importlib.import_module(module)


def main():
    """Returns in processes that were forked alone."""
    torch.set_num_threads(1)
    import_vllm()
    importlib.import_module("worker_process")
    gc.collect()
    gc.freeze()  # so that no process writes to what it shares with the others
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(sys.argv[1])
        listener.listen()
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        while True:
            if sys.stdin in select.select([listener, sys.stdin], [], [])[0]:
                sys.exit()
            connection, _ = listener.accept()
            if os.fork() == 0:
                break
            connection.close()
    with open(os.devnull, encoding="ascii") as nothing:
        os.dup2(nothing.fileno(), 0)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    return begin(connection)


if __name__ == "__main__":
    if told := main():
        (run if told["leaves"] else run_and_exit)(told)
