"""Sidecars with RDMA devices under load, in a guest that has such devices, scraped each second: for draw_dashboards.py.

  record_rdma.py SECONDS FOLDER     writes FOLDER/a-N.txt and b-N.txt

a reads and writes memory of b by RDMA, and reads memory of c, which has no RDMA, by tcp.
"""

import random
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "rdma"), str(HERE.parent / "end_to_end")]
from conftest import SidecarProcess  # noqa: E402
from rdma_scene import TCP, assert_moved, meet, transfer  # noqa: E402
from workloads import Memory, MiB, WorkloadProcess  # noqa: E402

SIZE = 8 * MiB
RECORD_SECONDS = 1
RECORDED = ("a", "b")


def repeat(what, stopped, errors):
    chance = random.Random(1)
    while not stopped.wait(chance.uniform(0.1, 0.5)):
        try:
            what(chance)
        except BaseException as error:  # told by main()
            errors.append(error)
            stopped.set()


def main(seconds, to):
    folder = tempfile.mkdtemp(prefix="gantry-", dir="/tmp")
    sidecars = {name: SidecarProcess(name, folder, workers=1, flags=[*TCP, *flags]).start()
                for name, flags in (("a", []), ("b", []), ("c", ["--no-rdma"]))}
    memories = {name: Memory(SIZE, filled=True) for name in sidecars}
    workloads = {name: WorkloadProcess(sidecar, "reader" if name == "a" else "owner") for name, sidecar in sidecars.items()}
    stopped, errors = threading.Event(), []
    try:
        for name, workload in workloads.items():
            workload.register(memories[name], ("kv", 0, SIZE))
        for name in ("b", "c"):
            assert meet(sidecars["a"], sidecars[name])["state"] == "up"

        def move(operation, owner, path, chance):
            ranges = [[0, start, 0, start, MiB] for start in range(0, chance.randint(1, SIZE // MiB) * MiB, MiB)]
            assert_moved(transfer(sidecars["a"], operation, "kv", f"{owner}/owner/kv", ranges, require=()), path)

        loads = [lambda chance: move("read", "b", "rdma", chance), lambda chance: move("write", "b", "rdma", chance),
                 lambda chance: move("read", "c", "tcp", chance)]
        threads = [threading.Thread(target=repeat, args=(load, stopped, errors), daemon=True) for load in loads]
        for thread in threads:
            thread.start()
        begun = time.monotonic()
        for number in range(int(seconds / RECORD_SECONDS)):
            if stopped.wait(max(0, begun + number * RECORD_SECONDS - time.monotonic())):
                break
            for name in RECORDED:
                (Path(to) / f"{name}-{number}.txt").write_text(sidecars[name].ask("GET", "/metrics")[1])
        stopped.set()
        for thread in threads:
            thread.join(30)
        if errors:
            raise errors[0]
    finally:
        stopped.set()
        for each in (*workloads.values(), *sidecars.values()):
            each.kill()
        for memory in memories.values():
            memory.close()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(float(sys.argv[1]), sys.argv[2])
