"""Runs planted tiers in a folder of their own: with too little time, ended, skipped, failed, by turns."""

import json
import os
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

PROGRAM = Path(__file__).resolve().parents[1] / "tiers" / "run_tiers.py"
sys.path.insert(0, str(PROGRAM.parent))
import run_tiers  # noqa: E402

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
        self.assertEqual(self.call("minutes", "asan")[1], f"{run_tiers.TIME_LIMIT_MINUTES['asan']}\n")

    def test_a_last_run_is_remembered(self):
        self.plant("soak", PASSED)
        self.last_runs.write_text(json.dumps({"soak": 300}))
        self.assertEqual(self.call("minutes", "soak")[1], "9\n")
        self.call("run", "soak", left_s=600)
        self.assertEqual(self.row("soak")[0][:3], ["passed", "1", "0"])
        self.assertLess(json.loads(self.last_runs.read_text())["soak"], 60)

    def test_a_required_tier_begins_while_time_is_left(self):
        self.plant("soak", PASSED)
        self.call("run", "soak", left_s=60)
        self.assertEqual(self.call("summary", "soak")[0], 0)

    def test_a_required_tier_that_did_not_run_is_a_failure_with_its_name(self):
        self.plant("unit", PASSED)
        self.plant("soak", PASSED)
        self.call("run", "unit")
        self.call("run", "soak", left_s=-1)
        code, said = self.call("summary", "unit", "soak")
        self.assertEqual(code, 1)
        self.assertIn("NOT RUN: soak: the time for all tiers was over", said)
        self.assertIn("1 passed, 0 failed, 1 required tiers not run: soak", said.splitlines()[-1])
        code, said = self.call("summary", "unit", "--not-required", "soak")
        self.assertEqual(code, 0, said)
        self.assertIn("NOT RUN: soak, which is not required here", said)

    def test_a_tier_of_a_list_may_not_have_run_where_it_is_named_behind_it(self):
        for tier in run_tiers.GROUPS["required"]:
            self.plant(tier, PASSED)
        self.call("run", *[tier for tier in run_tiers.GROUPS["required"] if tier != "kubernetes"])
        self.call("skip", "kubernetes", "its programs are not built")
        self.assertEqual(self.call("summary", "@required")[0], 1)
        code, said = self.call("summary", "@required", "--not-required", "kubernetes")
        self.assertEqual(code, 0, said)
        self.assertIn("NOT RUN: kubernetes, which is not required here: its programs are not built", said)

    def test_a_tier_that_failed_is_a_failure_though_it_is_not_required(self):
        self.plant("unit", PASSED)
        self.plant("tidy", FAILED + "; exit 1")
        self.call("run", "unit", "tidy")
        self.assertEqual(self.call("summary", "unit", "--not-required", "tidy")[0], 1)

    def test_a_tier_that_hangs_is_ended_at_its_limit_and_has_failed(self):
        self.plant("style", "sleep 300")
        text = PROGRAM.read_text()
        self.assertIn('{"style": 3,', text)
        (self.tiers / "run_tiers.py").write_text(text.replace('{"style": 3,', '{"style": 0.03,'))
        start = time.monotonic()
        self.call("run", "style")
        self.assertLess(time.monotonic() - start, 30)
        code, said = self.call("summary", "style")
        self.assertEqual(code, 1)
        self.assertIn("style (ended after its limit of", said)

    def test_a_process_that_left_a_tier_s_group_does_not_hold_up_the_next(self):
        self.plant("style", PASSED + "; setsid sleep 60 & sleep 0.5")
        start = time.monotonic()
        self.call("run", "style")
        self.assertLess(time.monotonic() - start, 40)
        self.assertEqual(self.call("summary", "style")[0], 0)

    def test_nightly_tiers_take_turns_and_one_that_does_not_fit_is_passed_over(self):
        turns = [self.call("turn")[1].strip() for _ in range(3)]
        self.assertEqual(turns, ["older-rocm", "tidy", "asan-end-to-end"])
        for tier in ("arm64",):
            self.plant(tier, "echo 60")
        self.last_runs.write_text(json.dumps({"tsan-end-to-end": 3600, "soak-long": 60}))
        self.assertEqual(self.call("turn", left_s=600)[1], "soak-long\n")
        self.assertEqual(self.call("turn", left_s=1)[1], "\n")
        self.assertEqual((self.last_runs.parent / "nightly-turn").read_text(), "fuzz-long\n")

    def test_groups_stand_for_their_tiers_and_every_tier_of_them_is_there(self):
        said = self.call("summary", "@quick", "@required")[1]
        for tier in ("style", "contract", "smoke", "tsan", "kubernetes"):
            self.assertIn(f"\n{tier} ", said)
        listed = run_tiers.GROUPS["quick"] + run_tiers.GROUPS["required"] + run_tiers.GROUPS["nightly"]
        self.assertEqual([tier for tier in listed if not os.access(PROGRAM.parent / tier, os.X_OK)], [])

    def test_a_tier_that_the_disk_has_no_room_for_does_not_begin_where_time_is_bounded(self):
        self.plant("fuzz", PASSED)
        text = PROGRAM.read_text()
        self.assertIn('"fuzz": 1,', text)
        (self.tiers / "run_tiers.py").write_text(text.replace('"fuzz": 1,', '"fuzz": 1000000000,'))
        self.call("run", "fuzz", left_s=3600)
        (outcome, *_), said = self.row("fuzz")
        self.assertEqual(outcome, "NOT", said)
        self.assertRegex(said, r"NOT RUN: fuzz: may write 1000000000 GiB, \d+\.\d are free on the disk of /")
        self.call("run", "fuzz")
        self.assertEqual(self.row("fuzz")[0][0], "passed")

    def test_a_full_disk_is_the_reason_of_a_build_that_it_ended(self):
        self.plant("unit", 'echo "/usr/bin/ar: lib/a.a: No space left on device"; exit 1')
        self.call("run", "unit")
        (outcome, *_), said = self.row("unit")
        self.assertEqual(outcome, "FAILED")
        self.assertIn("No space left on device", said.split("failed in unit")[1])

    def test_a_tier_that_failed_is_not_remembered(self):
        self.plant("unit", FAILED + "; exit 1")
        self.call("run", "unit")
        self.assertEqual(self.row("unit")[0][:3], ["FAILED", "0", "1"])
        self.assertFalse(self.last_runs.exists())

    def test_a_tier_that_takes_longer_is_ended_with_the_time_of_all_and_has_not_run(self):
        self.plant("unit", "sleep 300")
        start = time.monotonic()
        self.call("run", "unit", left_s=3)
        self.assertLess(time.monotonic() - start, 30)
        (outcome, *_), said = self.row("unit")
        self.assertEqual(outcome, "NOT", said)
        self.assertIn("the time for all tiers was over", said)

    def test_what_failed_before_a_tier_was_ended_is_a_failure(self):
        folder = self.root / "build" / "test-results" / "unit"
        folder.mkdir(parents=True)
        (folder / "result.json").write_text(json.dumps({"status": None, "note": "ended", "seconds": 9, "busy": 9}))
        (folder / "a.xml").write_text('<testsuite><testcase name="two"><failure/></testcase></testsuite>')
        self.assertEqual(self.row("unit")[0][:3], ["FAILED", "0", "1"])

    def test_a_tier_that_this_machine_cannot_run_has_not_run_and_says_why(self):
        self.plant("image", 'if [ "$1" = minutes ]; then echo 7; exit; fi; echo "needs root" >"$RESULTS/skipped"')
        self.assertEqual(self.call("minutes", "image")[1], "7\n")
        self.call("run", "image", left_s=500)
        (outcome, *_), said = self.row("image")
        self.assertEqual(outcome, "NOT")
        self.assertIn("NOT RUN: image: needs root", said)
        self.assertFalse(self.last_runs.exists())

    def test_a_tier_that_is_skipped_from_outside_has_not_run_and_says_why(self):
        self.plant("kubernetes", PASSED)
        self.call("run", "kubernetes")
        self.call("skip", "kubernetes", "its programs are not built")
        code, said = self.call("summary", "kubernetes")
        self.assertEqual(code, 1)
        self.assertIn("NOT RUN: kubernetes: its programs are not built", said)

    def test_a_tier_without_a_test_is_a_failure(self):
        self.plant("unit", "true")
        self.call("run", "unit")
        self.assertEqual(self.row("unit")[0][0], "FAILED")


if __name__ == "__main__":
    unittest.main()
