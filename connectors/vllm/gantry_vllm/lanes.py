"""Threads for work that waits for others: what stands still for one of them delays nobody else's."""

from __future__ import annotations

import logging
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable

log = logging.getLogger("vllm.gantry")


class Lanes:
    """A lane for each key. The work of one lane has `each` threads at most, and that of all lanes `all` threads.

    Work of a lane begins in the order in which it was submitted. Threads are made when they are needed.
    """

    def __init__(self, name: str, each: int, all: int) -> None:
        self._each = each
        self._lock = threading.Lock()
        self._running: dict[str, int] = {}
        self._waiting: dict[str, deque[Callable[[], None]]] = {}
        self._pool = ThreadPoolExecutor(all, name)

    def submit(self, key: str, work: Callable[..., None], *arguments: Any) -> None:
        """Neither blocks nor raises; after close() nothing is done."""
        with self._lock:
            running = self._running.get(key, 0)
            if running == self._each:
                self._waiting.setdefault(key, deque()).append(lambda: work(*arguments))
                return
            self._running[key] = running + 1
        try:
            self._pool.submit(self._serve, key, lambda: work(*arguments))
        except RuntimeError as error:
            log.debug("work that came after the end is left: %s", error)

    def close(self) -> None:
        """Work that runs goes on; the rest is left."""
        with self._lock:
            self._waiting.clear()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _serve(self, key: str, work: Callable[[], None]) -> None:
        while True:
            try:
                work()
            except Exception:  # noqa: BLE001 - the next one's turn comes all the same
                log.exception("a thread for %s", key)
            with self._lock:
                queue = self._waiting.get(key)
                if not queue:
                    self._leave(key)
                    return
                work = queue.popleft()

    def _leave(self, key: str) -> None:
        self._waiting.pop(key, None)
        self._running[key] -= 1
        if not self._running[key]:
            del self._running[key]
