"""Configurations and parameters that the connector refuses, with vLLM's own classes: each with one line that says why."""

import os
import re
import sys
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import gantry
import torch
from gantry_vllm.connector import GantryConnector
from gantry_vllm.groups import Group, groups_of
from gantry_vllm.handshake import KEY, compatibility, compatibility_hash, prompt_digest
from gantry_vllm.offer import offer_of, sources_of
from gantry_vllm.places import Places
from gantry_vllm.settings import Settings, refuse_unsupported
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
from vllm.engine.arg_utils import EngineArgs
from vllm.v1.attention.backends.utils import resolve_kv_cache_layout
from vllm.v1.kv_cache_interface import (CircularBufferSpec, CrossAttentionSpec, FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec,
                                        MLAAttentionSpec, SlidingWindowSpec)

MODEL = Path(sys.prefix).parent / "model"
BLOCK = 32  # tokens
TOKENS = 4 * BLOCK  # of a prompt
GROUPS = [Group(BLOCK, 0)]
PROMPT = "0123456789abcdef"  # its digest


def vllm_config(**extra):
    return EngineArgs(model=str(MODEL), dtype="float32", max_model_len=512, block_size=32, enforce_eager=True,
                      kv_transfer_config={"kv_connector": "GantryConnector", "kv_role": "kv_both",
                                          "kv_connector_module_path": "gantry_vllm",
                                          "kv_load_failure_policy": "recompute",
                                          "kv_connector_extra_config": extra}).create_engine_config()


def full_attention(**changes):
    return FullAttentionSpec(**{"block_size": 32, "num_kv_heads": 4, "head_size": 32, "dtype": torch.float32, **changes})


def cache_config(*specs):
    groups = [KVCacheGroupSpec([f"layer.{i}"], spec) for i, spec in enumerate(specs)]
    return KVCacheConfig(num_blocks=8, kv_cache_tensors=[], kv_cache_groups=groups)


CONFIG = vllm_config()
FACTORS = compatibility(CONFIG, GROUPS)


WORKER = {"peer": "prefill", "address": "unix:/run/p.sock", "workload": "vllm-a"}


def offered(**changes):
    """kv_transfer_params as a prefiller answers."""
    return {"do_remote_prefill": True, "remote_request_id": "cmpl-1", "remote_block_ids": [[3, 1, 2, 7]],
            KEY: {"workers": [dict(WORKER)], "prompt": PROMPT, "compatibility": dict(FACTORS), "hash": compatibility_hash(FACTORS)}} | changes


class Configurations(unittest.TestCase):

    def refused(self, config, cache, why):
        with self.assertRaisesRegex(ValueError, why) as raised:
            refuse_unsupported(config, cache)
        self.assertNotIn("\n", str(raised.exception))

    def changed(self, **parts):
        """The configuration, of which parts.name has these values."""
        said = SimpleNamespace(**vars(CONFIG))
        for name, values in parts.items():
            setattr(said, name, SimpleNamespace(**(vars(getattr(CONFIG, name)) | values)))
        return said

    def test_full_attention_on_one_worker_is_taken(self):
        refuse_unsupported(CONFIG, cache_config(full_attention()))

    def test_pipelines_are_refused(self):
        self.refused(self.changed(parallel_config={"pipeline_parallel_size": 2}), cache_config(full_attention()),
                     "pipeline parallelism yet: its size is 2")

    def test_decode_context_parallelism_is_refused(self):
        self.refused(self.changed(parallel_config={"decode_context_parallel_size": 2}), cache_config(full_attention()),
                     "decode context parallelism yet: its size is 2")

    def test_buffers_on_another_device_than_the_cache_are_refused(self):
        self.refused(self.changed(kv_transfer_config={"kv_buffer_device": "cuda"}), cache_config(full_attention()),
                     "kv_buffer_device is 'cuda', and the KV cache is on 'cpu'")
        refuse_unsupported(self.changed(kv_transfer_config={"kv_buffer_device": "cpu"}), cache_config(full_attention()))
        with mock.patch("gantry_vllm.settings.current_platform", SimpleNamespace(device_type="cuda")):
            self.refused(CONFIG, cache_config(full_attention()), "kv_buffer_device is 'cpu', and the KV cache is on 'cuda'")

    def test_speculative_decoding_is_refused(self):
        said = self.changed()
        said.speculative_config = object()
        self.refused(said, cache_config(full_attention()), "speculative decoding")

    def test_sliding_windows_and_latent_attention_are_taken(self):
        window = SlidingWindowSpec(block_size=32, num_kv_heads=4, head_size=32, dtype=torch.float32, sliding_window=64)
        latent = MLAAttentionSpec(block_size=32, num_kv_heads=1, head_size=576, dtype=torch.float32)
        refuse_unsupported(CONFIG, cache_config(full_attention(), window))
        self.assertEqual(groups_of(cache_config(full_attention(), window)), [Group(32, 0), Group(32, 64)])
        self.assertEqual(groups_of(cache_config(latent)), [Group(32, 0)])

    def test_hybrid_models_are_refused_where_vllm_takes_no_failed_requests(self):
        window = SlidingWindowSpec(block_size=32, num_kv_heads=4, head_size=32, dtype=torch.float32, sliding_window=64)
        with mock.patch("gantry_vllm.settings.TAKES_FAILED_REQUESTS", False):
            self.refused(CONFIG, cache_config(full_attention(), window), "hybrid models from vLLM 0.32 on")
            refuse_unsupported(CONFIG, cache_config(full_attention()))

    def test_other_kinds_of_layers_are_refused(self):
        said = {"block_size": 32, "num_kv_heads": 4, "head_size": 32, "dtype": torch.float32}
        for spec in (CrossAttentionSpec(**said), CircularBufferSpec(**said)):
            with self.subTest(type(spec).__name__):
                self.refused(CONFIG, cache_config(full_attention(), spec), f"are {type(spec).__name__}")


