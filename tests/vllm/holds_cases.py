"""The prefiller's thread that follows holds, with a sidecar that says what the case needs."""

import base64
import time
import unittest
from types import SimpleNamespace
from urllib.parse import unquote
from unittest import mock

from gantry import Error
from gantry.rest import Event
from gantry_vllm.handshake import hold_id
from gantry_vllm.holds import RELEASE, RENEW, Holds
from gantry_vllm.stats import Recorder

TTL = 7.0
SECONDS = 30


class FakeHold:

    def __init__(self, client, id):
        self.id, self._client = id, client

    def extend(self, ttl):
        self._client.calls.append(("extend", self.id, ttl))
        if self.id in self._client.broken:
            raise Error("lease_expired", "it is over")

    def release(self):
        self._client.calls.append(("release", self.id))
        self._client.released()
        if self.id in self._client.broken:
            raise Error("timeout", "no answer")


class FakeClient:

    def __init__(self):
        self.calls, self.broken, self.states, self.lost, self.silent, self.events = [], set(), {}, 0, 0, []
        self.released = lambda: None

    def hold(self, id, group, ttl, expected_consumers):
        if id in self.broken:
            raise RuntimeError("no hold can be made")
        self.states[id] = "active"
        return FakeHold(self, id)

    def poll_events(self, cursor, limit):
        found, self.events = self.events[:limit], self.events[limit:]
        lost, self.lost = self.lost, 0
        return found, cursor + len(found), lost

    def request(self, method, target):
        id, workload = target.removeprefix("/v1/holds/").split("?workload=")
        assert (method, workload, "/" in id) == ("GET", "vllm", False)
        id = unquote(id)
        if self.silent:
            self.silent -= 1
            raise Error("timeout", "no answer")
        if id not in self.states:
            raise Error("not_found", "there is no such hold")
        return {"id": id, "workload": workload, "state": self.states[id]}

    def say(self, *events):
        """All of these in one answer."""
        self.events = self.events + [Event(0, type, subject, fields) for type, subject, fields in events]


def ended(request, outcome="consumed"):
    return "hold", hold_id(request), {"hold": {"outcome": outcome, "consumers": 0}}


def message(start, *requests):
    """As the REST interface says a notification."""
    text = start + "\n".join(map(hold_id, requests)).encode()
    return "notification", "n", {"notification": {"message": base64.b64encode(text).decode()}}


