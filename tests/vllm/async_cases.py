"""Asynchronous scheduling: vLLM schedules a step before it knows what the step before has given. The worker is told the right things.

Two of vLLM's AsyncScheduler with the connector's half in them, without an engine.
"""

import unittest

from refusal_cases import full_attention
from state_cases import BLOCK, Engine, prompt_of, state
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.request import RequestStatus


class Overlapped(Engine):
    """One step is under way always, and is updated after the next one was scheduled."""

    scheduler = AsyncScheduler

    def __init__(self, *specs):
        super().__init__(*specs)
        self._under_way = None

    def step(self, received=(), failed=()):
        """Returns (what the worker is told in the new step, what has ended with the one before, tokens of the new one)."""
        before, self._under_way = self._under_way, self.schedule()
        ended = self.update(*before, received, failed) if before else {}
        output, _ = self._under_way
        return output.kv_connector_metadata, ended, output.num_scheduled_tokens

    def abort(self, name):
        self.vllm.finish_requests(name, RequestStatus.FINISHED_ABORTED)

    def free_blocks(self):
        return self.vllm.kv_cache_manager.block_pool.get_num_free_blocks()


class OfAttention(unittest.TestCase):
    specs, left = (full_attention(),), 0  # tokens of a prompt that are left to the decoder

    def setUp(self):
        self.prefiller, self.decoder = Overlapped(*self.specs), Overlapped(*self.specs)

    def steps_of_a_prompt(self, prompt, **sampling):
        """(what the prefiller's worker is told in each step, the parameters, after which step they leave, the prompt's last step)"""
        self.prefiller.add("r", prompt, {"do_remote_decode": True}, **sampling)
        told, computed, last = [], 0, None
        for i in range(20):
            metadata, ended, tokens = self.prefiller.step()
            told.append(metadata)
            computed += tokens.get("r", 0)
            last = i if last is None and computed >= len(prompt) - self.left else last
            if "r" in ended:
                return told + [self.prefiller.step()[0], self.prefiller.step()[0]], ended["r"], i, last
        raise AssertionError("the prompt is not computed in 20 steps")

    def test_a_hold_is_told_once_and_before_the_parameters_leave(self):
        for tokens in (1, 4):
            with self.subTest(tokens):
                self.setUp()
                self.prefiller.vllm.max_num_scheduled_tokens = 2 * BLOCK
                told, params, left, last = self.steps_of_a_prompt(prompt_of(100), max_tokens=tokens)
                self.assertEqual([i for i, metadata in enumerate(told) if metadata.hold], [last])
                self.assertGreater(last, 0)
                self.assertGreater(left, last)
                blocks = told[last].hold["r"]
                self.assertEqual(blocks, [id for ids in params["remote_block_ids"] for id in ids if id])
                self.assertEqual(len(blocks), 4 + len(self.specs) - 1)
                self.assertEqual([i for i, metadata in enumerate(told) if metadata.sending], [left + 1])
                self.assertEqual([metadata.release for metadata in told], [[]] * len(told))

    def test_a_prefill_that_is_aborted_before_its_step_is_updated_is_released(self):
        self.prefiller.add("r", prompt_of(100), {"do_remote_decode": True})
        self.assertTrue(any("r" in self.prefiller.step()[0].hold for _ in range(20)))
        self.prefiller.abort("r")
        told = [self.prefiller.step()[0] for _ in range(3)]
        self.assertEqual([metadata.release for metadata in told], [["r"], [], []])
        self.assertEqual([metadata.sending for metadata in told], [[]] * 3)

    def offered(self, prompt):
        _, params, _ = self.prefiller.prefill("r", prompt)
        return params

    def test_a_read_is_told_once_and_the_request_waits_for_it(self):
        prompt = prompt_of(100)
        request = self.decoder.add("r", prompt, self.offered(prompt))
        told = [self.decoder.step() for _ in range(3)]
        self.assertEqual([len(metadata.load) for metadata, _, _ in told], [1, 0, 0])
        self.assertEqual([tokens for _, _, tokens in told], [{}] * 3)
        # Its end is told by the update of a step behind which another one was scheduled already.
        self.assertEqual(self.decoder.step(received=["r"])[2], {})
        metadata, _, tokens = self.decoder.step()
        self.assertEqual((metadata.load, tokens, request.num_computed_tokens), ([], {"r": 1}, len(prompt)))

    def test_an_abort_in_the_step_that_told_the_read(self):
        prompt = prompt_of(100)
        params, before = self.offered(prompt), self.decoder.free_blocks()
        self.decoder.add("r", prompt, params)
        self.assertEqual(len(self.decoder.step()[0].load), 1)
        self.decoder.abort("r")
        told = [self.decoder.step()[0] for _ in range(3)]
        self.assertEqual([metadata.cancel for metadata in told], [["r"], [], []])
        self.assertLess(self.decoder.free_blocks(), before)
        self.decoder.step(received=["r"])
        self.assertEqual(self.decoder.free_blocks(), before)

    def test_an_abort_after_the_read_has_ended_and_before_that_is_updated(self):
        """The worker has told the end with the step under way."""
        prompt = prompt_of(100)
        params, before = self.offered(prompt), self.decoder.free_blocks()
        self.decoder.add("r", prompt, params)
        self.decoder.step()
        self.decoder.step()
        self.decoder.abort("r")
        self.decoder.step(received=["r"])
        self.decoder.step()
        self.assertEqual(self.decoder.free_blocks(), before)

    def test_a_read_that_fails_is_computed_once(self):
        prompt = prompt_of(100)
        request = self.decoder.add("r", prompt, self.offered(prompt))
        self.decoder.step()
        self.decoder.step()
        self.decoder.step(received=["r"], failed=["r"])
        computed, loads, ended = 0, 0, {}
        for _ in range(12):
            metadata, new, tokens = self.decoder.step()
            ended |= new
            computed, loads = computed + tokens.get("r", 0), loads + len(metadata.load)
        self.assertEqual((loads, list(ended), request.num_output_tokens), (0, ["r"], 4))
        self.assertEqual(computed, len(prompt) + 3)


class OfStates(OfAttention):
    specs, left = (full_attention(), state()), 1


if __name__ == "__main__":
    unittest.main()
