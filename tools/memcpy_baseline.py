"""What memcpy makes of the demo's copies: the same bytes between the same memories, by as many processes.

Run as a program it is one of these processes, which the demo starts.
"""

import ctypes
import json
import mmap
import os
import subprocess
import sys
import time

MADV_POPULATE_WRITE = 23
ROUNDS = 5


def copy_part():
    """A process of plain_memcpy: reads what to copy, then copies for each line and answers with seconds."""
    task = json.loads(sys.stdin.readline())
    maps = []
    for pid, fd, length in task["arenas"]:
        descriptor = os.open(f"/proc/{pid}/fd/{fd}", os.O_RDWR)
        maps.append(mmap.mmap(descriptor, length))
        os.close(descriptor)
        try:
            maps[-1].madvise(MADV_POPULATE_WRITE)
        except OSError:
            maps[-1].madvise(mmap.MADV_WILLNEED)
    source, target = (ctypes.addressof(ctypes.c_char.from_buffer(one)) for one in maps)
    print("ready", flush=True)
    for _ in sys.stdin:
        print(json.dumps([timed_copies(source, target, copies) for copies in task["lists"]]), flush=True)


def timed_copies(source, target, copies):
    seconds = []
    for moving in (0, 1):  # what the calls themselves cost is not memcpy's
        calls = [(target + to, source + start, length * moving) for start, to, length in copies]
        start = time.perf_counter()
        for call in calls:
            ctypes.memmove(*call)
        seconds.append(time.perf_counter() - start)
    return seconds[1] - seconds[0]


def plain_memcpy(prefill, decode, geometry, block_bytes, workers):
    """Best seconds (block by block, one run for each view) of `workers` processes that copy the same bytes.

    None when the memory of the workloads cannot be opened.
    """
    local_blocks, remote_blocks = geometry.block_tables()
    views = range(len(geometry.view_names))
    blocks = [(geometry.block_offset(view, remote), geometry.block_offset(view, local), block_bytes)
              for view in views for local, remote in zip(local_blocks, remote_blocks)]
    runs = [(geometry.view_offset(view), geometry.view_offset(view), geometry.prompt_blocks * block_bytes)
            for view in views]
    arenas = [(process.pid, event["fd"], event["bytes"]) for process, event in (prefill, decode)]
    helpers = []
    try:
        for part in range(workers):
            helpers.append(subprocess.Popen([sys.executable, __file__], text=True, bufsize=1,
                                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL))
            task = {"arenas": arenas, "lists": [blocks[part::workers], runs[part::workers]]}
            helpers[-1].stdin.write(json.dumps(task) + "\n")
        if [helper.stdout.readline().strip() for helper in helpers] != ["ready"] * workers:
            return None
        rounds = []
        for _ in range(ROUNDS):
            for helper in helpers:
                helper.stdin.write("go\n")
            answers = [json.loads(helper.stdout.readline()) for helper in helpers]
            rounds.append([max(times) for times in zip(*answers)])
        return [min(times) for times in zip(*rounds)]
    except (OSError, ValueError):
        return None
    finally:
        for helper in helpers:
            helper.kill()
            helper.communicate()


if __name__ == "__main__":
    copy_part()
