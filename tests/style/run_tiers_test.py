"""How tiers are run and told of: with too little time, ended, skipped, failed. Planted tiers in a folder of their own."""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

PROGRAM = Path(__file__).resolve().parents[1] / "tiers" / "run_tiers.py"
PASSED = 'echo "<testsuite><testcase name=\\"one\\"/></testsuite>" >"$RESULTS/a.xml"'
FAILED = 'echo "<testsuite><testcase name=\\"two\\"><failure/></testcase></testsuite>" >"$RESULTS/a.xml"'


class RunTiersTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.tiers = self.root / "tests" / "tiers"
        self.tiers.mkdir(parents=True)
        (self.tiers / "run_tiers.py").write_text(PROGRAM.read_text())
        self.last_runs = self.root / "cache" / "tier-seconds.json"
        self.last_runs.parent.mkdir()

    def plant(self, tier, script):
        file = self.tiers / tier
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)

    def call(self, *arguments, left_s=None):
        environment = {**os.environ, "GANTRY_CACHE": str(self.last_runs.parent)}
        environment.pop("GANTRY_TIERS_UNTIL", None)
        if left_s is not None:
            environment["GANTRY_TIERS_UNTIL"] = str(int(time.time() + left_s))
        done = subprocess.run([sys.executable, self.tiers / "run_tiers.py", *arguments], capture_output=True, text=True, env=environment)
        return done.returncode, done.stdout

    def row(self, tier):
        said = self.call("summary", tier)[1]
        return next(line.split()[1:] for line in said.splitlines() if line.startswith(tier + " ")), said

    def test_a_tier_without_a_last_run_may_take_its_limit(self):
        self.assertEqual(self.call("minutes", "asan")[1], "40\n")

    def test_a_last_run_is_remembered_and_lets_a_tier_fit(self):
        self.plant("soak", PASSED)
        self.call("run", "soak", left_s=600)
        self.assertIn("may take 20 minutes, 10 were left", self.row("soak")[1])
        self.last_runs.write_text(json.dumps({"soak": 300}))
        self.assertEqual(self.call("minutes", "soak")[1], "9\n")
        self.call("run", "soak", left_s=600)
        self.assertEqual(self.row("soak")[0][:3], ["passed", "1", "0"])
        self.assertLess(json.loads(self.last_runs.read_text())["soak"], 60)

    def test_a_tier_of_which_a_part_is_worth_having_does_what_fits(self):
        self.plant("asan", PASSED + '; echo "left: $((GANTRY_TIER_UNTIL - $(date +%s)))"; echo "tests of 3 programs" >"$RESULTS/partly"')
        left = re.search(r"left: (\d+)", self.call("run", "asan", left_s=600)[1])
        self.assertTrue(500 < int(left[1]) <= 600, left)
        row, said = self.row("asan")
        self.assertEqual(row[:3], ["partly", "1", "0"])
        self.assertIn("skipped in asan: tests of 3 programs", said)
        self.assertFalse(self.last_runs.exists())
        self.call("run", "asan", left_s=300)
        self.assertEqual(self.row("asan")[0][0], "left")

    def test_a_tier_that_the_disk_may_have_no_room_for_is_left_out_where_tiers_may_be(self):
        self.plant("fuzz", PASSED)
        text = PROGRAM.read_text()
        self.assertIn('"fuzz": 1,', text)
        (self.tiers / "run_tiers.py").write_text(text.replace('"fuzz": 1,', '"fuzz": 1000000000,'))
        self.call("run", "fuzz", left_s=3600)
        (outcome, *_), said = self.row("fuzz")
        self.assertEqual(outcome, "left", said)
        self.assertRegex(said, r"skipped in fuzz: may write 1000000000 GiB, \d+\.\d are free on the disk of /")
        self.call("run", "fuzz")
        self.assertEqual(self.row("fuzz")[0][0], "passed")

    def test_a_full_disk_is_the_reason_of_a_build_that_it_ended(self):
        self.plant("unit", 'echo "/usr/bin/ar: lib/a.a: No space left on device"; exit 1')
        self.call("run", "unit")
        (outcome, *_), said = self.row("unit")
        self.assertEqual(outcome, "FAILED")
        self.assertIn("No space left on device", said.split("failed in unit")[1])

    def test_what_failed_of_a_part_is_a_failure(self):
        self.plant("asan", FAILED + '; echo "tests of 3 programs" >"$RESULTS/partly"; exit 1')
        self.call("run", "asan", left_s=600)
        self.assertEqual(self.row("asan")[0][:3], ["FAILED", "0", "1"])

    def test_a_tier_that_failed_is_not_remembered(self):
        self.plant("unit", FAILED + "; exit 1")
        self.call("run", "unit")
        self.assertEqual(self.row("unit")[0][:3], ["FAILED", "0", "1"])
        self.assertFalse(self.last_runs.exists())

    def test_a_tier_that_takes_longer_is_ended_with_the_time_of_all_and_left_out(self):
        self.last_runs.write_text(json.dumps({"unit": 0}))
        self.plant("unit", "sleep 300")
        text = PROGRAM.read_text()
        self.assertIn("\nSPARE_MINUTES = 1\n", text)
        (self.tiers / "run_tiers.py").write_text(text.replace("\nSPARE_MINUTES = 1\n", "\nSPARE_MINUTES = 0\n"))
        start = time.monotonic()
        self.call("run", "unit", left_s=3)
        self.assertLess(time.monotonic() - start, 30)
        (outcome, *_), said = self.row("unit")
        self.assertEqual(outcome, "left", said)
        self.assertIn("the time for all tiers was over", said)

    def test_what_failed_before_a_tier_was_ended_is_a_failure(self):
        folder = self.root / "build" / "test-results" / "unit"
        folder.mkdir(parents=True)
        (folder / "result.json").write_text(json.dumps({"status": None, "note": "ended", "seconds": 9}))
        (folder / "a.xml").write_text('<testsuite><testcase name="two"><failure/></testcase></testsuite>')
        self.assertEqual(self.row("unit")[0][:3], ["FAILED", "0", "1"])

    def test_a_tier_that_this_machine_cannot_run_is_skipped_with_its_reason(self):
        self.plant("image", 'if [ "$1" = minutes ]; then echo 7; exit; fi; echo "needs root" >"$RESULTS/skipped"')
        self.assertEqual(self.call("minutes", "image")[1], "7\n")
        self.call("run", "image", left_s=500)
        (outcome, *_), said = self.row("image")
        self.assertEqual(outcome, "skipped")
        self.assertIn("skipped in image: needs root", said)
        self.assertFalse(self.last_runs.exists())

    def test_a_tier_without_a_test_is_a_failure(self):
        self.plant("unit", "true")
        self.call("run", "unit")
        self.assertEqual(self.row("unit")[0][0], "FAILED")


if __name__ == "__main__":
    unittest.main()
