"""Which holds the decoder's scheduler renews, and when."""

import time
import unittest
from types import SimpleNamespace
from unittest import mock

from gantry_vllm.groups import Group
from gantry_vllm.handshake import Handshake, WorkerCache, hold_id, prompt_digest
from gantry_vllm.offer import hold_seconds
from gantry_vllm.places import Places
from gantry_vllm.renewals import Renewals
from gantry_vllm.scheduler import Scheduler
from gantry_vllm.stats import Recorder
from vllm.v1.request import RequestStatus

A, B = (Handshake(name, f"unix:/{name}", "vllm") for name in "ab")
TTL = 30.0
BLOCK = 32
FACTORS = {"block_size": BLOCK, "kv_heads": 4}


class OfTimes(unittest.TestCase):

    def setUp(self):
        self.now = 1000.0
        self.renewals = Renewals(lambda: self.now)

    def due_after(self, seconds):
        self.now += seconds
        return self.renewals.due()

    def test_each_sixth_of_the_time_one_message_names_all_holds_of_a_prefiller(self):
        for request, source in (("r1", A), ("r2", A), ("r3", B)):
            self.renewals.add(request, (source,), f"remote {request}", TTL)
        all_of_them = {A: [hold_id("remote r1"), hold_id("remote r2")], B: [hold_id("remote r3")]}
        self.assertEqual(self.due_after(0), all_of_them)
        self.assertEqual(self.due_after(4.9), {})
        self.assertEqual(self.due_after(0.2), all_of_them)

    def test_a_hold_that_is_needed_no_more_is_not_renewed(self):
        self.renewals.add("r1", (A,), "remote", TTL)
        self.renewals.due()
        self.renewals.remove("r1")
        self.assertEqual(self.due_after(60), {})

    def test_short_requests_one_after_the_other_are_one_message(self):
        messages = 0
        for number in range(40):
            self.renewals.add(f"r{number}", (A,), f"remote {number}", TTL)
            messages += len(self.due_after(0.1))
            self.renewals.remove(f"r{number}")
        self.assertEqual(messages, 1)

    def test_the_shortest_time_of_a_prefiller_counts(self):
        self.renewals.add("long", (A,), "remote long", 300)
        self.assertTrue(self.due_after(0))
        self.renewals.add("short", (A,), "remote short", 2)
        self.assertTrue(self.due_after(0.4))

    def test_a_time_that_a_client_made_up_is_no_storm(self):
        self.renewals.add("r1", (A,), "remote", 1e-9)
        self.assertTrue(self.due_after(0))
        self.assertFalse(self.due_after(0.05))

    def test_prefillers_are_forgotten(self):
        for number in range(100):
            self.renewals.add("r", (Handshake(f"made-up-{number}", "unix:/x", "vllm"),), "remote", TTL)
            self.renewals.due()
            self.renewals.remove("r")
        self.due_after(TTL)
        self.assertEqual(self.renewals._told, {})

    def test_times_of_the_parameters(self):
        for said, seconds in ((2, 2), (0.5, 0.5), (None, 30), ("2", 30), (-1, 30), (float("nan"), 30), (1e9, 30), (True, 30), ([], 30)):
            self.assertEqual(hold_seconds({"gantry": {"hold_ttl": said}}), seconds)
        self.assertEqual(hold_seconds({"gantry": 7}), 30)


