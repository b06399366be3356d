"""The settings of the channel: `adapter_params` of the plugin adapter."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, fields
from typing import Any, Optional

import gantry

_SECONDS_MAX = 3600


@dataclass(frozen=True)
class Settings:
    """Times are seconds.

    run_dir         the run directory of the pod's sidecar; otherwise $GANTRY_RUN_DIR, or /run/gantry
    peer_address    where other sidecars reach this one, "unix:PATH" or "HOST:PORT"; None: as the sidecar says, with the host of
                    the advertised URL where the sidecar listens on all addresses
    require_path    the only paths that reads may take, for example ["shm"]; None: any
    read_deadline   a read that has not ended by then fails. LMCache's --p2p-load-timeout has to be ten seconds longer
    lookup_timeout  LMCache's --p2p-lookup-timeout. A server that was restarted is read from when it is older than this
    start_timeout   how long the start waits for the sidecar
    """

    run_dir: str = ""
    peer_address: Optional[str] = None
    require_path: Optional[list[str]] = None
    read_deadline: float = 15.0
    lookup_timeout: float = 30.0
    start_timeout: float = 30.0

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
        for name in ("read_deadline", "lookup_timeout", "start_timeout"):
            seconds = getattr(self, name)
            if type(seconds) not in (int, float) or not 0 < seconds <= _SECONDS_MAX:
                raise ValueError(f"{name} of GantryChannel is not between 0 and {_SECONDS_MAX} seconds: {seconds!r}")
        if paths is not None and (not isinstance(paths, list) or not paths or not set(map(str, paths)) <= set(gantry.PATHS)):
            raise ValueError(f"require_path of GantryChannel is no list of {', '.join(gantry.PATHS)}: {paths!r}")
