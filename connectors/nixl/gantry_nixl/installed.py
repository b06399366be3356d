"""Where the backend was installed."""

from __future__ import annotations

from pathlib import Path


def plugin_files() -> list[Path]:
    """Returns the backend's files beside this package: one for each of NIXL's wheels.

    A NIXL that was installed elsewhere, as in some containers, takes a copy of one of them in its own folder of plugins.
    """
    return sorted(Path(__file__).resolve().parents[1].glob(".nixl_cu*.mesonpy.libs/plugins/libplugin_GANTRY.so"))
