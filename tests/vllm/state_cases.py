"""Which blocks of a model with states are kept and read: two schedulers of vLLM with its own specs, without an engine."""

import itertools
import unittest
from unittest import mock

import torch
from gantry_vllm.cache import cache_of
from gantry_vllm.groups import Group, groups_of, left_to_the_decoder
from gantry_vllm.handshake import KEY, Handshake, WorkerCache, compatibility, differences
from gantry_vllm.settings import refuse_unsupported
from refusal_cases import cache_config, full_attention, vllm_config
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_group_id, get_request_block_hasher, init_none_hash, resolve_kv_cache_block_sizes
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import ChunkedLocalAttentionSpec, KVCacheConfig, MambaSpec
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

BLOCK, BLOCKS = 32, 64
SHAPES, DTYPES = ((3, 40), (4, 8, 8)), (torch.float32, torch.float32)
CONV, SSM = 3 * 40 * 4, 4 * 8 * 8 * 4  # bytes
PAGE = 2 * 4 * BLOCK * 32 * 4
ANSWER = 7  # the token that is sampled

init_none_hash(sha256)


def state(**changes):
    said = {"block_size": BLOCK, "shapes": SHAPES, "dtypes": DTYPES, "mamba_cache_mode": "align", "page_size_padded": PAGE}
    return MambaSpec(**said | changes)


def chunked(size):
    return ChunkedLocalAttentionSpec(block_size=BLOCK, num_kv_heads=4, head_size=32, dtype=torch.float32, attention_chunk_size=size)


class Engine:
    """vLLM's scheduler with the connector's half in it; a step samples where the prompt's last token is computed."""

    scheduler = Scheduler

    def __init__(self, *specs, mode="align"):
        config = vllm_config()
        config.scheduler_config.async_scheduling = self.scheduler is not Scheduler
        config.cache_config.mamba_cache_mode = mode
        config.cache_config.enable_prefix_caching = mode == "align"
        config.cache_config.num_gpu_blocks = BLOCKS
        groups = cache_config(*specs).kv_cache_groups
        cache = KVCacheConfig(num_blocks=BLOCKS, kv_cache_tensors=[], kv_cache_groups=groups)
        block, hashed = resolve_kv_cache_block_sizes(cache, config)
        self.vllm = self.scheduler(config, cache, StructuredOutputManager(config), block, hash_block_size=hashed)
        self._hasher = get_request_block_hasher(hashed, sha256) if mode == "align" else None
        self.connector = self.vllm.connector
        self.connector.set_xfer_handshake_metadata({0: WorkerCache(Handshake("peer", "unix:/peer", "vllm"), "layout")})

    def add(self, name, prompt, params=None, **sampling):
        chosen = SamplingParams(**{"temperature": 0, "max_tokens": 4, "ignore_eos": True} | sampling,
                                extra_args={"kv_transfer_params": params} if params else None)
        request = Request(name, list(prompt), chosen, None, block_hasher=self._hasher)
        self.vllm.add_request(request)
        return request

    def step(self, received=(), failed=()):
        """Returns (what the worker is told, kv_transfer_params of requests that have ended, computed tokens by request)."""
        output, ready = self.schedule()
        return output.kv_connector_metadata, self.update(output, ready, received, failed), output.num_scheduled_tokens

    def schedule(self):
        """Returns (vLLM's output, for each of its requests whether a token is sampled)."""
        output = self.vllm.schedule()
        return output, [self.vllm.requests[name].num_computed_tokens >= self.vllm.requests[name].num_tokens
                        for name in output.num_scheduled_tokens]

    def update(self, output, ready, received=(), failed=()):
        """Returns kv_transfer_params of requests that have ended."""
        names = list(output.num_scheduled_tokens)
        said = KVConnectorOutput(finished_recving=set(received), failed_recving=set(failed))
        told = ModelRunnerOutput(names, {name: i for i, name in enumerate(names)}, [[ANSWER] if one else [] for one in ready],
                                 kv_connector_output=said)
        return {each.request_id: each.kv_transfer_params for outputs in self.vllm.update_from_output(output, told).values()
                for each in outputs.outputs if each.finish_reason is not None}

    def blocks(self, name):
        return self.vllm.kv_cache_manager.get_block_ids(name)

    def prefill(self, name, prompt, **sampling):
        """Returns (blocks that are held, the parameters for the decoder, tokens that were computed)."""
        self.add(name, prompt, {"do_remote_decode": True}, **sampling)
        held, computed = [], 0
        for _ in range(20):
            metadata, ended, tokens = self.step()
            held += metadata.hold.get(name, [])
            computed += tokens.get(name, 0)
            if name in ended:
                return held, ended[name], computed
        raise AssertionError("the prompt is not computed in 20 steps")


