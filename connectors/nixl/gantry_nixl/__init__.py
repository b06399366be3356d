"""What a program beside NIXL's backend GANTRY needs from Python: host memory that sidecars can map."""

from .host_memory import host_memory
from .installed import plugin_files

__all__ = ["host_memory", "plugin_files"]
__version__ = "0.1.0"
