"""Runs planted programs in processes of many cases: what passed, failed, leaked, hung or did not run is told apart."""

import json
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree
from pathlib import Path

TIERS = Path(__file__).resolve().parents[1] / "tiers"

# Stands for a program of GoogleTest: the case that is named after an outcome has it.
PROGRAM = '''#!/usr/bin/env python3
import os, sys, time
options = dict(word[2:].split("=", 1) for word in sys.argv[1:] if "=" in word)
cases = options["gtest_filter"].split(":")
if any("Hangs" in case for case in cases):
    time.sleep(60)
ran = [case for case in cases if "IsNotRun" not in case]
with open(options["gtest_output"].partition(":")[2], "w") as file:
    file.write("<testsuite>")
    for case in ran:
        suite, name = case.split(".")
        inside = '<failure message="no"/>' if "Fails" in name else '<skipped message="a.cc:1&#10;why"/>' if "Skips" in name else ""
        file.write(f'<testcase classname="{suite}" name="{name}" status="run">{inside}</testcase>')
    file.write("</testsuite>")
print("environment", os.environ["PLANTED"])
if any("Races" in case for case in cases):
    print("WARNING: ThreadSanitizer: data race")
sys.exit(any(word in case for case in cases for word in ("Fails", "Leaks", "Races")))
'''


class RunGtestProgramsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        (self.root / "tests" / "tiers").mkdir(parents=True)
        for name in ("gtest_programs.py", "run_gtest_programs.py"):
            (self.root / "tests" / "tiers" / name).write_text((TIERS / name).read_text())
        presets = {"testPresets": [{"name": "planted", "environment": {"PLANTED": "${sourceDir}/x"}}]}
        (self.root / "CMakePresets.json").write_text(json.dumps(presets))
        self.build = self.root / "build" / "planted"
        self.build.mkdir(parents=True)
        self.program = self.build / "some_test"
        self.program.write_text(PROGRAM)
        self.program.chmod(0o755)

    def call(self, *cases, timeout=60):
        """Returns the exit code and {name: outcome} of a run of these cases."""
        lines = []
        for case in cases:
            lines.append(f'add_test("{case}" "{self.program}" "--gtest_filter={case}")')
            lines.append(f'set_tests_properties("{case}" PROPERTIES LABELS unit TIMEOUT {timeout})')
        (self.build / "CTestTestfile.cmake").write_text("\n".join(lines))
        results = self.root / "results"
        done = subprocess.run([sys.executable, self.root / "tests" / "tiers" / "run_gtest_programs.py", "planted", "^unit$", "2", results],
                              capture_output=True, text=True)
        outcomes = {}
        for case in ElementTree.parse(results / "ctest.xml").iter("testcase"):
            kinds = [each.tag for each in case if each.tag in ("failure", "error", "skipped")]
            outcomes[case.get("name")] = kinds[0] if kinds else "passed"
        return done.returncode, outcomes

    def test_cases_are_told_one_by_one(self):
        self.assertEqual(self.call("A.Works", "A.Skips", "B.Works"),
                         (0, {"some_test.A.Works": "passed", "some_test.A.Skips": "skipped", "some_test.B.Works": "passed"}))

    def test_a_case_that_fails_is_named(self):
        self.assertEqual(self.call("A.Works", "A.Fails"),
                         (1, {"some_test.A.Works": "passed", "some_test.A.Fails": "failure"}))

    def test_a_process_that_ends_badly_behind_its_cases_fails(self):
        self.assertEqual(self.call("A.Works", "A.Leaks"),
                         (1, {"some_test.A.Works": "passed", "some_test.A.Leaks": "passed", "some_test-0.0": "failure"}))

    def test_a_report_is_told_beside_a_case_that_fails(self):
        self.assertEqual(self.call("A.Fails", "A.Races"),
                         (1, {"some_test.A.Fails": "failure", "some_test.A.Races": "passed", "some_test-0.0": "failure"}))

    def test_a_program_that_cannot_start_fails(self):
        self.program.unlink()
        self.assertEqual(self.call("A.Works"), (1, {"A.Works": "failure"}))

    def test_a_process_that_hangs_is_ended(self):
        self.assertEqual(self.call("A.Hangs", timeout=1), (1, {"some_test-0.0": "failure"}))

    def test_a_case_that_was_left_out_is_no_success(self):
        self.assertEqual(self.call("A.Works", "A.IsNotRun"), (1, {"some_test.A.Works": "passed", "some_test-0.0": "failure"}))

    def test_many_cases_are_spread_over_processes(self):
        code, outcomes = self.call(*(f"A.Works{number}" for number in range(70)))
        self.assertEqual((code, len(outcomes), set(outcomes.values())), (0, 70, {"passed"}))
        self.assertEqual(len(list((self.root / "results" / "processes").glob("some_test-*.xml"))), 3)


if __name__ == "__main__":
    unittest.main()
