"""Threads for work that waits for others: what stands still for one of them delays nobody else's."""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import Any, Callable

log = logging.getLogger("vllm.gantry")

_IDLE_SECONDS = 10.0  # after which a thread without work ends

_Work = Callable[[], None]


class Lanes:
    """A lane for each key. The work of one lane has `each` threads at most, and that of all lanes `all` threads.

    Work of a lane begins in the order in which it was submitted. Threads are made when they are needed; they are daemons, as
    a process that ends waits for none of them.
    """

    def __init__(self, name: str, each: int, all: int) -> None:
        self._name, self._each, self._all = name, each, all
        self._changed = threading.Condition()
        self._running: dict[str, int] = {}
        self._waiting: dict[str, deque[_Work]] = {}  # for a turn in their lane
        self._ready: deque[tuple[str, _Work]] = deque()  # whose turn it is, and that have no thread yet
        self._threads, self._idle, self._closed = 0, 0, False

    def submit(self, key: str, work: Callable[..., None], *arguments: Any) -> bool:
        """Neither blocks nor raises. False: it will never be done, after close() or where no thread can be made."""
        its: _Work = lambda: work(*arguments)
        with self._changed:
            if self._closed:
                return False
            if self._running.get(key, 0) == self._each:
                self._waiting.setdefault(key, deque()).append(its)
                return True
            self._running[key] = self._running.get(key, 0) + 1
            self._ready.append((key, its))
            if self._idle >= len(self._ready):
                self._changed.notify()
                return True
            if self._threads == self._all or self._start() or self._threads:
                return True  # by a thread that has other work now
            self._ready.pop()
            self._leave(key)
            return False

    def close(self) -> None:
        """Work that runs goes on; the rest is left."""
        with self._changed:
            self._closed = True
            self._waiting.clear()
            self._ready.clear()
            self._changed.notify_all()

    def _start(self) -> bool:
        try:
            threading.Thread(target=self._serve, name=self._name, daemon=True).start()
        except RuntimeError as error:
            log.warning("no thread can be made for %s: %s", self._name, error)
            return False
        self._threads += 1
        return True

    def _serve(self) -> None:
        while (turn := self._next()) is not None:
            key, work = turn
            try:
                work()
            except Exception:  # noqa: BLE001 - the next one's turn comes all the same
                log.exception("a thread of %s for %s", self._name, key)
            with self._changed:
                if queue := self._waiting.get(key):
                    self._ready.append((key, queue.popleft()))
                else:
                    self._leave(key)

    def _next(self) -> "tuple[str, _Work] | None":
        """None: the thread ends."""
        with self._changed:
            while not self._ready and not self._closed:
                self._idle += 1
                told = self._changed.wait(_IDLE_SECONDS)
                self._idle -= 1
                if not told and not self._ready:
                    break
            if self._ready and not self._closed:
                return self._ready.popleft()
            self._threads -= 1
            return None

    def _leave(self, key: str) -> None:
        self._waiting.pop(key, None)
        self._running[key] -= 1
        if not self._running[key]:
            del self._running[key]