class OfRequests(unittest.TestCase):
    """From the first sight of a request until its read has ended, and no longer, whichever way it ends."""

    def setUp(self):
        self.scheduler = Scheduler("engine", [Group(BLOCK, 0)], FACTORS, TTL, Places(), Recorder(recomputes=True))
        # Each step is longer than a pause.
        self.scheduler._renewals._clock = iter(range(0, 10_000, 100)).__next__
        self.request = SimpleNamespace(
            prompt_token_ids=[1], lora_request=None,
            request_id="r", num_prompt_tokens=2 * BLOCK, num_computed_tokens=0, status=RequestStatus.FINISHED_ABORTED,
            kv_transfer_params={"do_remote_prefill": True, "remote_request_id": "remote", "remote_block_ids": [[4, 5]],
                                "gantry": {"workers": [A.params()], "compatibility": FACTORS, "hold_ttl": TTL}})
        self.request.kv_transfer_params["gantry"]["prompt"] = prompt_digest(self.request)
        self.scheduler.added(self.request)

    def step(self):
        return self.scheduler.build(SimpleNamespace(num_scheduled_tokens={})).renew

    def load(self, external_tokens):
        blocks = SimpleNamespace(get_block_ids=lambda: ([7, 8],))
        self.assertEqual(self.scheduler.matched_tokens(self.request, 0), (2 * BLOCK, True))
        self.scheduler.blocks_allocated(self.request, blocks, external_tokens)

    def test_while_it_waits_and_while_it_is_read(self):
        self.assertEqual(self.step(), {A: [hold_id("remote")]})
        self.load(2 * BLOCK)
        self.assertEqual(self.step(), {A: [hold_id("remote")]})
        self.scheduler.received({"r"})
        self.assertEqual(self.step(), {})

    def test_an_abort_before_it_is_scheduled(self):
        self.scheduler.finished(self.request, ([],))
        self.assertEqual(self.step(), {})

    def test_an_abort_while_it_is_read(self):
        self.load(2 * BLOCK)
        self.scheduler.finished(self.request, ([],))
        self.assertEqual(self.step(), {})

    def test_a_prompt_that_is_in_the_prefix_cache(self):
        self.load(0)
        self.assertEqual(self.step(), {})

    def test_a_prompt_that_waits_is_looked_at_once(self):
        with mock.patch("gantry_vllm.scheduler.prompt_digest", side_effect=prompt_digest) as looks:
            for _ in range(5):
                self.scheduler.matched_tokens(self.request, 0)
        self.assertEqual(looks.call_count, 1)
        self.scheduler.finished(self.request, ([],))
        self.assertEqual(self.scheduler._digests, {})

    def test_an_offer_that_cannot_be_used(self):
        self.request.kv_transfer_params["remote_block_ids"] = None
        self.assertEqual(self.scheduler.matched_tokens(self.request, 0), (0, False))
        self.assertEqual(self.step(), {})

    def test_each_rank_of_a_prefiller_is_told(self):
        params = self.request.kv_transfer_params["gantry"]
        params["workers"] = [A.params(), B.params()]
        scheduler = Scheduler("engine", [Group(BLOCK, 0)], FACTORS, TTL, Places(), Recorder(recomputes=True))
        scheduler.added(self.request)
        self.assertEqual(scheduler.build(SimpleNamespace(num_scheduled_tokens={})).renew,
                         {A: [hold_id("remote")], B: [hold_id("remote")]})

    def test_parameters_without_a_prefiller_renew_nothing(self):
        scheduler = Scheduler("engine", [Group(BLOCK, 0)], FACTORS, TTL, Places(), Recorder(recomputes=True))
        for params in (None, {}, {"do_remote_prefill": True}, {"do_remote_prefill": True, "gantry": 7}, {"do_remote_decode": True}):
            self.request.kv_transfer_params = params
            scheduler.added(self.request)
        self.assertEqual(scheduler.build(SimpleNamespace(num_scheduled_tokens={})).renew, {})

    def test_a_request_that_is_read_and_offered_is_read(self):
        self.request.kv_transfer_params["do_remote_decode"] = True
        self.load(2 * BLOCK)
        self.assertEqual([load.request_id for load in self.scheduler.build(SimpleNamespace(num_scheduled_tokens={})).load], ["r"])

    def test_a_request_that_was_preempted_behind_its_hold_is_not_offered(self):
        self.scheduler.bind(SimpleNamespace(get_block_ids=lambda request: ([4, 5],)))
        self.scheduler.set_handshake([WorkerCache(A, "")])
        self.request.kv_transfer_params, self.request.status = {"do_remote_decode": True}, RequestStatus.FINISHED_LENGTH_CAPPED
        self.scheduler.blocks_allocated(self.request, None, 0)
        scheduled = SimpleNamespace(num_scheduled_tokens={"r": 2 * BLOCK})
        self.assertEqual(self.scheduler.build(scheduled).hold, {"r": [4, 5]})
        self.scheduler.blocks_allocated(self.request, None, 0)
        step = self.scheduler.build(scheduled)
        self.assertEqual((step.hold, step.release), ({}, ["r"]))
        self.assertEqual(self.scheduler.finished(self.request, ([4, 5],)), (False, None))

    def test_an_offer_says_how_long_its_hold_lasts(self):
        self.scheduler.bind(SimpleNamespace(get_block_ids=lambda request: ([4, 5],)))
        self.scheduler.set_handshake([WorkerCache(A, "")])
        self.request.kv_transfer_params, self.request.status = {"do_remote_decode": True}, RequestStatus.FINISHED_LENGTH_CAPPED
        self.scheduler.blocks_allocated(self.request, None, 0)
        self.scheduler.build(SimpleNamespace(num_scheduled_tokens={"r": 2 * BLOCK}))
        before = time.time()
        kept, params = self.scheduler.finished(self.request, ([4, 5],))
        self.assertTrue(kept)
        self.assertEqual(hold_seconds(params), TTL)
        self.assertTrue(before + TTL <= params["remote_blocks_expiry_time"] <= time.time() + TTL)
