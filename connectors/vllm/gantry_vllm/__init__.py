"""A KV connector for vLLM: prefill/decode disaggregation through Gantry sidecars. README.md says what is supported.

    --kv-transfer-config '{"kv_connector": "GantryConnector", "kv_connector_module_path": "gantry_vllm.connector",
                           "kv_role": "kv_both", "kv_load_failure_policy": "recompute"}'
"""
