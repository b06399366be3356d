"""What is cross-compiled for arm64 is for arm64, finds its libraries in Debian's packages of it, and runs, in qemu's user mode.

Needs the build of the preset arm64. Without qemu-aarch64-static the programs are looked at and not run.
"""

import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ["GANTRY_BIN_DIR"]).parent
SYSROOT = BUILD / "sysroot"
LIBRARY_FOLDERS = [BUILD / "lib", SYSROOT / "usr/lib/aarch64-linux-gnu"]
PROGRAMS = [BUILD / "bin" / name for name in ("gantry-sidecar", "gantry-device-plugin", "gantryctl")]
LIBRARY = BUILD / "lib" / "libgantry.so"
QEMU = shutil.which("qemu-aarch64-static")
VERSION = re.search(r"project\(gantry VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
READY_SECONDS = 60
# Copy workers are started from the sidecar's own file: the kernel has to know what runs it. In namespaces of the process alone,
# which Linux can since 6.7.
KNOWN_TO_THE_KERNEL = r"""
mount -t binfmt_misc none /proc/sys/fs/binfmt_misc || exit 125
magic='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
printf '%s' ":arm64:M::$magic:$mask:$0:" >/proc/sys/fs/binfmt_misc/register || exit
exec "$@"
"""

runs = pytest.mark.skipif(QEMU is None, reason="no qemu-aarch64-static: run tools/setup arm64")
each_file = pytest.mark.parametrize("path", [*PROGRAMS, LIBRARY], ids=lambda path: path.name)
each_program = pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.name)


def readelf(option, path):
    return subprocess.run(["readelf", "--wide", option, path], capture_output=True, text=True, check=True).stdout


def words(program, *arguments):
    return [QEMU, "-L", str(SYSROOT), str(program), *arguments]


def said_by(program, *arguments):
    run = subprocess.run(words(program, *arguments), capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    return run.stdout


def needed(path):
    return re.findall(r"\(NEEDED\).*\[(.+)\]", readelf("-d", path))


def library(name):
    return next((folder / name for folder in LIBRARY_FOLDERS if (folder / name).exists()), None)


def needed_by_all_of(path):
    """The libraries that the loader would load for a file, and theirs: {name: path, or None where there is none}."""
    found, names = {}, needed(path)
    while names:
        name = names.pop()
        if name not in found:
            found[name] = library(name)
            names += needed(found[name]) if found[name] else []
    return found


@each_file
def test_it_is_for_arm64(path):
    header = readelf("-h", path)
    assert "Machine:                           AArch64" in header and "ELF64" in header


@each_file
def test_every_library_that_it_names_is_there_and_for_arm64(path):
    libraries = needed_by_all_of(path)
    assert {"libc.so.6", *(["libstdc++.so.6"] if path in PROGRAMS else [])} <= set(libraries)
    assert not [name for name, found in libraries.items() if found is None]
    assert not [name for name, found in libraries.items() if "AArch64" not in readelf("-h", found)]


@each_file
def test_its_symbols_have_versions_that_its_libraries_have(path):
    """A host's header or library beside the sysroot's would show here: another release has other versions of symbols."""
    asked = dict(re.findall(r"File: (\S+)\s+Cnt: \d+\n((?:.*Name: .*\n?)+)", re.sub(r"0x[0-9a-f]+:", "", readelf("-V", path))))
    assert "libc.so.6" in asked
    for name, versions in asked.items():
        has = readelf("-V", library(name))
        assert not [each for each in re.findall(r"Name: (\S+)", versions) if f"Name: {each}" not in has], name


def test_the_library_gives_the_symbols_of_the_header():
    text = "".join(path.read_text() for path in (ROOT / "client/include").glob("*.h"))
    exported = set(re.findall(r" FUNC +GLOBAL +DEFAULT +\d+ (gantry_\w+)", readelf("--dyn-syms", LIBRARY)))
    assert exported == set(re.findall(r"^GANTRY_[^;]*?\b(gantry_\w+)\(", text, re.MULTILINE))


@runs
@each_program
def test_it_runs_and_says_its_version(path):
    assert VERSION in said_by(path, "--version")


@runs
def test_the_sidecar_reads_its_settings():
    assert "on-arm64" in said_by(PROGRAMS[0], "--print-config", "--name=on-arm64")


def as_its_own(program, *arguments):
    """The command line of a program that starts itself anew."""
    return ["env", f"QEMU_LD_PREFIX={SYSROOT}", "unshare", "--user", "--map-root-user", "--mount", "sh", "-c", KNOWN_TO_THE_KERNEL, QEMU,
            str(program), *arguments]


@pytest.fixture
def may_start_itself():
    done = subprocess.run(as_its_own("true"), capture_output=True, text=True)
    if done.returncode == 125:
        pytest.skip(f"no binfmt_misc in a namespace of users, which Linux has since 6.7: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr


@pytest.fixture
def run_dir():
    folder = Path(tempfile.mkdtemp(prefix="gantry-", dir="/tmp"))  # short: sockets are in it
    yield folder
    shutil.rmtree(folder)


@runs
def test_the_sidecar_serves_gantryctl(may_start_itself, run_dir):
    sidecar = subprocess.Popen(as_its_own(PROGRAMS[0], "--name=on-arm64", f"--run-dir={run_dir}/run", "--gpu-workers=0"),
                               stderr=subprocess.PIPE, text=True)
    try:
        socket = run_dir / "run/api.sock"
        deadline = time.monotonic() + READY_SECONDS
        while not socket.exists() and sidecar.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        status = json.loads(said_by(PROGRAMS[2], f"--socket={socket}", "status", "--json"))
        assert status["name"] == "on-arm64" and status["version"] == VERSION
        sidecar.terminate()
        assert sidecar.wait(READY_SECONDS) == 0
    finally:
        sidecar.kill()
        sidecar.communicate()
