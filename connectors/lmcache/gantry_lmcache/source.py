"""Another server, as far as its memory is concerned: who it is now, and from when on its addresses can be trusted."""

from __future__ import annotations

import logging
import threading
import time
from typing import Callable, Optional

import gantry

from .channel_handshake import Handshake

log = logging.getLogger("lmcache.gantry")

_SILENT_SECONDS = 1.0  # after a question without an answer other reads do not ask
_READS_MAX = 64  # of one source at once; LMCache has fewer under way unless a sidecar stands still


class Source:
    """Every method may be called by every thread.

    LMCache says where an object lies, and not in which process of the server that was. Memory of a server that was restarted has
    other objects at these places. So a new process is read from when it is older than any answer that LMCache may still use.
    """

    def __init__(self, url: str, ask: Callable[[], Handshake], restart_wait: float) -> None:
        """Asks, and raises gantry.Error when there is no answer. `restart_wait`: see Settings."""
        self.url = url
        self.room = threading.Semaphore(_READS_MAX)
        self._ask = ask
        self._settled_age = restart_wait
        self._lock = threading.Lock()
        self._handshake = ask()
        self._usable_from = 0.0
        self._is_stale = False
        self._silence: Optional[tuple[float, gantry.Error]] = None  # when it did not answer last, and why

    @property
    def handshake(self) -> Handshake:
        """The last answer. Makes no request."""
        return self._handshake

    def invalidate(self) -> None:
        """After a failure: the next read asks first."""
        self._is_stale = True

    def checked(self) -> Handshake:
        """The handshake that a read uses. Raises gantry.Error where there is none, or none that can be trusted yet."""
        with self._lock:
            if self._is_stale:
                self._renew()
            left = self._usable_from - time.monotonic()
            if left > 0:
                raise gantry.Error("stale_generation", f"the server was restarted, and is read in {left:.0f} s: until then LMCache may "
                                   "have places of its earlier process")
            return self._handshake

    def _renew(self) -> None:
        if self._silence is not None and time.monotonic() - self._silence[0] < _SILENT_SECONDS:
            raise gantry.Error(self._silence[1].code, self._silence[1].message)
        try:
            new = self._ask()
        except gantry.Error as error:
            self._silence = time.monotonic(), error.with_traceback(None)
            raise
        if new.life != self._handshake.life:
            self._usable_from = time.monotonic() + max(0.0, self._settled_age - new.age)
            log.info("the server of workload %s was restarted as %s", self._handshake.workload, new.workload)
        self._handshake = new
        self._is_stale = False
