#!/usr/bin/env python3
"""Keeps every GPU busy with bf16 matrix products, as a model would, until it is ended.

    tests/gpu/matmul_load.py [SIZE]

Prints "ready" when the GPUs are at work, then once a second a line "SECONDS RATE": the monotonic clock, and products a
second, of the GPU with the fewest. SIZE of the square matrices: 8192.
"""

import sys
import threading
import time

import torch


class Load:
    """One GPU's endless loop; `done` counts the products that are finished."""

    def __init__(self, device: int, size: int) -> None:
        self.done = 0
        self._device = torch.device("cuda", device)
        self._size = size
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        a = torch.randn(self._size, self._size, dtype=torch.bfloat16, device=self._device)
        out = torch.empty_like(a)
        events = []
        while True:
            torch.mm(a, a, out=out)
            event = torch.cuda.Event()
            event.record(torch.cuda.current_stream(self._device))
            events.append(event)
            if len(events) > 8:  # some are always waiting, so that the GPU never is
                events.pop(0).synchronize()
                self.done += 1


def main() -> None:
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 8192
    loads = [Load(device, size) for device in range(torch.cuda.device_count())]
    while any(load.done < 20 for load in loads):
        time.sleep(0.05)
    print("ready", flush=True)
    while True:
        before, start = [load.done for load in loads], time.monotonic()
        time.sleep(1)
        rates = [(load.done - last) / (time.monotonic() - start) for load, last in zip(loads, before)]
        print(f"{time.monotonic():.3f} {min(rates):.2f}", flush=True)


if __name__ == "__main__":
    main()
