"""Views of prefillers that come and go: those that were read last are kept, and no more than so many."""

import gc
import threading
import time
import unittest
import weakref
from types import SimpleNamespace
from unittest import mock

from gantry import Error
from gantry_vllm.handshake import Handshake
from gantry_vllm.metadata import Load, Unwanted
from gantry_vllm.pulls import _READS_EACH, _VIEWS_MAX, Pulls
from gantry_vllm.settings import Settings
from gantry_vllm.stats import Recorder
from gantry_vllm.tensor_parallel import BlockShape, Topology

STATUS = SimpleNamespace(state="succeeded", bytes=1, path="shm", total_us=1, descriptors_in=1, executor="self")


class View:

    def __init__(self, peer):
        self.peer = peer


class Client:
    """Each read succeeds at once."""

    def __init__(self):
        self.views, self.addresses, self.messages = weakref.WeakSet(), [], []

    def peer(self, name):
        return {"state": "up"}

    def set_peer(self, name, address, wait=None, *, node_id):
        self.addresses.append((name, address, wait))
        return {"state": "connecting" if wait == 0 else "up"}

    def view(self, *_, peer, **__):
        view = View(peer)
        self.views.add(view)
        return view

    def notify(self, to, message, **_):
        self.messages.append((to, message))

    def read(self, *_, **__):
        return SimpleNamespace(wait=lambda seconds: STATUS)


def source(number, address="unix:/p.sock"):
    return Handshake("prefill", address, f"vllm-{number}")


