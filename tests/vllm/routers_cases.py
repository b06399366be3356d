"""Routers that know NixlConnector: its name, the shape of their requests, and the keys of its answer, with vLLM's own classes."""

import unittest

from gantry_vllm.connector import GantryConnector
from refusal_cases import cache_config, full_attention, vllm_config
from state_cases import BLOCK, Engine, prompt_of
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.pull_scheduler import NixlPullConnectorScheduler
from vllm.engine.arg_utils import EngineArgs
from vllm.sampling_params import SamplingParams
from vllm.v1.request import Request, RequestStatus

# As llm-d's sidecar and vllm-router ask a prefiller.
REQUESTS = {"llm-d": {"do_remote_decode": True, "do_remote_prefill": False, "remote_engine_id": None, "remote_block_ids": None,
                      "remote_host": None, "remote_port": None},
            "vllm-router": {"do_remote_decode": True, "do_remote_prefill": False}}


def config_of(name):
    """As vLLM makes it of --kv-transfer-config."""
    return EngineArgs(model=vllm_config().model_config.model, dtype="float32", max_model_len=512, block_size=BLOCK, enforce_eager=True,
                      kv_transfer_config={"kv_connector": name, "kv_role": "kv_both", "kv_connector_module_path": "gantry_vllm",
                                          "kv_load_failure_policy": "recompute"}).create_engine_config()


class Names(unittest.TestCase):

    def test_vllm_finds_the_connector_by_the_name_that_dynamo_knows(self):
        for name in ("GantryConnector", "NixlConnector"):
            with self.subTest(name):
                config = config_of(name)
                made = KVConnectorFactory.create_connector(config, KVConnectorRole.SCHEDULER, cache_config(full_attention()))
                self.assertIs(type(made), GantryConnector)
                self.assertTrue(KVConnectorFactory.supports_hma_config(config.kv_transfer_config))

    def test_another_name_is_refused(self):
        with self.assertRaisesRegex(AttributeError, "MooncakeConnector not found in gantry_vllm"):
            KVConnectorFactory.create_connector(config_of("MooncakeConnector"), KVConnectorRole.SCHEDULER, cache_config(full_attention()))


class Parameters(unittest.TestCase):

    def test_an_answer_to_each_router_serves_a_decoder(self):
        prefiller, decoder = Engine(full_attention()), Engine(full_attention())
        for name, asked in REQUESTS.items():
            with self.subTest(name):
                prompt = prompt_of(100, len(name))
                prefiller.add(name, prompt, dict(asked), max_tokens=1)
                answer = prefiller.step()[1][name]
                self.assertEqual(len(answer["remote_block_ids"][0]), 4)
                decoder.add(name, prompt, answer)
                load, = decoder.step()[0].load
                self.assertEqual(load.remote_blocks, answer["remote_block_ids"][0])

    def test_the_answer_has_the_keys_of_nixls_and_values_of_its_types(self):
        nixl = NixlPullConnectorScheduler(vllm_config(), "engine", cache_config(full_attention()))
        request = Request("r", prompt_of(100), SamplingParams(max_tokens=1, extra_args={"kv_transfer_params": dict(REQUESTS["llm-d"])}), None)
        request.status, request.num_computed_tokens = RequestStatus.FINISHED_LENGTH_CAPPED, 100
        kept, theirs = nixl.request_finished(request, ([1, 2, 3, 4],))
        engine = Engine(full_attention())
        engine.add("r", prompt_of(100), dict(REQUESTS["llm-d"]), max_tokens=1)
        mine = engine.step()[1]["r"]
        self.assertTrue(kept)
        self.assertEqual(theirs.keys() - mine.keys(), set())
        plain = {"do_remote_prefill", "do_remote_decode", "tp_size", "pp_size", "dcp_size", "transfer_mode", "remote_num_tokens"}
        self.assertEqual({key: mine[key] for key in plain}, {key: theirs[key] for key in plain})
        for key in ("remote_engine_id", "remote_request_id", "remote_host", "remote_port"):
            self.assertIs(type(mine[key]), type(theirs[key]), key)
        self.assertEqual([len(blocks) for blocks in mine["remote_block_ids"]], [len(blocks) for blocks in theirs["remote_block_ids"]])


if __name__ == "__main__":
    unittest.main()
