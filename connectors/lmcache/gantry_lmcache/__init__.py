"""A transfer channel for LMCache's multiprocess server: P2P reads through Gantry sidecars. README.md says what is supported.

    lmcache server --p2p-transfer-engine gantry --p2p-advertise-url HOST:PORT --coordinator-url URL \\
        --l2-adapter '{"type": "plugin", "module_path": "gantry_lmcache", "class_name": "GantryChannel"}'

LMCache has no option that names the module of a transfer channel. It imports this module for the adapter, before it makes the
channel. The import registers the channel's name, and the adapter stores nothing.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .adapter import GantryChannel as GantryChannel


def __getattr__(name: str) -> Any:
    """The adapter's class. Its module imports LMCache, which the package's other modules do not all need."""
    if name == "GantryChannel":
        try:
            from .adapter import GantryChannel
        except ModuleNotFoundError as error:
            if error.name is None or error.name.split(".")[0] not in ("lmcache", "torch", "zmq"):
                raise
            raise ImportError(f"{name} needs LMCache 0.5.6 in this Python's environment: {error}") from None
        return GantryChannel
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
