#!/usr/bin/env python3
"""Runs test tiers one after the other and says what happened.

  run_tiers.py run <tier>...        runs tests/tiers/<tier>, keeps its JUnit files and its log; always exits 0
  run_tiers.py summary <tier>...    counts what these tiers left behind; exits 1 unless each ran and passed;
                                    tiers behind "--not-required" may not have run, also of a list before it
  run_tiers.py minutes <tier>...    prints how long a tier may take on this machine
  run_tiers.py skip <tier> <why>    notes why a tier is not run
  run_tiers.py turn                 prints the nightly tier whose turn it is and that fits, or nothing

"@quick", "@required" and "@nightly" stand for the lists below.

A tier is an executable that writes JUnit files (*.xml) into $RESULTS and exits non-zero when something failed. The
counts come from those files, so that a tier that ran nothing is never shown as passed. "busy" is how many processors of
the machine were not idle meanwhile, on average. A tier that cannot run on this
machine writes the reason into $RESULTS/skipped.

GANTRY_TIERS_UNTIL (seconds since 1970) bounds all tiers together. A tier that is running then is ended, and no other
begins. Neither has run, which is a failure unless the tier is not required. A nightly tier has its turn only where it
fits; its last run on this machine tells how long it may take.
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
TIME_LIMIT_MINUTES = {"style": 3, "analysis": 15, "tidy-changed": 10, "changed": 20, "smoke": 5,
                      "unit": 10, "contract": 10, "api": 10, "charts": 10, "rdma": 10, "end-to-end": 15,
                      "end-to-end-thorough": 25, "rdma-full": 25, "asan": 45, "tsan": 45, "fuzz": 20, "soak": 20,
                      "nixl": 10, "vllm": 20, "lmcache": 10, "image": 30, "kubernetes": 60,
                      "asan-end-to-end": 45, "tsan-end-to-end": 45, "fuzz-long": 60, "soak-long": 60, "older-rocm": 10,
                      "arm64": 60, "tidy": 45, "previous": 5, "gpu": 20}

GROUPS = {
    # make test runs these.
    "quick": ["style", "unit", "contract", "api", "charts", "rdma", "end-to-end"],
    # CI runs these besides. Each has to run and to pass.
    "required": ["smoke", "nixl", "vllm", "lmcache", "asan", "tsan", "fuzz", "soak", "image", "end-to-end-thorough", "rdma-full", "kubernetes"],
    # make test-nightly runs these, and CI one of them by turns.
    "nightly": ["older-rocm", "tidy", "asan-end-to-end", "tsan-end-to-end", "arm64", "soak-long", "fuzz-long"],
}

# Tiers that know whether their caches are filled: with the argument "minutes" they print how long they may take.
SAY_THEMSELVES = ("arm64", "image", "kubernetes")

# GiB that a tier may write with its caches empty: without them it does not begin, as without the time.
DISK_GIB = {"image": 4, "kubernetes": 8, "fuzz": 1, "asan": 3, "asan-end-to-end": 3, "tsan": 2, "tsan-end-to-end": 2, "arm64": 3,
            "nixl": 2, "vllm": 8, "lmcache": 1}

# Seconds of each tier's last run to its end, beside the caches that it filled: without the one there are not the others.
CACHE = Path(os.environ.get("GANTRY_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gantry")
LAST_RUNS = CACHE / "tier-seconds.json"
TURN = CACHE / "nightly-turn"  # the nightly tier that CI runs next
SPARE_MINUTES = 1
FIRST_TURN_MINUTES = 15

NOT_RUN = "NOT RUN"

# Limits of what the summary says of failed tests.
REASON_LINES_MAX = 12
REASON_COLUMNS_MAX = 300
REASONS_MAX = 10


def last_runs():
    try:
        return json.loads(LAST_RUNS.read_text())
    except (OSError, ValueError):
        return {}


def minutes(tier):
    """Returns what a tier may take now: half as long again as the last time here, or its limit where it never ran."""
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


def why_not_now(tier, left_s):
    """Returns why a tier does not begin with so many seconds left; empty: it does."""
    free_gib = shutil.disk_usage(ROOT).free / 2**30
    if left_s <= 0:
        return "the time for all tiers was over"
    if free_gib < DISK_GIB.get(tier, 0):
        return f"may write {DISK_GIB[tier]} GiB, {free_gib:.1f} are free on the disk of {ROOT}"
    return ""


def empty_folder(tier):
    folder = RESULTS / tier
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def busy_seconds():
    """Returns the seconds that all processors together were not idle since the machine's start; waiting for a disk is idle."""
    user, nice, system, _, _, irq, softirq = map(int, Path("/proc/stat").read_text().split(maxsplit=8)[1:8])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def leave_result(tier, status, note, seconds, busy=0.0):
    """Writes what the summary reads; the status None says that the tier did not run."""
    said = {"status": status, "note": note, "seconds": seconds, "busy": busy}
    (RESULTS / tier / "result.json").write_text(json.dumps(said))