class Views(unittest.TestCase):

    def setUp(self):
        self.client = Client()
        self.pulls = Pulls(SimpleNamespace(client=self.client, current=(self.client, 1)), Topology(0, 1, 4), BlockShape(1, 4, 64),
                           Settings(read_deadline=5), Recorder(recomputes=True), in_parts=True)
        self.addCleanup(self.pulls.close)
        self.made = 0

    def read(self, its):
        """Returns whether a view was made for it."""
        made = []
        view = self.client.view
        self.client.view = lambda *args, **more: made.append(1) or view(*args, **more)
        self.pulls.start(Load("r", "r", (its,), [1], [2]))
        while True:
            ended, failed, _ = self.pulls.take_ended()
            if ended:
                break
            time.sleep(0.001)
        self.client.view = view
        self.assertEqual((ended, failed), ({"r"}, set()))
        return bool(made)

    def test_one_is_made_for_each_source(self):
        self.assertTrue(self.read(source(1)))
        self.assertFalse(self.read(source(1)))
        self.assertTrue(self.read(source(2)))
        self.assertEqual(self.client.addresses, [("prefill", "unix:/p.sock", None)])

    def test_those_that_were_read_last_are_kept(self):
        for number in range(_VIEWS_MAX):
            self.read(source(number))
        self.assertFalse(self.read(source(0)))
        self.assertTrue(self.read(source("new")))
        self.assertLessEqual(len(self.client.views), _VIEWS_MAX)
        self.assertFalse(self.read(source(0)), "it was read just before")
        self.assertTrue(self.read(source(1)), "it was read longest ago")

    def test_another_address_replaces_the_view(self):
        self.read(source(1))
        self.assertTrue(self.read(source(1, "10.0.0.1:9461")))
        self.assertEqual(len(self.client.views), 1)

    def test_the_view_of_a_read_that_failed_goes_with_the_last_use(self):
        """And not when Python looks for cycles, which vLLM's engines do rarely."""
        def fail(_):
            raise Error("peer_lost", "the peer is gone")
        gc.disable()
        self.addCleanup(gc.enable)
        read = self.client.read
        self.client.read = lambda view, **_: SimpleNamespace(wait=fail, poll=lambda: SimpleNamespace(done=True), details=dict, kept=view)
        self.pulls.start(Load("fails", "r", (source(1),), [1], [2]))
        while "fails" not in self.pulls.take_ended()[0]:
            time.sleep(0.001)
        self.client.read = read
        self.assertTrue(self.read(source(1, "10.0.0.1:9461")))
        self.assertEqual(len(self.client.views), 1)

    def test_another_life_of_the_lease_has_its_own(self):
        self.read(source(1))
        self.pulls._session.current = self.client, 2
        self.assertTrue(self.read(source(1)))
        self.assertEqual(len(self.client.views), 1)

    def test_a_peer_stays_where_it_is_while_it_is_read(self):
        go_on, under_way = threading.Event(), threading.Event()
        self.addCleanup(go_on.set)
        self.client.read = lambda *_, **__: under_way.set() or SimpleNamespace(wait=lambda seconds: STATUS if go_on.wait(60) else None)
        self.pulls.start(Load("true", "r", (source(1),), [1], [2]))
        self.assertTrue(under_way.wait(60))
        with self.assertLogs("vllm.gantry", "WARNING") as logged:
            self.pulls.start(Load("made up", "r", (source(1, "10.6.6.6:1"),), [1], [2]))
            while not (ended := self.pulls.take_ended())[0]:
                time.sleep(0.001)
        self.assertEqual(ended[:2], ({"made up"}, {"made up"}))
        self.assertIn("it is read at unix:/p.sock just now", logged.output[0])
        self.assertEqual({address for _, address, _ in self.client.addresses}, {"unix:/p.sock"})  # nor is a message sent elsewhere
        go_on.set()
        while not (ended := self.pulls.take_ended())[0]:
            time.sleep(0.001)
        self.assertEqual(ended[:2], ({"true"}, set()))

    def test_what_waited_for_its_turn_too_long_or_was_cancelled_is_not_read(self):
        go_on, read = threading.Event(), []
        self.addCleanup(go_on.set)
        its = SimpleNamespace(wait=lambda seconds: STATUS if go_on.wait(60) else None, cancel=lambda seconds: None)
        self.client.read = lambda *_, **__: read.append(1) or its
        for number in range(_READS_EACH):
            self.pulls.start(Load(f"first {number}", "r", (source(1),), [1], [2]))
        while len(read) < _READS_EACH:
            time.sleep(0.001)
        self.pulls.start(Load("cancelled", "r", (source(1),), [1], [2]))
        self.pulls.cancel("cancelled")
        self.pulls._deadline = 0
        self.pulls.start(Load("late", "r", (source(1),), [1], [2]))
        with self.assertLogs("vllm.gantry", "WARNING") as logged:
            go_on.set()
            ended, failed = set(), set()
            while not {"cancelled", "late"} <= ended:
                more = self.pulls.take_ended()
                ended, failed = ended | more[0], failed | more[1]
        self.assertLessEqual({"cancelled", "late"}, failed)
        self.assertTrue(any("reads from prefill before this one took" in line for line in logged.output))
        self.assertEqual(len(read), _READS_EACH)

    def test_a_read_without_an_answer_is_asked_for_again_by_the_same_id(self):
        """It may be carried out all the same, when vLLM has given its blocks to others."""
        asked = []

        def read(*_, id, **__):
            asked.append(id)
            if len(asked) < 3:
                raise Error("deadline_exceeded", "the sidecar did not answer")
            return SimpleNamespace(wait=lambda seconds: STATUS)
        self.client.read = read
        self.read(source(1))
        self.assertEqual((len(asked), len(set(asked))), (3, 1))

    def test_blocks_are_given_back_without_a_wait_for_their_peer(self):
        """A thread that waits for a dead peer would keep reads of others waiting. The next read has its wait all the same."""
        self.pulls.give_back(Unwanted("request", (source(1),)))
        while not self.client.messages:
            time.sleep(0.001)
        self.assertEqual(self.client.messages, [("vllm-1", b"gantry-vllm release request")])
        self.read(source(1))
        self.assertEqual([wait for _, _, wait in self.client.addresses], [0, None])  # the peer was not up yet

    def test_a_read_that_gets_no_thread_has_failed(self):
        with mock.patch("threading.Thread.start", side_effect=RuntimeError("can't start new thread")), self.assertLogs("vllm.gantry", "WARNING"):
            self.pulls.start(Load("r", "r", (source(1),), [1], [2]))
            self.pulls.renew(source(1), ["hold"])
            self.pulls.give_back(Unwanted("r", (source(1),)))
        self.assertEqual(self.pulls.take_ended(), ({"r"}, {"r"}, set()))
        self.pulls.renew(source(1), ["hold"])
        while not self.client.messages:
            time.sleep(0.001)

    def test_a_prefiller_that_stands_still_delays_neither_the_reads_of_another_nor_what_it_is_told(self):
        go_on = threading.Event()
        frozen = [Handshake("frozen", "unix:/f.sock", "vllm-1")]

        def read(view, *_, **__):
            return SimpleNamespace(wait=lambda seconds: STATUS if view.peer != "frozen" or go_on.wait() else None)
        self.client.read = read
        for number in range(3 * _READS_EACH):
            self.pulls.start(Load(f"late {number}", "r", tuple(frozen), [1], [2]))
        self.assertTrue(self.read(source(1)))
        for number in range(3 * _READS_EACH):
            self.pulls.give_back(Unwanted(f"unread {number}", tuple(frozen)))
        while len([message for message in self.client.messages if b"unread" in message[1]]) < 3 * _READS_EACH:
            time.sleep(0.001)
        go_on.set()
        ended = set()
        while len(ended) < 3 * _READS_EACH:
            ended |= self.pulls.take_ended()[0]


if __name__ == "__main__":
    unittest.main()
