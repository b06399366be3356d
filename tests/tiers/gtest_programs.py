"""The gtest cases that ctest lists, put together again by the programs that they are in.

ctest starts a process for each case. Where a start costs more than a case does (under a sanitizer, under emulation),
a process that runs many of them saves most of the time.
"""

import json
import subprocess
from dataclasses import dataclass, field

FILTER = "--gtest_filter="


@dataclass
class Program:
    """Cases of one program that have the same settings."""

    command: tuple       # without its filter
    properties: dict     # ctest's, of each case
    cases: list = field(default_factory=list)  # "Suite.Case" in the program's order


def listed_tests(build, labels, environment=None):
    """ctest's tests of a build folder whose label matches the regular expression, as its JSON has them.

    ctest asks the programs for their cases then, in this environment.
    """
    said = subprocess.run(["ctest", "--test-dir", str(build), "-L", labels, "--show-only=json-v1"],
                          capture_output=True, text=True, check=True, env=environment).stdout
    return json.loads(said)["tests"]


def properties_of(test):
    return {each["name"]: each["value"] for each in test["properties"]}


def case_of(test):
    """The case that this test runs alone; nothing when it runs another thing."""
    chosen = next((word[len(FILTER):] for word in test.get("command", []) if word.startswith(FILTER)), "")
    return "" if chosen.startswith("-") else chosen


def programs_of(tests):
    """The programs whose cases are tests of their own, and the tests that are no such case."""
    programs, others = {}, []
    for test in tests:
        case, properties = case_of(test), properties_of(test)
        if not case:
            others.append(test)
            continue
        command = tuple(word for word in test["command"] if not word.startswith((FILTER, "--gtest_also_run")))
        key = command, json.dumps(properties, sort_keys=True)
        programs.setdefault(key, Program(command, properties)).cases.append(case)
    return list(programs.values()), others


def quoted(word):
    return f"[==[{word}]==]"


def test_lines(name, command, properties):
    """The lines for a test in a CTestTestfile.cmake."""
    lines = [f"add_test({' '.join(map(quoted, [name, *command]))})"]
    for key, value in properties.items():
        text = ";".join(value) if isinstance(value, list) else str(value).upper() if isinstance(value, bool) else str(value)
        lines.append(f"set_tests_properties({quoted(name)} PROPERTIES {key} {quoted(text)})")
    return lines