def prompt_of(length, first=0):
    return [first + i % 50 for i in range(length)]


LENGTHS = (2, BLOCK - 1, BLOCK, BLOCK + 1, BLOCK + 2, 2 * BLOCK + 1, 100, 200)


class OfStates(unittest.TestCase):
    mode, states = "align", (state(), state())

    def setUp(self):
        self.prefiller, self.decoder = (Engine(full_attention(), *self.states, mode=self.mode) for _ in range(2))

    def state_blocks(self, blocks, tokens):
        """Where vLLM has the state of so many tokens."""
        return [ids[(tokens - 1) // spec.block_size] for ids, spec in zip(blocks[1:], self.states)]

    def test_the_prefiller_stops_a_token_earlier_and_holds_the_block_of_that_state(self):
        for length in LENGTHS:
            with self.subTest(length):
                held, params, computed = self.prefiller.prefill(f"p{length}", prompt_of(length, length))
                full = -(-(length - 1) // BLOCK)
                self.assertEqual(computed, length - 1)
                self.assertEqual(params["remote_num_tokens"], length - 1)
                lists = params["remote_block_ids"]
                self.assertEqual(held, lists[0] + self.state_blocks(lists, length - 1))
                self.assertEqual((len(lists[0]), len(held), 0 in held), (full, full + 2, False))

    def test_the_decoder_reads_the_state_into_the_block_where_it_goes_on_and_computes_one_token(self):
        for length in LENGTHS:
            with self.subTest(length):
                name, prompt = f"d{length}", prompt_of(length, length)
                held, params, _ = self.prefiller.prefill(name, prompt)
                request = self.decoder.add(name, prompt, params)
                metadata, _, tokens = self.decoder.step()
                load, = metadata.load
                self.assertEqual((load.remote_blocks, tokens), (held, {}))
                mine = self.decoder.blocks(name)
                self.assertEqual(load.local_blocks, mine[0] + self.state_blocks(mine, length - 1))
                self.assertNotIn(0, load.local_blocks)
                self.decoder.step(received=[name])
                before = self.decoder.blocks(name)
                _, _, tokens = self.decoder.step()
                self.assertEqual((tokens, request.num_computed_tokens), ({name: 1}, length))
                if self.mode == "none":
                    self.assertEqual(self.decoder.blocks(name)[1:], before[1:])
                self.vllm_ends(self.decoder, name)

    def vllm_ends(self, engine, name):
        engine.vllm.finish_requests(name, RequestStatus.FINISHED_ABORTED)
        return engine.step()[0]

    def test_a_prompt_of_one_token_is_given_back(self):
        _, params, computed = self.prefiller.prefill("one", [5], max_tokens=1)
        self.assertEqual(computed, 1)
        self.decoder.add("one", [5], params)
        metadata, _, tokens = self.decoder.step()
        self.assertEqual((metadata.load, tokens, [each.remote_request_id for each in metadata.unwanted]), ([], {"one": 1}, ["one"]))

    def test_a_prompt_that_ends_otherwise_is_the_same_but_for_the_last_token(self):
        prompt = prompt_of(100)
        _, params, _ = self.prefiller.prefill("r", prompt)
        self.decoder.add("last", prompt[:-1] + [60], dict(params))
        self.assertEqual(len(self.decoder.step()[0].load), 1)
        self.decoder.add("before", prompt[:-2] + [60] + prompt[-1:], dict(params))
        metadata, _, tokens = self.decoder.step()
        self.assertEqual((metadata.load, tokens["before"] > 0), ([], True))

    def test_a_prompt_of_which_each_token_is_to_be_computed_is_not_offered(self):
        held, params, computed = self.prefiller.prefill("r", prompt_of(100), prompt_logprobs=1)
        self.assertEqual((held, params, computed), ([], None, 100 + 3))

    def test_an_abort_while_it_is_read(self):
        prompt = prompt_of(100)
        _, params, _ = self.prefiller.prefill("r", prompt)
        free = self.decoder.vllm.kv_cache_manager.block_pool.get_num_free_blocks
        before = free()
        self.decoder.add("r", prompt, params)
        self.decoder.step()
        metadata = self.vllm_ends(self.decoder, "r")
        self.assertEqual(metadata.cancel, ["r"])
        self.assertLess(free(), before)
        self.decoder.step(received=["r"])
        self.assertEqual(free(), before)

    def test_an_abort_while_the_prompt_is_computed(self):
        self.prefiller.vllm.max_num_scheduled_tokens = 2 * BLOCK
        self.prefiller.add("r", prompt_of(200), {"do_remote_decode": True})
        metadata, ended, _ = self.prefiller.step()
        self.assertEqual((metadata.hold, ended), ({}, {}))
        self.assertEqual(self.vllm_ends(self.prefiller, "r").sending, [])

    def test_a_read_that_fails_is_computed_from_the_first_token_on(self):
        prompt = prompt_of(100)
        _, params, _ = self.prefiller.prefill("r", prompt)
        self.decoder.add("r", prompt, params)
        self.decoder.step()
        self.decoder.step(received=["r"], failed=["r"])
        computed = 0
        for _ in range(4):
            computed += self.decoder.step()[2]["r"]
        self.assertGreater(computed, 99)


class OfStatesWithoutPrefixCache(OfStates):
    """The block of a request has its state always."""

    mode, states = "none", (state(block_size=512, mamba_cache_mode="none"),) * 2


class OfPrefixCaches(unittest.TestCase):

    def setUp(self):
        self.prefiller, self.decoder = Engine(full_attention(), state()), Engine(full_attention(), state())

    def decode(self, name, prompt):
        """Returns what the decoder's worker is told at first; the answer is whole then."""
        _, params, _ = self.prefiller.prefill(name, prompt)
        self.decoder.add(name, prompt, params)
        told, _, _ = self.decoder.step()
        received = [load.request_id for load in told.load]
        for _ in range(12):
            _, ended, _ = self.decoder.step(received=received)
            received = []
            if name in ended:
                return told
        raise AssertionError("no answer in 12 steps")

    def forget_states(self):
        """The decoder's prefix cache has keys and values alone, as where the blocks of states were taken for others."""
        pool = self.decoder.vllm.kv_cache_manager.block_pool
        states = {block.block_id for block in pool.blocks if block.block_hash is not None and get_group_id(block.block_hash) == 1}
        self.assertTrue(states)
        pool.evict_blocks(states)

    def test_a_prompt_that_is_there_as_a_whole_is_given_back(self):
        prompt = prompt_of(2 * BLOCK + 1)
        self.assertEqual(len(self.decode("first", prompt).load), 1)
        told = self.decode("again", prompt)
        self.assertEqual((told.load, [each.remote_request_id for each in told.unwanted]), ([], ["again"]))

    def test_the_state_is_read_with_what_the_prefix_cache_lacks(self):
        prompt = prompt_of(2 * BLOCK + 1)
        self.decode("first", prompt)
        load, = self.decode("longer", prompt + prompt_of(BLOCK)).load
        self.assertEqual(len(load.remote_blocks), 1 + 1)

    def test_a_local_prefix_of_which_the_state_is_gone_is_not_read_again(self):
        prompt = prompt_of(3 * BLOCK + 1)
        self.decode("first", prompt)
        self.forget_states()
        load, = self.decode("again", prompt + prompt_of(BLOCK)).load
        self.assertEqual(len(load.remote_blocks), 1 + 1)

    def test_a_local_prefix_of_which_the_state_is_gone_is_computed_where_the_prompt_is_not_offered(self):
        prompt = prompt_of(3 * BLOCK + 1)
        self.decode("first", prompt)
        self.forget_states()
        self.decoder.add("again", prompt)
        computed = 0
        while computed < len(prompt):
            computed += self.decoder.step()[2]["again"]
        self.assertEqual(computed, len(prompt))

    def test_a_window_needs_its_own_prefix(self):
        self.assertTrue(self.decoder.connector.supports_divergent_local_hybrid_hits)
        self.assertFalse(Engine(full_attention(), state(), chunked(64)).connector.supports_divergent_local_hybrid_hits)

    def test_a_prefiller_that_has_the_prompt_already_offers_its_state(self):
        prompt = prompt_of(100)
        offers = [self.prefiller.prefill(name, prompt) for name in ("first", "again")]
        for held, params, _ in offers:
            self.assertEqual((len(held), held[-1]), (4 + 1, params["remote_block_ids"][1][3]))
        self.assertLess(offers[1][2], offers[0][2])
        self.assertNotEqual(offers[0][0][-1], offers[1][0][-1])


class OfChunks(unittest.TestCase):

    def test_blocks_of_the_chunk_of_the_next_token_are_needed(self):
        group = Group(BLOCK, chunk=2 * BLOCK)
        self.assertEqual([group.first_needed(tokens) for tokens in (1, 63, 64, 65, 127, 128)], [0, 0, 2, 2, 2, 4])

    def test_at_each_length_the_decoder_reads_what_the_last_token_sees(self):
        prefiller, decoder = Engine(full_attention(), chunked(64)), Engine(full_attention(), chunked(64))
        for length in (2, 63, 64, 65, 66, 100, 128, 129, 200):
            with self.subTest(length):
                name, prompt = f"r{length}", prompt_of(length, length)
                _, params, computed = prefiller.prefill(name, prompt)
                self.assertEqual(computed, length - 1)
                decoder.add(name, prompt, params)
                metadata, _, _ = decoder.step()
                read, blocks = metadata.load[0].local_blocks, decoder.blocks(name)
                seen = range((length - 1) // 64 * 2, -(-(length - 1) // BLOCK))  # blocks of the chunk of token length - 1
                self.assertEqual(read, blocks[0] + [blocks[1][i] for i in seen])
                self.assertNotIn(0, read)
                decoder.vllm.finish_requests(name, RequestStatus.FINISHED_ABORTED)
                decoder.step(received=[name])


class OfKinds(unittest.TestCase):

    def test_a_state_is_described_by_its_kind_its_mode_and_its_parts(self):
        group, = groups_of(cache_config(state()))
        self.assertEqual(group, Group(BLOCK, state="MAMBA2 in mode align: float32 [3, 40], float32 [4, 8, 8]"))
        self.assertEqual([left_to_the_decoder(groups_of(cache_config(full_attention(), *more))) for more in ((), (state(),), (chunked(64),))],
                         [0, 1, 1])

    def test_engines_whose_states_differ_say_both(self):
        config = vllm_config()
        one, other = (compatibility(config, groups_of(cache_config(full_attention(), each)))
                      for each in (state(), state(dtypes=(torch.bfloat16, torch.float32))))
        why, = differences(one, other)
        self.assertIn("float32 [3, 40]", why.split(" here, ")[0])
        self.assertIn("bfloat16 [3, 40]", why.split(" here, ")[1])

    def test_states_of_other_sizes_of_tensor_parallelism_are_refused(self):
        groups = groups_of(cache_config(full_attention(), state()))
        one, two = vllm_config(), vllm_config()
        two.parallel_config.tensor_parallel_size = 2
        self.assertEqual(differences(compatibility(one, groups), compatibility(two, groups)),
                         ["tensor_parallel_size: 1 here, 2 at the prefiller"])
        heads = groups_of(cache_config(full_attention()))
        self.assertEqual(differences(compatibility(one, heads), compatibility(two, heads)), [])

    def test_what_is_not_in_the_cache_is_refused(self):
        config = vllm_config()
        with self.assertRaisesRegex(ValueError, "without speculative decoding.* are MambaSpec$"):
            groups_of(cache_config(full_attention(), state(num_speculative_blocks=1)))
        config.cache_config.use_replayssm = True
        with self.assertRaisesRegex(ValueError, "ReplaySSM"):
            refuse_unsupported(config, cache_config(full_attention(), state()))

    def test_an_older_vllm_is_refused(self):
        with mock.patch("gantry_vllm.settings.TAKES_FAILED_REQUESTS", False), self.assertRaisesRegex(ValueError, "from vLLM 0.32 on"):
            refuse_unsupported(vllm_config(), cache_config(state()))


class OfMemory(unittest.TestCase):
    """As vLLM makes the tensors: a state is bytes at the begin of a page, and keys and values fill it."""

    def setUp(self):
        self.memory = torch.zeros(2 * BLOCKS * PAGE, dtype=torch.int8)

    def keys(self, layer):
        return self.memory.view(2, BLOCKS, PAGE)[layer].view(torch.float32).view(BLOCKS, 4, BLOCK, 64)

    def state(self, layer, at=0):
        return self.memory.as_strided((BLOCKS, 1, 1, CONV + SSM), (PAGE, CONV + SSM, CONV + SSM, 1), layer * BLOCKS * PAGE + at)

    def test_the_whole_page_is_offered_in_whatever_order_they_come(self):
        layers = {"keys": self.keys(0), "state": self.state(0), "states": self.state(1)}
        for order in itertools.permutations(layers):
            cache = cache_of({name: layers[name] for name in order}, BLOCKS)
            places = sorted((spec.view.data_ptr(), spec.layout) for spec in cache.specs)
            self.assertEqual([address - self.memory.data_ptr() for address, _ in places], [0, BLOCKS * PAGE])
            self.assertEqual([(layout.block_bytes, layout.block_stride or PAGE) for _, layout in places], [(PAGE, PAGE), (CONV + SSM, PAGE)])

    def test_pages_that_lie_across_each_other_are_refused(self):
        with self.assertRaisesRegex(ValueError, "begin at the same places"):
            cache_of({"keys": self.keys(0), "state": self.state(0, at=64)}, BLOCKS)


if __name__ == "__main__":
    unittest.main()