def run(tier):
    """Runs one tier, its output going to the terminal and to the tier's log; leaves result.json behind."""
    folder = empty_folder(tier)
    print(f"\n== {tier} ==", flush=True)
    start, busy = time.monotonic(), busy_seconds()
    limit_s = end_s = 60 * TIME_LIMIT_MINUTES[tier]
    if until := os.environ.get("GANTRY_TIERS_UNTIL"):
        left_s = int(until) - time.time()
        if note := why_not_now(tier, left_s):
            print(f"not run: {note}", flush=True)
            leave_result(tier, None, note, 0.0)
            return
        end_s = min(limit_s, left_s)
    # tee is outside of the tier's process group: it prints the last words of a tier that is ended.
    tee = subprocess.Popen(["tee", folder / "log"], stdin=subprocess.PIPE)
    process = subprocess.Popen([ROOT / "tests" / "tiers" / tier], cwd=ROOT, stdin=subprocess.DEVNULL,
                               stdout=tee.stdin, stderr=subprocess.STDOUT, start_new_session=True,
                               env={**os.environ, "RESULTS": str(folder)})
    note = ""
    try:
        status = process.wait(end_s)
    except subprocess.TimeoutExpired:
        status, note = -1, f"ended after its limit of {limit_s // 60} minutes"
        if end_s < limit_s:
            status, note = None, f"ended after {end_s / 60:.0f} minutes, as the time for all tiers was over"
    except KeyboardInterrupt:
        status, note = -1, "interrupted"
    try:
        os.killpg(process.pid, signal.SIGKILL)  # whatever the tier left running
    except ProcessLookupError:
        pass
    process.wait()
    tee.stdin.close()
    try:
        tee.wait(10)
    except subprocess.TimeoutExpired:  # a process that left the group holds the tier's output
        tee.kill()
        tee.wait()
    seconds = time.monotonic() - start
    leave_result(tier, status, note, seconds, busy_seconds() - busy)
    if status == 0 and not (folder / "skipped").exists():
        remember(tier, seconds)
    if note == "interrupted":
        sys.exit(130)


def why_skipped(case):
    """The reason: pytest keeps it in the attribute, GoogleTest prints it after a line "file:1: Skipped".

    GoogleTest's own file has it in the attribute, after a line "file:1".
    """
    said = re.search(r": Skipped\n(.+)", case.findtext("system-out", ""))
    message = case.find("skipped").get("message", "") if case.find("skipped") is not None else ""
    return said.group(1) if said else re.sub(r"^\S+:\d+\n", "", message)


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
    """Returns one row of the summary: outcome, counts, what to tell about it, seconds, and those of busy processors."""
    folder = RESULTS / tier
    try:
        result = json.loads((folder / "result.json").read_text())
        passed, failed, skipped = count(folder)
    except (OSError, ValueError, ElementTree.ParseError) as error:
        return "FAILED", 0, [f"{tier} (did not run to its end: {error})"], [], 0.0, 0.0
    times = result["seconds"], result["busy"]
    if result["status"] is None and not failed:
        return NOT_RUN, passed, [], [result["note"]], *times
    if result["status"] == 0 and (folder / "skipped").exists():
        return NOT_RUN, 0, [], [(folder / "skipped").read_text().strip()], *times
    if result["status"] != 0 and not failed:
        why = f"{tier} ({result['note'] or 'exit status %d' % result['status']}, see {folder / 'log'})"
        failed = ["\n    ".join([why, *build_errors(folder / "log")])]
    if passed + len(failed) == 0:
        failed = [f"{tier} (ran no test)"]
    return "FAILED" if failed else "passed", passed, failed, skipped, *times


