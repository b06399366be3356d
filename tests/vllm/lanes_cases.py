"""Lanes: what stands still in one of them delays no other, and the work of one begins in order."""

import subprocess
import sys
import threading
import unittest
from unittest import mock

from gantry_vllm.lanes import Lanes


class LanesCases(unittest.TestCase):

    def lanes(self, each, all):
        lanes = Lanes("test", each, all)
        self.addCleanup(lanes.close)
        return lanes

    def test_one_that_stands_still_delays_no_other(self):
        lanes, go_on, done = self.lanes(2, 8), threading.Event(), threading.Event()
        self.addCleanup(go_on.set)
        for _ in range(100):
            lanes.submit("frozen", go_on.wait)
        lanes.submit("other", done.set)
        self.assertTrue(done.wait(60))

    def test_the_work_of_a_lane_of_one_is_done_in_order(self):
        lanes, seen, done = self.lanes(1, 4), [], threading.Event()
        for number in range(1000):
            lanes.submit("a", seen.append, number)
        lanes.submit("a", done.set)
        self.assertTrue(done.wait(60))
        self.assertEqual(seen, list(range(1000)))

    def test_no_more_of_a_lane_run_than_each(self):
        lanes, running, go_on = self.lanes(3, 16), threading.Semaphore(0), threading.Event()
        self.addCleanup(go_on.set)
        for _ in range(9):
            lanes.submit("a", lambda: running.release() or go_on.wait())
        for _ in range(3):
            self.assertTrue(running.acquire(timeout=60))
        self.assertEqual((lanes._running["a"], len(lanes._waiting["a"])), (3, 6))

    def test_work_that_raises_ends_no_lane(self):
        lanes, done = self.lanes(1, 1), threading.Event()
        with self.assertLogs("vllm.gantry", "ERROR"):
            lanes.submit("a", lambda: 1 / 0)
            lanes.submit("a", done.set)
            self.assertTrue(done.wait(60))

    def test_nothing_is_kept_of_lanes_that_are_empty(self):
        lanes, done = self.lanes(1, 4), threading.Semaphore(0)
        for number in range(200):
            lanes.submit(str(number), done.release)
        for _ in range(200):
            self.assertTrue(done.acquire(timeout=60))
        lanes.submit("last", done.release)
        done.acquire()
        while lanes._running:
            pass
        self.assertEqual((lanes._running, lanes._waiting), ({}, {}))

    def test_threads_are_used_again(self):
        lanes, names = self.lanes(1, 16), set()
        for number in range(50):
            done = threading.Event()
            lanes.submit(str(number % 3), lambda: names.add(threading.get_ident()) or done.set())
            self.assertTrue(done.wait(60))
            while lanes._running:
                pass
        self.assertLess(len(names), 16)

    def test_where_no_thread_can_be_made_the_caller_is_told(self):
        lanes, done = self.lanes(1, 4), threading.Event()
        with mock.patch("threading.Thread.start", side_effect=RuntimeError("can't start new thread")), self.assertLogs("vllm.gantry", "WARNING"):
            self.assertFalse(lanes.submit("a", done.set))
        self.assertEqual((lanes._running, len(lanes._ready)), ({}, 0))
        self.assertTrue(lanes.submit("a", done.set))
        self.assertTrue(done.wait(60))

    def test_another_thread_does_what_gets_none_of_its_own(self):
        lanes, go_on, done = self.lanes(1, 4), threading.Event(), threading.Event()
        self.addCleanup(go_on.set)
        lanes.submit("a", go_on.wait)
        with mock.patch("threading.Thread.start", side_effect=RuntimeError("can't start new thread")), self.assertLogs("vllm.gantry", "WARNING"):
            self.assertTrue(lanes.submit("b", done.set))
        go_on.set()
        self.assertTrue(done.wait(60))

    def test_a_process_that_ends_waits_for_no_work(self):
        program = ("import threading\nfrom gantry_vllm.lanes import Lanes\nlanes = Lanes('test', 1, 4)\n"
                   "began = threading.Event()\nlanes.submit('a', lambda: began.set() or threading.Event().wait())\nbegan.wait()")
        self.assertEqual(subprocess.run([sys.executable, "-c", program], timeout=120, check=False).returncode, 0)

    def test_a_lane_with_much_work_lets_others_go_first(self):
        lanes, go_on, seen, done = self.lanes(1, 1), threading.Event(), [], threading.Event()
        lanes.submit("a", go_on.wait)
        for _ in range(9):
            lanes.submit("a", seen.append, "a")
        lanes.submit("b", seen.append, "b")
        lanes.submit("a", done.set)
        go_on.set()
        self.assertTrue(done.wait(60))
        self.assertEqual(seen, ["b", *"a" * 9])

    def test_after_the_end_nothing_is_done_and_nothing_raises(self):
        lanes, go_on, seen = self.lanes(1, 1), threading.Event(), []
        lanes.submit("a", go_on.wait)
        lanes.submit("a", seen.append, 1)
        lanes.submit("b", seen.append, 1)
        lanes.close()
        self.assertFalse(lanes.submit("c", seen.append, 2))
        go_on.set()
        while lanes._threads:
            pass
        self.assertEqual(seen, [])


if __name__ == "__main__":
    unittest.main()
