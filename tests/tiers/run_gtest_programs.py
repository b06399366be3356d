#!/usr/bin/env python3
"""Runs the C++ tests of a build with many cases in each process.

  run_gtest_programs.py <preset> <label regex> <jobs> <folder for results>

Writes ctest.xml there: one test case for each gtest case and for each other test of ctest. A process that ended badly
with no failed case (a leak, a race, a crash, its time limit) is a failed test of its own, with what it said. The
environment is that of the test preset.
"""

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from gtest_programs import FILTER, listed_tests, programs_of, properties_of, test_lines

ROOT = Path(__file__).resolve().parents[2]
CASES_PER_PROCESS = 32
SECONDS_PER_CASE = 3  # of the time limit of a process, beside that of a case
# Properties of ctest that hold for a process of many cases, and for any other test.
KEPT = ("ENVIRONMENT", "WORKING_DIRECTORY", "TIMEOUT", "RUN_SERIAL", "COST")


def environment_of(preset):
    presets = json.loads((ROOT / "CMakePresets.json").read_text())["testPresets"]
    own = next(each.get("environment", {}) for each in presets if each["name"] == preset)
    return os.environ | {name: value.replace("${sourceDir}", str(ROOT)) for name, value in own.items()}


def chunks_of(program):
    cases = iter(program.cases)
    while chunk := list(itertools.islice(cases, CASES_PER_PROCESS)):
        yield chunk


def write_tests(build, labels, folder, environment):
    """Writes the folder that ctest runs. Returns {name of a process: (its program, its JUnit file, how many cases it runs)}."""
    lines, processes = [], {}
    programs, others = programs_of(listed_tests(build, labels, environment))
    for number, program in enumerate(programs):
        for part, chunk in enumerate(chunks_of(program)):
            name = f"{Path(program.command[0]).name}-{number}.{part}"
            processes[name] = Path(program.command[0]).name, folder / f"{name}.xml", len(chunk)
            properties = {key: program.properties[key] for key in KEPT if key in program.properties}
            properties["TIMEOUT"] = properties["TIMEOUT"] + SECONDS_PER_CASE * len(chunk)
            # Other cases may have left threads: a death test begins anew instead of forking them.
            command = [*program.command, FILTER + ":".join(chunk), f"--gtest_output=xml:{processes[name][1]}",
                       "--gtest_death_test_style=threadsafe"]
            lines += test_lines(name, command, properties)
    for test in others:
        kept = {key: value for key, value in properties_of(test).items() if key in KEPT}
        lines += test_lines(test["name"], test.get("command", [f"{test['name']}-was-not-built"]), kept)
    shutil.rmtree(folder, ignore_errors=True)  # no results of a run before
    folder.mkdir(parents=True)
    (folder / "CTestTestfile.cmake").write_text("\n".join(lines) + "\n")
    return processes


def failed(case):
    return case.find("failure") is not None or case.find("error") is not None


def told(test):
    """A test of ctest, with a failure in it where it did not pass: one that could not start has only a status."""
    if test.get("status") != "run" and not failed(test):
        for skipped in test.findall("skipped"):
            test.remove(skipped)
        ElementTree.SubElement(test, "failure", message=f"ctest says {test.get('status')}")
    return test


def has_report(process):
    """Whether a sanitizer has reported something in what the process said."""
    return re.search(r"(ERROR|WARNING): \w+Sanitizer|runtime error: ", process.findtext("system-out", "")) is not None


def cases_of(process, program, path, count):
    """The cases of a process, and the process itself where they do not tell all of why it failed."""
    try:
        cases = list(ElementTree.parse(path).iter("testcase"))
    except (OSError, ElementTree.ParseError):
        cases = []
    for case in cases:
        case.set("name", f"{program}.{case.get('classname')}.{case.get('name')}")
    if any(failed(case) for case in cases) and not has_report(process):
        return cases
    if not failed(process) and len(cases) < count:
        ElementTree.SubElement(process, "failure", message=f"it ran {len(cases)} of {count} cases")
    return [*cases, process] if failed(process) else cases


def main(preset, labels, jobs, results):
    results = Path(results).resolve()
    folder = results / "processes"
    environment = environment_of(preset)
    processes = write_tests(ROOT / "build" / preset, labels, folder, environment)
    code = subprocess.run(["ctest", "--test-dir", str(folder), "-j", jobs, "--no-tests=error", "--output-on-failure",
                           "--output-junit", str(folder / "ctest.xml")], env=environment).returncode
    suite = ElementTree.Element("testsuite", name=labels)
    for test in ElementTree.parse(folder / "ctest.xml").iter("testcase"):
        known = processes.get(test.get("name"))
        suite.extend(cases_of(told(test), *known) if known else [told(test)])
    ElementTree.ElementTree(suite).write(results / "ctest.xml")
    return int(code != 0 or any(failed(case) for case in suite))


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
