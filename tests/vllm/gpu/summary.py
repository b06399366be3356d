"""Prints one line for each run and writes summary.json: summary.py RESULTS RUN... Exits with 1 unless every case passed.

A case that needs more GPUs than there are is no failure; its reason is shown.
"""

import json
import re
import statistics
import sys
import xml.etree.ElementTree as xml
from pathlib import Path

_READ = re.compile(r"request \S+: (\w+), (\d+) bytes by (\w+) in (\d+) us")
_REGISTERED = re.compile(r"the KV cache is registered as workload \S+ of the sidecar \S+: (.*)")
_GPUS = "needs two GPUs"  # of the reasons for which a case is skipped
_TAIL = 3000  # characters of a log that are shown after a failure


def cases_of(path):
    """(number of cases that passed, names of the others, why cases were skipped that need more GPUs)."""
    if not path.exists():
        return 0, ["no case: the run did not end"], []
    passed, others, reasons = 0, [], set()
    for case in xml.parse(path).iter("testcase"):
        skipped = case.find("skipped")
        if skipped is not None and _GPUS in skipped.get("message", ""):
            reasons.add(skipped.get("message"))
        elif skipped is None and case.find("failure") is None and case.find("error") is None:
            passed += 1
        else:
            others.append(case.get("name"))
    return passed, others if passed or others or reasons else ["no case"], sorted(reasons)


def reads_of(log):
    """By path: how many reads succeeded, their bytes, and the median of their microseconds."""
    reads = {}
    for state, length, path, duration in _READ.findall(log):
        if state == "succeeded":
            reads.setdefault(path, []).append((int(length), int(duration)))
    return {path: {"reads": len(each), "bytes": sum(length for length, _ in each),
                   "median_us": statistics.median(duration for _, duration in each)} for path, each in reads.items()}


def run_of(results, name):
    passed, others, skipped = cases_of(results / f"{name}.xml")
    logs = {path.name: path.read_text(errors="replace") for path in (results / name).glob("engine-*.log")}
    layouts = sorted({layout for log in logs.values() for layout in _REGISTERED.findall(log)})
    return {"passed": passed, "not_passed": others, "skipped": skipped, "cache": layouts, "reads": reads_of("".join(logs.values()))}


def main():
    results, names = Path(sys.argv[1]), sys.argv[2:]
    runs = {name: run_of(results, name) for name in names}
    for name, run in runs.items():
        log = results / f"{name}.log"
        if run["not_passed"] and log.exists():
            print(f"--- {name}\n{log.read_text(errors='replace')[-_TAIL:]}")
    for name, run in runs.items():
        print("RESULT", name, json.dumps(run))
    (results / "summary.json").write_text(json.dumps(runs, indent=1))
    sys.exit(any(run["not_passed"] for run in runs.values()))


if __name__ == "__main__":
    main()
