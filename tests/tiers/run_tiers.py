#!/usr/bin/env python3
"""Runs test tiers one after the other and says what happened.

  run_tiers.py run <tier>...        runs tests/tiers/<tier>, keeps its JUnit files and its log; always exits 0
  run_tiers.py summary <tier>...    counts what these tiers left behind; exits 1 unless everything passed

A tier is an executable that writes JUnit files (*.xml) into $RESULTS and exits non-zero when something failed. The
counts come from those files, so that a tier that ran nothing is never shown as passed. With GANTRY_TIERS_UNTIL (seconds
since 1970) in the environment a tier that may take longer is left out, and one that does take longer is ended; the
summary says so and does not count it as a failure. How long a tier may take is known from its last run on this machine
("run_tiers.py minutes <tier>" prints it); of the slow ones it is known what they may write, and one that the disk has no
room for is left out likewise. A tier that cannot run on this machine writes why into $RESULTS/skipped; one of which a
part is worth having ends by itself before $GANTRY_TIER_UNTIL, and writes into $RESULTS/partly what it left out.
"""

import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "build" / "test-results"

# Minutes after which a tier is ended and counted as failed (two cores, empty compiler cache).
TIME_LIMIT_MINUTES = {"style": 3, "unit": 10, "contract": 10, "api": 10, "charts": 10, "end-to-end": 30, "rdma": 35,
                      "asan": 40, "asan-end-to-end": 45, "tsan": 40, "tsan-end-to-end": 45,
                      "fuzz": 20, "soak": 20, "tidy": 30, "previous": 5, "gpu": 20, "arm64": 60,
                      "image": 30, "kubernetes": 60}

# Tiers that know whether their caches are filled: with the argument "minutes" they print how long they may take.
SAY_THEMSELVES = ("arm64", "image", "kubernetes")

# Tiers that do what fits: they begin with less time than they may take, if it is this much.
IN_PARTS = ("asan", "tsan")
PART_MINUTES_MIN = 6

# GiB that a tier may write with its caches empty: without them it is left out, as without the time.
DISK_GIB = {"image": 4, "kubernetes": 8, "fuzz": 1, "asan": 3, "asan-end-to-end": 3, "tsan": 2, "tsan-end-to-end": 2, "arm64": 3}

