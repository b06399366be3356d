"""Host memory that sidecars can map, for programs beside NIXL's backend GANTRY."""

from .host_memory import host_memory
from .installed import plugin_files

__all__ = ["host_memory", "plugin_files"]
__version__ = "0.1.0"
