"""tests/gpu/run, the command for machines with GPUs: that it runs for each vendor, and what it says where something is missing.

Over the fakes, of which it runs a part: "make test" runs all of that.
"""

import os
import re
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from conftest import BIN_DIR, ROOT
from workloads import LIB_DIR

RUN_SECONDS = 400  # a pytest for each file with GPUs, on a machine that does much else
pytestmark = pytest.mark.timeout(RUN_SECONDS + 20)
FAKES = {"nvidia": LIB_DIR.parent / "fake_gpu", "amd": LIB_DIR.parent / "fake_gpu_amd" / "rocm7"}
FEW = "GpuDriverContract.DevicesAreNamedByUuidsThatDiffer:GpuKernelContract.ItemsOfVeryDifferentLengthShareALaunch"
# A processor, a GPU, a partition of one, one without an id of its own, and one that this container may not look at.
KFD = {"0": ("0", "", "domain 0\nlocation_id 0\nunique_id 0\n"),
       "1": ("4711", "gfx942", "simd_count 1216\nlocation_id 6912\ndomain 0\nunique_id 11474046783100023813\n"),
       "2": ("4712", "gfx942", "location_id 6914\ndomain 1\nunique_id 66\n"),
       "3": ("4713", "gfx1030", "location_id 17160\ndomain 0\nunique_id 0\n"),
       "4": ("4714", "gfx942", None)}


def run(folder, *words, **environment):
    """Its exit status and what it printed; its results are in the folder."""
    process = subprocess.run([ROOT / "tests" / "gpu" / "run", *map(str, words)], stdin=subprocess.DEVNULL, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=RUN_SECONDS,
                             env=os.environ | {"RESULTS": str(folder / "results")} | environment)
    return process.returncode, process.stdout


def passed_tests(folder, program):
    """The names of the tests that ran and passed."""
    cases = ElementTree.parse(folder / "results" / f"{program}.xml").iter("testcase")
    return {case.get("name") for case in cases if case.get("status") != "notrun" and
            not any(case.find(what) is not None for what in ("failure", "error", "skipped"))}


@pytest.mark.parametrize("vendor", FAKES)
def test_all_parts_run_over_the_fake_of_a_vendor(folder, vendor):
    code, said = run(folder, "--vendor", vendor, "--fake", FAKES[vendor], "--filter", FEW, "-k",
                     f"test_two_views_of_one_allocation_are_mapped_once_and_one_outlives_the_other and {vendor}", BIN_DIR)
    assert code == 0, said
    parts = re.findall(r"tests/gpu/run: (\w+) (passed|left out) after \d+ s", said)
    assert [part for part, _ in parts] == ["headers", "contract", "sanitizer", "workloads"], said
    assert [outcome for _, outcome in parts][1:] == ["passed", "left out", "passed"], said
    assert passed_tests(folder, "gpu_driver_contract") == {name.partition(".")[2] for name in FEW.split(":")}
    assert passed_tests(folder, "end-to-end") == {
        f"test_two_views_of_one_allocation_are_mapped_once_and_one_outlives_the_other[{vendor}]"}
    fakes_uuid = re.search(r"GPU-[0-9a-f-]+", said)[0]
    assert len(fakes_uuid) == {"nvidia": 40, "amd": 20}[vendor], "the other vendor's library was loaded"


def test_workloads_of_several_files_run_at_a_time(folder):
    words = ("--vendor", "nvidia", "--fake", FAKES["nvidia"], "--only", "workloads", "--jobs", 2)
    code, said = run(folder, *words, "-k", "test_two_views_of_one_allocation or test_a_worker_that_copies", BIN_DIR)
    assert code == 0 and "workloads passed after" in said, said
    ended = re.findall(r"^(test_\w+): =+ \d+ passed", said, re.MULTILINE)
    assert ended[0] == "test_gpu_kills" and sorted(ended) == ["test_gpu_amd", "test_gpu_kills", "test_gpu_memory"], said
    assert len(passed_tests(folder, "test_gpu_memory")) == 2