class ExtraConfig(unittest.TestCase):

    def test_an_unknown_name_is_refused_with_those_that_are_known(self):
        with self.assertRaisesRegex(ValueError, "has hold_tll, rundir; GantryConnector knows .*hold_ttl.*run_dir"):
            Settings.of({"hold_tll": 1, "rundir": "x", "read_deadline": 3})

    def test_the_run_directory_is_said_by_the_configuration_the_environment_or_nobody(self):
        with mock.patch.dict(os.environ, {"GANTRY_RUN_DIR": "/of/environment"}):
            self.assertEqual(Settings.of({"run_dir": "/of/configuration"}).run_dir, "/of/configuration")
            self.assertEqual(Settings.of({}).run_dir, "/of/environment")
            del os.environ["GANTRY_RUN_DIR"]
            self.assertEqual(Settings.of({}).run_dir, "/run/gantry")


    def test_values_that_no_call_would_take_are_refused_at_the_start(self):
        for name, values in {"hold_ttl": ("30", 0, -1, 3601, True, None, float("nan")), "read_deadline": ("x", 0, -5),
                             "require_path": ("shm", [], ["smh"], [None], 5), "peer_address": (5, ["a"]),
                             "run_dir": (5, ["a"]), "executor": ("any", None, ["peer"]), "cross_layers": ("false", 1, None)}.items():
            for value in values:
                with self.subTest(f"{name} {value!r}"), self.assertRaisesRegex(ValueError, f"^{name} of kv_connector_extra_config"):
                    Settings.of({name: value})

    def test_values_that_are_right_are_taken(self):
        said = {"hold_ttl": 0.5, "read_deadline": 3600, "require_path": ["ipc", "shm"], "peer_address": "10.0.0.1:9461", "run_dir": "/r",
                "peer_addresses": ["10.0.0.0/8", "fd00::/8", ".svc.cluster.local", "prefill-0"], "model_id": "tiny", "executor": "peer",
                "cross_layers": True}
        self.assertEqual(vars(Settings.of(said)), vars(Settings()) | said)


class Handshakes(unittest.TestCase):

    def test_an_id_stands_for_the_models_name_and_its_revision(self):
        factors = compatibility(CONFIG, GROUPS, "tiny@1")
        self.assertEqual((factors["model"], factors["revision"]), ("tiny@1", None))
        self.assertEqual(FACTORS["model"], str(MODEL))

    def test_a_prompt_is_its_tokens_and_its_adapter(self):
        def digest(tokens=(1, 2), lora=None):
            return prompt_digest(SimpleNamespace(prompt_token_ids=list(tokens), lora_request=lora and SimpleNamespace(lora_name=lora)))
        different = [digest(), digest((2, 1)), digest((1,)), digest((1, 2, 0)), digest(lora="a"), digest(lora="b"), digest(lora="\ud800")]
        self.assertEqual(len(set(different)), len(different))
        self.assertEqual(digest(), digest())
        self.assertEqual(len(prompt_digest(SimpleNamespace(prompt_token_ids=None, lora_request=None))), 16)

    def test_the_settings_reach_the_scheduler(self):
        said = vllm_config(peer_addresses=["192.0.2.0/24"], model_id="tiny@1")
        scheduler = GantryConnector(said, KVConnectorRole.SCHEDULER, cache_config(full_attention()))._scheduler
        self.assertIsNone(scheduler._places.why_not("192.0.2.1:1"))
        self.assertIsNotNone(scheduler._places.why_not("10.0.0.1:1"))
        self.assertEqual(scheduler._factors["model"], "tiny@1")


class Layouts(unittest.TestCase):

    def chosen(self, supported, **extra):
        """The order of the cache's axes that vLLM takes for backends that support these."""
        config = vllm_config(**extra)
        return resolve_kv_cache_layout(config, [supported], [full_attention()]).name

    def test_vllm_chooses_the_layout_unless_blocks_of_all_layers_are_wanted(self):
        self.assertEqual(self.chosen(["LBNHC", "BLHNC"]), "LBNHC")
        self.assertEqual(self.chosen(["LBNHC", "BLHNC"], cross_layers=True), "BLHNC")

    def test_a_backend_without_such_blocks_keeps_its_own(self):
        self.assertEqual(self.chosen(["LBHNC"], cross_layers=True), "LBHNC")


