"""The settings of the channel: `adapter_params` of the plugin adapter."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, fields
from typing import Any, Optional

import gantry

_SECONDS_MAX = 3600
LOAD_MARGIN_SECONDS = 15.0  # twelve to notice a sidecar that stands still, and the next for its last bytes
QUIESCE_SECONDS_MAX = 3.0


@dataclass(frozen=True)
class Settings:
    """Times are seconds.

    run_dir         the run directory of the pod's sidecar; otherwise $GANTRY_RUN_DIR, or /run/gantry
    peer_address    where other sidecars reach this one, "unix:PATH" or "HOST:PORT"; None: as the sidecar says, with the host of
                    the advertised URL where the sidecar listens on all addresses
    require_path    the only paths that reads may take, for example ["shm"]; None: any
    read_deadline   a read that has not ended by then fails. LMCache's --p2p-load-timeout has to be 15 seconds longer
    restart_wait    a server that was restarted is read from when it is older than this. LMCache may use addresses of its earlier
                    process until then; 300 s is how long LMCache keeps an object for a read
    start_timeout   how long the start waits for the sidecar
    peer_hosts      "same": another server's sidecar has to be at the host of that server's URL, or at a Unix socket. "any": the
                    sidecar of this pod connects to any host that another server names, and shows its token there
    """

    run_dir: str = ""
    peer_address: Optional[str] = None
    require_path: Optional[list[str]] = None
    read_deadline: float = 15.0
    restart_wait: float = 300.0
    start_timeout: float = 30.0
    peer_hosts: str = "same"

    @staticmethod
    def of(params: dict[str, Any]) -> "Settings":
        """Raises ValueError with one sentence for a name or a value that is not understood."""
        known = {field.name for field in fields(Settings)}
        unknown = sorted(set(params) - known)
        if unknown:
            raise ValueError(f"adapter_params of GantryChannel has {', '.join(unknown)}; it knows {', '.join(sorted(known))}")
        values = dict(params)
        values["run_dir"] = values.get("run_dir") or os.environ.get("GANTRY_RUN_DIR", "/run/gantry")
        settings = Settings(**values)
        settings._check()
        return settings

    def _check(self) -> None:
        if not isinstance(self.run_dir, str):
            raise ValueError(f"run_dir of GantryChannel is no text: {self.run_dir!r}")
        address, paths = self.peer_address, self.require_path
        if address is not None and not (isinstance(address, str) and re.fullmatch(r"unix:/.+|.+:\d{1,5}", address)):
            raise ValueError(f"peer_address of GantryChannel is neither unix:/PATH nor HOST:PORT: {address!r}")
        for name in ("read_deadline", "restart_wait", "start_timeout"):
            seconds = getattr(self, name)
            if type(seconds) not in (int, float) or not 0 < seconds <= _SECONDS_MAX:
                raise ValueError(f"{name} of GantryChannel is not between 0 and {_SECONDS_MAX} seconds: {seconds!r}")
        if self.peer_hosts not in ("same", "any"):
            raise ValueError(f"peer_hosts of GantryChannel is neither same nor any: {self.peer_hosts!r}")
        if paths is not None and (not isinstance(paths, list) or not paths or not set(map(str, paths)) <= set(gantry.PATHS)):
            raise ValueError(f"require_path of GantryChannel is no list of {', '.join(gantry.PATHS)}: {paths!r}")


def load_timeout_of(words: list[str]) -> float:
    """LMCache's --p2p-load-timeout in a command line, which is the only place that names it; 30 s where it is not there."""
    found = 30.0
    for word, following in zip(words, [*words[1:], ""]):
        name, equals, value = word.partition("=")
        if len(name) > len("--p2p-lo") and "--p2p-load-timeout".startswith(name):  # argparse takes abbreviations
            try:
                found = float(value if equals else following)
            except ValueError:  # LMCache refuses it by itself
                continue
    return found