# Seconds of each tier's last run to its end, beside the caches that it filled: without the one there are not the others.
CACHE = Path(os.environ.get("GANTRY_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gantry")
LAST_RUNS = CACHE / "tier-seconds.json"
SPARE_MINUTES = 1

# Of each failed test's reason; and how many of a tier's failed tests have theirs in the summary.
REASON_LINES_MAX = 12
REASON_COLUMNS_MAX = 300
REASONS_MAX = 10

# Tiers for which no test has been written so far. Elsewhere finding no test is a failure.
HAS_NO_TESTS_YET = set()


def last_runs():
    try:
        return json.loads(LAST_RUNS.read_text())
    except (OSError, ValueError):
        return {}


def minutes(tier):
    """What a tier may take now: half as long again as the last time here; where it never ran and no cache is filled, its limit."""
    limit = TIME_LIMIT_MINUTES[tier]
    if tier in SAY_THEMSELVES:
        said = subprocess.run([ROOT / "tests" / "tiers" / tier, "minutes"], cwd=ROOT, capture_output=True, text=True, check=True)
        return min(limit, int(said.stdout))
    seconds = last_runs().get(tier)
    return limit if seconds is None else min(limit, SPARE_MINUTES + math.ceil(1.5 * seconds / 60))


def remember(tier, seconds):
    CACHE.mkdir(parents=True, exist_ok=True)
    new = LAST_RUNS.with_suffix(f".{os.getpid()}")
    new.write_text(json.dumps(last_runs() | {tier: round(seconds, 1)}, indent=1))
    new.rename(LAST_RUNS)


def run(tier):
    """Runs one tier, its output going to the terminal and to the tier's log; leaves result.json behind."""
    folder = RESULTS / tier
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    print(f"\n== {tier} ==", flush=True)
    start = time.monotonic()
    limit_s = end_s = 60 * TIME_LIMIT_MINUTES[tier]
    if until := os.environ.get("GANTRY_TIERS_UNTIL"):
        left_s, may_take = int(until) - time.time(), minutes(tier)
        if tier in IN_PARTS:
            may_take = min(may_take, PART_MINUTES_MIN)
        free_gib = shutil.disk_usage(ROOT).free / 2**30
        note = ""
        if left_s < 60 * may_take:
            note = f"may take {may_take} minutes, {max(0, left_s) / 60:.0f} were left"
        elif free_gib < DISK_GIB.get(tier, 0):
            note = f"may write {DISK_GIB[tier]} GiB, {free_gib:.1f} are free on the disk of {ROOT}"
        if note:
            print(f"left out: {note}", flush=True)
            (folder / "result.json").write_text(json.dumps({"status": None, "note": note, "seconds": 0.0}))
            return
        end_s = min(limit_s, left_s)
    # tee is outside of the tier's process group, so that it prints what a tier says that is ended for being late.
    tee = subprocess.Popen(["tee", folder / "log"], stdin=subprocess.PIPE)
    process = subprocess.Popen([ROOT / "tests" / "tiers" / tier], cwd=ROOT, stdin=subprocess.DEVNULL,
                               stdout=tee.stdin, stderr=subprocess.STDOUT, start_new_session=True,
                               env={**os.environ, "RESULTS": str(folder), "GANTRY_TIER_UNTIL": str(int(time.time() + end_s))})
    note = ""
    try:
        status = process.wait(end_s)
    except subprocess.TimeoutExpired:
        status, note = -1, f"ended after its limit of {limit_s // 60} minutes"
        if end_s < limit_s:
            status, note = None, f"ended after {end_s / 60:.0f} minutes, as the time for all tiers was over; its build is kept"
    except KeyboardInterrupt:
        status, note = -1, "interrupted"
    try:
        os.killpg(process.pid, signal.SIGKILL)  # whatever the tier left running
    except ProcessLookupError:
        pass
    process.wait()
    tee.stdin.close()
    tee.wait()
    seconds = time.monotonic() - start
    (folder / "result.json").write_text(json.dumps({"status": status, "note": note, "seconds": seconds}))
    if status == 0 and not (folder / "skipped").exists() and not (folder / "partly").exists():
        remember(tier, seconds)
    if note == "interrupted":
        sys.exit(130)


def why_skipped(case):
    """What the test said: pytest keeps it in the attribute, GoogleTest prints it after a line "file:1: Skipped"."""
    said = re.search(r": Skipped\n(.+)", case.findtext("system-out", ""))
    return said.group(1) if said else case.find("skipped").get("message", "") if case.find("skipped") is not None else ""


def why_failed(case):
    """The lines that say it: pytest marks them in the failure's text, GoogleTest's follow "file:1: Failure" in the output."""
    problem = case.find("failure") if case.find("failure") is not None else case.find("error")
    text = (problem.text or problem.get("message") or "").splitlines()
    said = case.findtext("system-out", "").splitlines()
    first = next((number for number, line in enumerate(said) if re.search(r": Failure$|ERROR: |WARNING: ", line)), None)
    lines = [line for line in text if re.match(r"E  |\S+:\d+: ", line)] or (said[first:] if first is not None else text or said)
    half = REASON_LINES_MAX // 2
    if len(lines) > REASON_LINES_MAX:
        lines = [*lines[:half], "...", *lines[-half:]]
    return [line[:REASON_COLUMNS_MAX] for line in lines]


def count(folder):
    """Returns (passed, failed test names with reasons, skipped test names with reasons) of the JUnit files in a folder."""
    passed, failed, skipped = 0, [], []
    for path in sorted(folder.glob("*.xml")):
        for case in ElementTree.parse(path).iter("testcase"):
            name = case.get("name", "?")
            reason = case.find("skipped")
            if case.find("failure") is not None or case.find("error") is not None:
                failed.append("\n    ".join([name, *why_failed(case)]))
            elif reason is not None or case.get("status") in ("notrun", "disabled"):
                skipped.append(f"{name}: {why_skipped(case)}")
            else:
                passed += 1
    return passed, failed, skipped


def build_errors(log):
    """What a compiler or a linker said in a tier's log: a tier that was not built leaves no JUnit file behind."""
    try:
        lines = log.read_text(errors="replace").splitlines()
    except OSError:
        return []
    said = [line for line in lines if re.search(r"^FAILED: | error: |: undefined reference|ninja: error|No space left", line)]
    return [line[:REASON_COLUMNS_MAX] for line in said[:REASON_LINES_MAX]]


def judge(tier):
    """Returns one row of the summary: outcome, counts, seconds, and what to tell about it."""
    folder = RESULTS / tier
    try:
        result = json.loads((folder / "result.json").read_text())
        passed, failed, skipped = count(folder)
    except (OSError, ValueError, ElementTree.ParseError) as error:
        return "FAILED", 0, [f"{tier} (did not run to its end: {error})"], [], 0.0
    if result["status"] is None and not failed:
        return "left out", passed, [], [result["note"]], result["seconds"]
    if result["status"] == 0 and (folder / "skipped").exists():
        return "skipped", 0, [], [(folder / "skipped").read_text().strip()], result["seconds"]
    if result["status"] == 0 and not failed and (folder / "partly").exists():
        return "partly" if passed else "left out", passed, [], [(folder / "partly").read_text().strip(), *skipped], result["seconds"]
    if result["status"] != 0 and not failed:
        why = f"{tier} ({result['note'] or 'exit status %d' % result['status']}, see {folder / 'log'})"
        failed = ["\n    ".join([why, *build_errors(folder / "log")])]
    if passed + len(failed) == 0 and not (tier in HAS_NO_TESTS_YET and not skipped):
        failed = [f"{tier} (ran no test)"]
    outcome = "FAILED" if failed else "passed" if passed else "no tests yet"
    return outcome, passed, failed, skipped, result["seconds"]


def summarize(tiers):
    rows = {tier: judge(tier) for tier in tiers}
    print(f"\n{'tier':<16} {'outcome':<13} {'passed':>7} {'failed':>7} {'skipped':>8} {'seconds':>8}")
    for tier, (outcome, passed, failed, skipped, seconds) in rows.items():
        print(f"{tier:<16} {outcome:<13} {passed:>7} {len(failed):>7} {len(skipped):>8} {seconds:>8.1f}")
    for tier, (_, _, _, skipped, _) in rows.items():
        for name in skipped:
            print(f"skipped in {tier}: {name}")
    # Last, and with the reason: who reads the end of a long log learns what to do.
    for tier, (_, _, failed, _, _) in rows.items():
        for number, name in enumerate(failed):
            print(f"failed in {tier}: {name if number < REASONS_MAX else name.splitlines()[0]}")
    all_passed = sum(row[1] for row in rows.values())
    all_failed = sum(len(row[2]) for row in rows.values())
    print(f"\n{all_passed} passed, {all_failed} failed")
    return 0 if all_failed == 0 and all_passed > 0 else 1


def main(arguments):
    if len(arguments) < 2 or arguments[0] not in ("run", "summary", "minutes"):
        sys.exit(__doc__)
    unknown = [tier for tier in arguments[1:] if tier not in TIME_LIMIT_MINUTES]
    if unknown:
        sys.exit(f"no such tier: {' '.join(unknown)}; there are {' '.join(TIME_LIMIT_MINUTES)}")
    if arguments[0] == "summary":
        sys.exit(summarize(arguments[1:]))
    for tier in arguments[1:]:
        run(tier) if arguments[0] == "run" else print(minutes(tier))


if __name__ == "__main__":
    main(sys.argv[1:])
