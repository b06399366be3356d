"""Decoders that have a prefiller's sidecar move the bytes: what they say of themselves, and what is believed."""

import json
import time
import unittest
from types import SimpleNamespace

from gantry import Error
from gantry_vllm.handshake import Handshake
from gantry_vllm.introductions import MEET, Introductions, meet
from gantry_vllm.metadata import Load
from gantry_vllm.peers import Peers
from gantry_vllm.places import Places
from gantry_vllm.pulls import Pulls
from gantry_vllm.settings import Settings
from gantry_vllm.stats import Recorder
from gantry_vllm.tensor_parallel import BlockShape, Topology
from pulls_cases import STATUS, Client, source

DECODER = Handshake("decode", "10.0.0.7:9461", "vllm-decode", "node")
SENDER = ("decode", "vllm-decode")


def until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


class OfTheProducer(unittest.TestCase):

    def setUp(self):
        self.client = Client()
        self.introductions = Introductions(SimpleNamespace(current=(self.client, 1)), Places(), Peers())
        self.addCleanup(self.introductions.close)

    def test_the_decoders_sidecar_is_told_to_the_own_one(self):
        self.introductions.heard(meet(DECODER), SENDER)
        until(lambda: self.client.addresses)
        self.assertEqual(self.client.addresses, [("decode", "10.0.0.7:9461", 0)])

    def test_made_up_messages_connect_to_nothing(self):
        for said in (b"", b"{", b"[" * 60000, b"[]", b"{}", json.dumps({**DECODER.params(), "peer": 7}).encode(), b"\xff",
                     json.dumps({**DECODER.params(), "address": "8.8.8.8:1"}).encode(),
                     json.dumps({**DECODER.params(), "address": "example.com:1"}).encode()):
            with self.subTest(said[:60]), self.assertLogs("vllm.gantry", "WARNING"):
                self.introductions.heard(MEET + said, SENDER)
        self.introductions.heard(meet(DECODER), SENDER)
        until(lambda: self.client.addresses)
        self.assertEqual(len(self.client.addresses), 1)


    def test_nobody_says_where_another_is(self):
        for sender in (("decode", "vllm-other"), ("stranger", "vllm-decode"), ("", "")):
            with self.subTest(sender), self.assertLogs("vllm.gantry", "WARNING"):
                self.introductions.heard(meet(DECODER), sender)
        self.introductions.heard(meet(DECODER), SENDER)
        until(lambda: self.client.addresses)
        self.assertEqual(len(self.client.addresses), 1)


class OfTheConsumer(unittest.TestCase):

    def setUp(self):
        self.client, self.refused, self.asked = Client(), 0, []
        self.client.read = self.read
        self.pulls = Pulls(SimpleNamespace(client=self.client, current=(self.client, 1)), Topology(0, 1, 4), BlockShape(1, 4, 64),
                           Settings(read_deadline=20, executor="peer"), Recorder(recomputes=True), in_parts=True, mine=DECODER)
        self.addCleanup(self.pulls.close)

    def read(self, *_, id, executor, **__):
        self.asked.append((id, executor))
        if len(self.asked) <= self.refused:
            raise Error("peer_unavailable", "the peer has no session with this sidecar", "", "/executor")
        return SimpleNamespace(wait=lambda seconds: STATUS)

    def ended(self):
        self.pulls.start(Load("r", "r", (source(1),), [1], [2]))
        return self.until_ended()

    def until_ended(self):
        while not (ended := self.pulls.take_ended())[0]:
            time.sleep(0.001)
        return ended[:2]

    def test_the_prefiller_executes_and_is_told_nothing_where_it_knows_the_decoder(self):
        self.assertEqual(self.ended(), ({"r"}, set()))
        self.assertEqual([executor for _, executor in self.asked], ["peer"])
        self.assertEqual(self.client.messages, [])

    def test_a_prefiller_that_does_not_know_the_decoder_is_told_where_it_is(self):
        self.refused = 3
        self.assertEqual(self.ended(), ({"r"}, set()))
        self.assertEqual((len(self.asked), len(set(self.asked))), (4, 1))
        until(lambda: self.client.messages)  # by another thread
        self.assertEqual(set(self.client.messages), {("vllm-1", meet(DECODER))})

    def test_a_request_that_is_aborted_meanwhile_is_not_read(self):
        self.refused = 10**9
        self.pulls.start(Load("r", "r", (source(1),), [1], [2]))
        until(lambda: self.asked)
        self.pulls.cancel("r")
        self.assertEqual(self.until_ended(), ({"r"}, {"r"}))

    def test_a_prefiller_that_never_connects_fails_the_read(self):
        self.refused, self.pulls._deadline = 10**9, 0.2
        with self.assertLogs("vllm.gantry", "WARNING"):
            self.assertEqual(self.ended(), ({"r"}, {"r"}))


if __name__ == "__main__":
    unittest.main()