class Starts(unittest.TestCase):

    def test_a_worker_without_a_sidecar_says_where_it_looked(self):
        with tempfile.TemporaryDirectory() as empty:
            for run_dir in (empty, f"{empty}/not-there"):
                with self.subTest(run_dir), self.assertRaises(gantry.Error) as raised:
                    GantryConnector(vllm_config(run_dir=run_dir), KVConnectorRole.WORKER, cache_config(full_attention()))
                text = str(raised.exception)
                self.assertEqual(raised.exception.code, "peer_unavailable")
                self.assertIn(run_dir, text)
                self.assertNotIn("\n", text)

    def test_the_schedulers_half_needs_no_sidecar(self):
        GantryConnector(vllm_config(run_dir="/not/there"), KVConnectorRole.SCHEDULER, cache_config(full_attention()))

    def test_an_unknown_setting_ends_the_start_of_the_worker(self):
        with self.assertRaisesRegex(ValueError, "has holdttl"):
            GantryConnector(vllm_config(holdttl=1), KVConnectorRole.WORKER, cache_config(full_attention()))


class Offers(unittest.TestCase):

    def refused(self, params, why):
        with self.assertRaisesRegex(ValueError, why):
            offer_of(params, Places(), FACTORS, GROUPS, PROMPT, TOKENS, 0)

    def test_what_a_prefiller_says_is_taken(self):
        self.assertEqual(offer_of(offered(), Places(), FACTORS, GROUPS, PROMPT, TOKENS, 0).blocks, ([3, 1, 2, 7],))

    def test_parameters_of_nixl_are_refused(self):
        params = {"do_remote_prefill": True, "remote_block_ids": [[1, 2, 3, 4]], "remote_engine_id": "e", "tp_size": 1,
                  "remote_request_id": "cmpl-1", "remote_host": "10.0.0.1", "remote_port": 5600}
        self.refused(params, "they are not GantryConnector's")
        with self.assertRaises(ValueError):
            sources_of(params, Places())

    def test_each_difference_of_the_engines_is_said_with_both_values(self):
        theirs = FACTORS | {"model": "another", "block_size": 64, "vllm": "0.26.0", "protocol": 0}
        params = offered(**{KEY: offered()[KEY] | {"compatibility": theirs}})
        for why in ("block_size: 32 here, 64 at the prefiller", "model: .* here, 'another' at the prefiller",
                    "vllm: .* here, '0.26.0' at the prefiller", "protocol: .* here, 0 at the prefiller"):
            self.refused(params, why)

    def test_a_factor_that_one_side_does_not_have_is_a_difference(self):
        less = {name: value for name, value in FACTORS.items() if name != "head_size"}
        self.refused(offered(**{KEY: offered()[KEY] | {"compatibility": less}}), "head_size: .* here, None at the prefiller")

    def test_a_prefiller_at_an_address_where_none_may_be_is_refused(self):
        """A sidecar would show its token there."""
        for address in ("8.8.8.8:9461", "attacker.example:9461"):
            params = offered(**{KEY: offered()[KEY] | {"workers": [WORKER | {"address": address}]}})
            self.refused(params, f"the prefiller prefill is said to be at {address}: .*peer_addresses")

    def test_blocks_of_another_prompt_are_refused(self):
        for prompt in ("another", None, 5):
            self.refused(offered(**{KEY: offered()[KEY] | {"prompt": prompt}}), "of another prompt")

    def test_what_is_no_list_of_blocks_is_refused(self):
        for blocks in (None, "abc", [], [[]], [[1, 2, 3]], [[1, 2, 3, "4"]], [[1, 2, 3, -1]], [[1, 2, 3, 2**63]],
                       [[1, 2, 3, True]], [[1, 2, 3, 4.0]], [[1, 2, 3, 4], [1, 2, 3, 4]], [1, 2, 3, 4]):
            with self.subTest(str(blocks)):
                self.refused(offered(remote_block_ids=blocks), "block")

    def test_texts_that_are_none_or_too_long_are_refused(self):
        for text in (None, 5, "", "x" * 513, "a\nb", "\ud800"):
            with self.subTest(str(text)[:8]):
                self.refused(offered(remote_request_id=text), "remote_request_id is no text")
                self.refused(offered(**{KEY: offered()[KEY] | {"workers": [WORKER | {"peer": text}]}}), "peer is no text")

    def test_another_size_of_tensor_parallelism_than_that_of_the_workers_is_refused(self):
        for size in (2, 0, -1, True, "1", 1.0, None, [1]):
            with self.subTest(str(size)):
                self.refused(offered(tp_size=size), f"^tp_size is {re.escape(repr(size))}, and gantry.workers lists 1$")
        offer_of(offered(tp_size=1), Places(), FACTORS, GROUPS, PROMPT, TOKENS, 0)

    def test_what_is_no_list_of_workers_is_refused(self):
        for workers in (None, [], {}, [5], [WORKER] * 65, [WORKER] * 3):
            with self.subTest(str(workers)[:20]):
                self.refused(offered(**{KEY: offered()[KEY] | {"workers": workers}}), "workers is no list|not divided among 3 ranks")


if __name__ == "__main__":
    unittest.main()