@pytest.mark.parametrize(("name", "options", "shown"), [("no_test_has_this_name", "", "deselected"),
                                                        ("test_two_views_of_one_allocation", "--timeout=0.1", "(>0.1s)")])
def test_where_one_file_of_several_fails_or_has_no_test_all_fail(folder, name, options, shown):
    code, said = run(folder, "--vendor", "nvidia", "--fake", FAKES["nvidia"], "--only", "workloads", "--jobs", 2, "-k", name,
                     BIN_DIR, PYTEST_ADDOPTS=options)
    assert code == 1 and "workloads failed after" in said and shown in said, said


def test_a_part_that_fails_fails_all_and_the_others_still_run(folder):
    code, said = run(folder, "--vendor", "amd", "--fake", FAKES["amd"], "--only", "contract", "--only", "sanitizer", "--filter",
                     FEW, BIN_DIR, GANTRY_FAKE_GPU_FAIL="hipMalloc=2")
    assert code == 1, said
    assert "gpu_driver_contract failed" in said and "contract failed after" in said and "sanitizer left out after" in said, said
    assert "headers" not in said and "workloads" not in said


@pytest.mark.skipif(shutil.which("compute-sanitizer") or list(Path("/usr/local").glob("cuda*")), reason="it is installed here")
def test_without_the_sanitizer_it_fails_where_that_is_wanted(folder):
    words = ("--vendor", "nvidia", "--fake", FAKES["nvidia"], "--only", "sanitizer", BIN_DIR)
    assert run(folder, *words)[0] == 0
    code, said = run(folder, *words, GANTRY_GPU_SANITIZER="required")
    assert code == 1 and "no compute-sanitizer in PATH" in said and "sanitizer failed after" in said, said


def test_without_programs_it_says_how_to_bring_them(folder):
    code, said = run(folder, "--vendor", "amd", "--fake", FAKES["amd"], folder)
    assert code == 1 and f"{folder} has not all of: gpu_driver_contract" in said and "tests/gpu/bundle FOLDER" in said, said


@pytest.mark.skipif(Path("/dev/kfd").exists(), reason="there may be GPUs of AMD here")
def test_without_a_gpu_nothing_runs(folder):
    code, said = run(folder, "--vendor", "amd", BIN_DIR)
    assert code == 1 and "no GPU of amd here" in said and "passed" not in said, said


@pytest.mark.parametrize("words", [("--vendor", "intel"), ("--only", "everything"), ("--jobs", "0"), ("--vendor",), ("--faster",), ("a", "b")])
def test_what_it_does_not_know_is_refused(folder, words):
    code, said = run(folder, *words)
    assert code == 2 and "usage: tests/gpu/run [--vendor nvidia|amd]" in said, said


def test_gpus_of_amd_are_read_from_the_kernel(folder):
    for node, (gpu_id, name, properties) in KFD.items():
        place = folder / "sys/class/kfd/kfd/topology/nodes" / node
        place.mkdir(parents=True)
        (place / "gpu_id").write_text(gpu_id + "\n")
        (place / "name").write_text(name + "\n")
        if properties is not None:
            (place / "properties").write_text(properties)
    listed = subprocess.run([ROOT / "tests" / "gpu" / "gpus", "amd", folder], capture_output=True, text=True)
    assert listed.returncode == 0, listed.stderr
    assert listed.stdout.splitlines() == ["GPU-9f3c00c1d2e3f405 0000:1b:00.0 gfx942", "GPU-0000000000000042.2 0001:1b:00.2 gfx942",
                                          "GPU-0000:43:01.0 0000:43:01.0 gfx1030"]
    shutil.rmtree(folder / "sys")
    assert subprocess.run([ROOT / "tests" / "gpu" / "gpus", "amd", folder], capture_output=True).returncode == 1