def summarize(required, others):
    rows = {tier: judge(tier) for tier in [*required, *others]}
    for tier, (outcome, _, failed, skipped, *_) in rows.items():
        for name in skipped if outcome != NOT_RUN else []:
            print(f"skipped in {tier}: {name}")
    for tier, (_, _, failed, *_) in rows.items():
        for number, name in enumerate(failed):
            print(f"failed in {tier}: {name if number < REASONS_MAX else name.splitlines()[0]}")
    # Last what the reader of a long log's end has to know.
    print(f"\n{'tier':<20} {'outcome':<9} {'passed':>7} {'failed':>7} {'skipped':>8} {'minutes':>8} {'busy':>5}")
    for tier, (outcome, passed, failed, skipped, seconds, busy) in rows.items():
        count_skipped = len(skipped) if outcome != NOT_RUN else 0
        print(f"{tier:<20} {outcome:<9} {passed:>7} {len(failed):>7} {count_skipped:>8} {seconds / 60:>8.1f} {busy / seconds if seconds else 0:>5.1f}")
    missing = [tier for tier in required if rows[tier][0] == NOT_RUN]
    for tier, (outcome, _, _, why, *_) in rows.items():
        if outcome == NOT_RUN:
            print(f"NOT RUN: {tier}{'' if tier in missing else ', which is not required here'}: {'; '.join(why)}")
    all_passed = sum(row[1] for row in rows.values())
    all_failed = sum(len(row[2]) for row in rows.values())
    print(f"{all_passed} passed, {all_failed} failed" + (f", {len(missing)} required tiers not run: {' '.join(missing)}" if missing else ""))
    return 0 if all_failed == 0 and not missing and all_passed > 0 else 1


def turn():
    """Returns the first nightly tier from the remembered one on that fits, and remembers the one behind it.

    One that never ran here to its end fits into a quarter of an hour: what it compiles is kept, though it may be ended.
    """
    tiers = GROUPS["nightly"]
    remembered = TURN.read_text().strip() if TURN.exists() else ""
    first = tiers.index(remembered) if remembered in tiers else 0
    left_s = int(os.environ.get("GANTRY_TIERS_UNTIL", 2**40)) - time.time()
    for tier in tiers[first:] + tiers[:first]:
        may_take = minutes(tier) if tier in last_runs() else FIRST_TURN_MINUTES
        if 60 * may_take <= left_s and not why_not_now(tier, left_s):
            CACHE.mkdir(parents=True, exist_ok=True)
            TURN.write_text(tiers[(tiers.index(tier) + 1) % len(tiers)] + "\n")
            return tier
    return ""


def expand(words):
    """Returns the tiers that the words of a command line name."""
    tiers = [tier for word in words for tier in (GROUPS.get(word[1:], [word]) if word.startswith("@") else [word])]
    if unknown := [tier for tier in tiers if tier not in TIME_LIMIT_MINUTES]:
        sys.exit(f"no such tier: {' '.join(unknown)}; there are {' '.join(TIME_LIMIT_MINUTES)}")
    return tiers


def main(arguments):
    if arguments == ["turn"]:
        print(turn())
        return
    if arguments[:1] == ["skip"] and len(arguments) == 3:
        [tier] = expand(arguments[1:2])
        empty_folder(tier)
        leave_result(tier, None, arguments[2], 0.0)
        return
    if len(arguments) < 2 or arguments[0] not in ("run", "summary", "minutes"):
        sys.exit(__doc__)
    command, words = arguments[0], arguments[1:]
    if command == "summary":
        border = words.index("--not-required") if "--not-required" in words else len(words)
        others = expand(words[border + 1:])
        sys.exit(summarize([tier for tier in expand(words[:border]) if tier not in others], others))
    for tier in expand(words):
        run(tier) if command == "run" else print(minutes(tier))


if __name__ == "__main__":
    main(sys.argv[1:])
