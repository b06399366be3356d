"""A KV connector for vLLM: prefill/decode disaggregation through Gantry sidecars. README.md says what is supported.

    --kv-transfer-config '{"kv_connector": "GantryConnector", "kv_connector_module_path": "gantry_vllm",
                           "kv_role": "kv_both", "kv_load_failure_policy": "recompute"}'

Dynamo chooses the shape of a request by the connector's name, and knows NixlConnector: it is another name of the same class here.
"""

from typing import Any


def __getattr__(name: str) -> Any:
    """The classes, whose modules import vLLM; the package's other modules do not need it."""
    if name in ("GantryConnector", "NixlConnector"):
        try:
            from .connector import GantryConnector
        except ModuleNotFoundError as error:
            if error.name not in ("torch", "vllm"):
                raise
            raise ImportError(f"{name} needs vLLM 0.26 or newer in this Python's environment: {error}") from None
        return GantryConnector
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
