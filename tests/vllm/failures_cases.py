"""What is taken of a sidecar's account of a read that failed, and what vLLM is told."""

import queue
import time
import unittest
from types import SimpleNamespace

from gantry import Error
from gantry_vllm.failures import missing_blocks
from gantry_vllm.handshake import Handshake
from gantry_vllm.metadata import Load
from gantry_vllm.pulls import Pulls
from gantry_vllm.settings import Settings
from gantry_vllm.stats import Recorder
from gantry_vllm.tensor_parallel import BlockShape, Topology

BLOCKS = [40, 30, 20, 10]
A = Handshake("a", "unix:/a", "vllm")


class MissingBlocks(unittest.TestCase):

    def test_those_that_are_named(self):
        self.assertEqual(missing_blocks({"state": "expired", "failed_items": [3, 1]}, BLOCKS), [30, 10])
        self.assertEqual(missing_blocks({"state": "failed", "failed_items": [1, 1]}, BLOCKS), [30])

    def test_none_where_any_block_may_be_missing(self):
        for details in ({}, {"state": "failed"}, {"state": "failed", "failed_items": []}, {"state": "running", "failed_items": [3]},
                        {"state": "stopping", "failed_items": [3]}, {"state": "failed", "failed_items": [4]},
                        {"state": "failed", "failed_items": [3], "failed_items_truncated": True}):
            self.assertIsNone(missing_blocks(details, BLOCKS), details)


class FakeTransfer:

    def __init__(self, details):
        self._details = details

    def wait(self, timeout):
        raise Error("deadline_exceeded", "it is over")

    def poll(self):
        return SimpleNamespace(done=True)

    def cancel(self, timeout):
        pass

    def details(self):
        if isinstance(self._details, Exception):
            raise self._details
        return self._details


class FakeClient:

    def __init__(self, details):
        self._details, self.messages = details, queue.SimpleQueue()

    def read(self, view, **how):
        if isinstance(self._details, Error) and self._details.code == "refused":
            raise self._details
        return FakeTransfer(self._details)

    def view(self, *what, **how):
        return "view"

    def peer(self, name):
        raise Error("not_found", "no peer is known")

    def set_peer(self, peer, address, wait, *, node_id):
        return {"state": "up"}

    def notify(self, to, message, **how):
        self.messages.put(message)


class WhatVllmIsTold(unittest.TestCase):

    def told(self, details, cancelled=False, in_parts=True):
        """Of one read: (requests that have ended, requests without a block, missing blocks), and the numbers that are not 0."""
        client, recorder = FakeClient(details), Recorder(recomputes=True)
        session = SimpleNamespace(client=client, current=(client, 1))
        pulls = Pulls(session, Topology(0, 1, 4), BlockShape(1, 4, 64), Settings(read_deadline=5), recorder, in_parts=in_parts)
        self.addCleanup(pulls.close)
        pulls._transfers["r"] = []
        if cancelled:
            pulls._cancelled.add("r")
        pulls._run(Load("r", "remote", (A,), BLOCKS, [1, 2, 3, 4]), time.monotonic())
        client.messages.get(timeout=60)  # the prefiller is told that nobody reads the blocks
        self.assertTrue(client.messages.empty())
        stats = recorder.take()
        return pulls.take_ended(), {name: value for name, value in stats.data.items() if value} if stats else {}

    def test_the_blocks_that_are_missing(self):
        told, numbers = self.told({"state": "expired", "failed_items": [1, 3]})
        self.assertEqual(told, ({"r"}, set(), {30, 10}))
        self.assertEqual(numbers, {"num_failed_transfers": 1, "num_failed_blocks": 2, "num_recomputed_reqs": 1,
                                   "num_recomputed_blocks": 3})

    def test_the_request_where_vllm_takes_no_blocks(self):
        told, _ = self.told({"state": "expired", "failed_items": [1, 3]}, in_parts=False)
        self.assertEqual(told, ({"r"}, {"r"}, set()))

    def test_the_request_where_its_first_block_is_missing_or_the_sidecar_does_not_say(self):
        for details, failed in (({"state": "expired", "failed_items": [0, 3]}, 2), ({"state": "running"}, 4),
                                (Error("sidecar_lost", "no answer"), 4), (Error("refused", "by the call itself"), 4)):
            told, numbers = self.told(details)
            self.assertEqual(told, ({"r"}, {"r"}, set()))
            self.assertEqual(numbers, {"num_failed_transfers": 1, "num_failed_blocks": failed, "num_recomputed_reqs": 1,
                                       "num_recomputed_blocks": 4})

    def test_nothing_is_counted_of_a_request_that_was_aborted(self):
        self.assertEqual(self.told({"state": "cancelled", "failed_items": [1, 3]}, cancelled=True), (({"r"}, {"r"}, set()), {}))