class OfHolds(unittest.TestCase):

    def setUp(self):
        self.client = FakeClient()
        self.recorder, self.introductions = Recorder(recomputes=True), mock.Mock()
        self.holds = Holds(SimpleNamespace(client=self.client, workload="vllm"), 6, TTL, 1, self.recorder, self.introductions)
        self.addCleanup(self.holds.close)

    def put(self, *requests):
        putting = self.holds.put(dict.fromkeys(requests, [1, 2]))
        self.assertTrue(putting.wait(SECONDS))
        self.assertEqual(putting.stands, dict.fromkeys(requests, True))

    def wait_for_ended(self, *requests):
        told, end = set(), time.monotonic() + SECONDS
        while told != set(requests):
            told |= self.holds.take_ended()
            self.assertLess(time.monotonic(), end, told)
            time.sleep(0.01)

    def wait_for_calls(self, *calls):
        end = time.monotonic() + SECONDS
        while set(self.client.calls) != set(calls):
            self.assertLess(time.monotonic(), end, self.client.calls)
            time.sleep(0.01)

    def test_a_hold_that_is_not_put_keeps_no_other_of_its_step_from_it(self):
        self.client.broken.add(hold_id("b"))
        putting = self.holds.put(dict.fromkeys("abc", [1, 2]))
        self.assertTrue(putting.wait(SECONDS))
        self.assertEqual(putting.stands, {"a": True, "b": False, "c": True})
        self.wait_for_ended("b")

    def test_events_are_read_while_there_is_always_another_command(self):
        self.put("a", "b")
        self.client.released = lambda: self.holds.release("b")
        self.holds.release("b")
        self.client.say(ended("a"))
        self.wait_for_ended("a")
        self.client.released = lambda: None

    def test_a_message_renews_its_holds_alone(self):
        self.put("a", "b", "c")
        self.client.say(message(RENEW, "a", "unknown", "c"))
        self.wait_for_calls(("extend", hold_id("a"), TTL), ("extend", hold_id("c"), TTL))

    def test_a_message_renews_more_holds_than_fit_between_two_commands(self):
        requests = [f"r{number}" for number in range(200)]
        self.put(*requests)
        self.client.say(message(RENEW, *requests))
        self.wait_for_calls(*(("extend", hold_id(request), TTL) for request in requests))

    def test_a_hold_that_cannot_be_renewed_keeps_no_other_from_it(self):
        self.put("a", "b")
        self.client.broken.add(hold_id("a"))
        self.client.say(message(RENEW, "a", "b"), ended("a", "expired"))
        self.wait_for_calls(("extend", hold_id("b"), TTL))
        self.wait_for_ended("a")

    def test_a_hold_that_cannot_be_released_hides_no_later_event(self):
        self.put("a", "b")
        self.client.broken.add(hold_id("a"))
        self.client.say(message(RELEASE, "a"), ended("b"))
        self.wait_for_ended("b")
        self.assertEqual(self.client.calls, [("release", hold_id("a"))])

    def test_a_hold_whose_end_was_lost_is_told(self):
        self.put("a", "b", "c", "d", "e")
        self.client.states |= {hold_id("b"): "ending", hold_id("c"): "expired", hold_id("d"): "consumed"}
        del self.client.states[hold_id("e")]
        self.client.silent = 2
        self.client.lost = 1
        self.wait_for_ended("c", "d", "e")
        self.client.say(ended("a"), ended("b"))
        self.wait_for_ended("a", "b")

    def test_a_hold_with_any_text_as_its_id_is_asked_for_by_that(self):
        """Otherwise it would not be found, and its blocks would be taken for free."""
        self.put("a b/c?d#e%41", "f")
        self.client.states[hold_id("f")] = "expired"
        self.client.lost = 1
        self.wait_for_ended("f")
        self.client.say(ended("a b/c?d#e%41"))
        self.wait_for_ended("a b/c?d#e%41")

    def test_holds_that_expired_and_messages_that_did_not_arrive_are_counted(self):
        self.put("a", "b")
        self.client.say(ended("a", "expired"), ended("b", "consumed"),
                        ("notification_outcome", "n-1", {"delivery": {"delivered": False}}),
                        ("notification_outcome", "n-2", {"delivery": {"delivered": True}}))
        self.wait_for_ended("a", "b")
        data = self.recorder.take().data
        self.assertEqual((data["num_kv_expired_reqs"], data["num_failed_notifications"]), (1, 1))

    def test_a_hold_that_expired_is_counted_before_its_end_is_told(self):
        """The engine may have no other step in which it could take the number."""
        told = []
        with mock.patch.object(self.recorder, "count", lambda **counts: told.append(self.holds.take_ended())):
            self.put("a")
            self.client.say(ended("a", "expired"))
            self.wait_for_ended("a")
        self.assertEqual(told, [set()])

    def test_events_are_read_without_any_hold(self):
        self.client.say(("notification_outcome", "n-1", {"delivery": {"delivered": False}}))
        end = time.monotonic() + SECONDS
        while (stats := self.recorder.take()) is None:
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)
        self.assertEqual(stats.data["num_failed_notifications"], 1)

    def test_messages_of_others_do_no_harm(self):
        self.put("a")
        for text in (b"", b"\xff\xfe", b"gantry-vllm renew ", b"gantry-vllm release", b"gantry-vllm renew \xff \xff"):
            self.client.say(message(text))
        self.client.say(ended("a"))
        self.wait_for_ended("a")
