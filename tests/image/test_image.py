"""What is in Gantry's image and what is not; its programs run in it as they do in a pod. Needs root, and tools/image before,
which also makes the variants: those that are not there are skipped, unless they are named by GANTRY_IMAGE_VARIANTS."""

import hashlib
import json
import os
import platform
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from image_archive import ImageArchive  # noqa: E402

IMAGES = ROOT / "build" / "images"
# Bytes of the whole image: variants with more in them than the programs and what they load have a bound of their own.
BYTES_MAX = {"gantry": 60 * 10**6, "gantry-rocm": 320 * 10**6, "gantry-arm64": 60 * 10**6}
WANTED = {"gantry", *os.environ.get("GANTRY_IMAGE_VARIANTS", "").split()}
PROGRAMS = ("gantry-sidecar", "gantry-device-plugin", "gantryctl")
USER = 65532
READY_SECONDS = 20
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@pytest.fixture(scope="session", params=BYTES_MAX)
def variant(request):
    return request.param


@pytest.fixture(scope="session")
def archive(variant):
    path = Path(os.environ.get("GANTRY_IMAGE", IMAGES / "gantry.tar")) if variant == "gantry" else IMAGES / f"{variant}.tar"
    if not path.exists() and variant not in WANTED:
        pytest.skip(f"there is no {path.relative_to(ROOT)}: tools/image makes it with --gpu rocm or --arch arm64")
    assert path.exists(), f"there is no {path}: run tools/image, or make test-image"
    return path


@pytest.fixture(scope="session")
def image(archive):
    return ImageArchive(archive)


@pytest.fixture(scope="session")
def root(image):
    folder = Path(tempfile.mkdtemp(prefix="gantry-image-", dir="/tmp"))  # pytest's are closed to other users
    folder.chmod(0o755)
    image.unpack(folder)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def running(root, image):
    """The root file system, of an image that this machine can run."""
    if image.facts["architecture"] != ARCHITECTURES[platform.machine()]:
        pytest.skip(f"the image is for {image.facts['architecture']}")
    return root


def command(root, *words):
    """Inside of the image, as its user, with nothing that may be written to but what is mounted: a pod's read-only root."""
    script = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && mount -t tmpfs none "$0/run" && ' \
             'mkdir -m 777 "$0/run/gantry" && mount -t proc none "$0/proc" && mount --bind /dev "$0/dev" && ' \
             'exec chroot --userspec=65532:65532 "$0" "$@"'
    return ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script, str(root), *words]


def environment(image):
    return dict(each.split("=", 1) for each in image.configuration["Env"])


def said_by(root, image, *words):
    run = subprocess.run(command(root, *words), capture_output=True, text=True, timeout=60, env=environment(image) | {
        "PATH": environment(image)["PATH"] + ":" + os.environ["PATH"]})
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_it_runs_the_sidecar_as_a_user_that_is_not_root(image):
    assert image.configuration["User"] == f"{USER}:{USER}"
    assert image.configuration["Entrypoint"] == ["gantry-sidecar"] and not image.configuration.get("Cmd")
    assert image.configuration["StopSignal"] == "SIGTERM"
    passwd = image.files()["etc/passwd"][1].decode()
    assert f"gantry:x:{USER}:{USER}:" in passwd


def test_it_is_for_the_architecture_that_its_name_says(image, variant, root):
    architecture = "arm64" if variant.endswith("-arm64") else ARCHITECTURES[platform.machine()]
    assert (image.facts["architecture"], image.facts["os"]) == (architecture, "linux")
    machine = {"amd64": "X86-64", "arm64": "AArch64"}[architecture]
    for path in [*(root / "usr/local/bin").iterdir(), *(each for each in root.rglob("*") if is_library(each))]:
        said = subprocess.run(["readelf", "-h", path], capture_output=True, text=True, check=True).stdout
        assert machine in re.search(r"Machine: +(.*)", said)[1], path


def test_labels_say_where_it_is_from(image):
    labels = {name.removeprefix("org.opencontainers.image."): value for name, value in image.labels.items()}
    version = re.search(r"project\(gantry VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
    assert labels["version"] == version
    assert re.fullmatch(r"[0-9a-f]{40}(-dirty)?", labels["revision"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", labels["created"])
    assert labels["licenses"] == "Apache-2.0" and labels["title"] and labels["description"] and labels["vendor"]
    assert labels["base.name"] and labels["base.digest"].startswith("sha256:")


def test_nothing_is_in_it_but_what_runs(image):
    programs = {path for path, (entry, _) in image.files().items()
                if entry.isfile() and entry.mode & 0o111 and not is_named_as_library(path)}
    assert programs == {f"usr/local/bin/{name}" for name in PROGRAMS}, "a shell, a package manager, a compiler?"


def test_no_file_gives_rights(image):
    for path, (entry, _) in image.files().items():
        assert not entry.mode & (stat.S_ISUID | stat.S_ISGID), path
        if path != "tmp" and not entry.issym():
            assert not entry.mode & 0o002, path


def is_library(path):
    return path.is_file() and not path.is_symlink() and is_named_as_library(path.name)


def is_named_as_library(name):
    return re.search(r"\.so(\.\d+)*$", name) is not None


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_starts_in_it(running, image, program):
    assert re.search(r"\d+\.\d+\.\d+", said_by(running, image, program, "--version"))


def test_every_library_that_is_named_is_there(root):
    names = {path.name for path in root.rglob("*.so*")}
    for path in [*(root / "usr/local/bin").iterdir(), *(each for each in root.rglob("*") if is_library(each))]:
        said = subprocess.run(["readelf", "-d", path], capture_output=True, text=True, check=True).stdout
        missing = {name for name in re.findall(r"\(NEEDED\).*\[(.+)\]", said) if name not in names and not name.startswith("ld-linux")}
        assert not missing, path


def test_nixls_backend_is_in_it_and_gantryctl_copies_it(running, image):
    folder = running / "usr/local/share/gantry/nixl"
    wanted = {"libplugin_GANTRY.so", "pyproject.toml", "setup.py", "gantry_nixl/__init__.py", "gantry_nixl/py.typed"}
    assert wanted <= {str(path.relative_to(folder)) for path in folder.rglob("*")}
    said = said_by(running, image, "gantryctl", "nixl-plugin", "/run/gantry/nixl")
    assert {f"/run/gantry/nixl/{path}" for path in wanted} <= set(said.splitlines())


def test_the_providers_of_rdma_devices_can_be_loaded(root):
    drivers = {line.split()[1] for path in (root / "etc/libibverbs.d").iterdir() for line in path.read_text().splitlines() if line}
    assert {"mlx5", "rxe"} <= drivers
    there = {path.name for path in (root / "usr/lib").rglob("libibverbs/*.so")}
    assert {f"lib{name}-rdmav34.so" for name in drivers} <= there


def test_the_sidecar_serves_in_it(running, image):
    words = command(running, "gantry-sidecar", "--name=in-the-image", "--run-dir=/run/gantry/run", "--gpu-workers=0")
    path = environment(image)["PATH"] + ":" + os.environ["PATH"]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=environment(image) | {"PATH": path})
    try:
        inside = inner(process)
        assert Path(f"/proc/{inside}/status").read_text().split("Uid:")[1].split()[0] == str(USER)
        run = subprocess.run(["nsenter", "--mount", "--pid", f"--root=/proc/{inside}/root", "-t", str(inside), "/usr/local/bin/gantryctl",
                              "--socket=/run/gantry/run/api.sock", "status", "--json"], capture_output=True, text=True, timeout=30)
        assert run.returncode == 0, run.stderr
        assert json.loads(run.stdout)["name"] == "in-the-image"
    finally:
        process.kill()
        process.wait()


def inner(process):
    """The sidecar's PID, once its API is there."""
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        for pid in subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True).stdout.split():
            if Path(f"/proc/{pid}/root/run/gantry/run/api.sock").exists():
                return int(pid)
        time.sleep(0.1)
    process.kill()
    raise AssertionError(f"the sidecar does not start: {process.stderr.read()}")


def test_amds_compiler_makes_code_of_the_kernel_in_it(running, image, variant, tmp_path):
    """With the libraries of the image alone, as its user, where nothing but the run folder can be written to."""
    if not variant.endswith("-rocm"):
        assert not list(running.rglob("libamd*")), "AMD's libraries are for the variant"
        return
    kernel = ROOT / "build/release/generated/lib/gpu/hip/copy_kernel.hip"
    assert kernel.exists(), "make build writes it"
    subprocess.run(["g++", "-std=c++20", "-o", tmp_path / "probe", ROOT / "tests/image/hiprtc_probe.cc"], check=True)
    copied = [running / "tmp/probe", running / "tmp/copy_kernel.hip"]
    for source, target in zip([tmp_path / "probe", kernel], copied):
        shutil.copy(source, target)
    try:
        said = said_by(running, image, "/tmp/probe", "/tmp/copy_kernel.hip", "-std=c++20", "-O3", "-fno-strict-aliasing",
                       "-DGANTRY_WARP_THREADS=64", "--offload-arch=gfx90a")
        assert re.fullmatch(r"result 0, [1-9]\d+ bytes\n", said)
    finally:
        for each in copied:
            each.unlink()


def test_the_bill_of_materials_names_every_file(image, archive):
    said = subprocess.run([ROOT / "tools" / "sbom", archive], capture_output=True, text=True, check=True).stdout
    bill = json.loads(said)
    assert bill["spdxVersion"] == "SPDX-2.3" and bill["SPDXID"] == "SPDXRef-DOCUMENT"
    ids = [each["SPDXID"] for each in bill["packages"] + bill["files"]]
    assert len(ids) == len(set(ids)) and all(re.fullmatch(r"SPDXRef-[A-Za-z0-9.-]+", each) for each in ids)
    for each in bill["relationships"]:
        assert {each["spdxElementId"], each["relatedSpdxElement"]} <= {*ids, "SPDXRef-DOCUMENT"}
    sums = {each["fileName"].removeprefix("./"): {one["algorithm"]: one["checksumValue"] for one in each["checksums"]}
            for each in bill["files"]}
    for path, (entry, content) in image.files().items():
        if entry.isfile() and (is_named_as_library(path) or path.startswith("usr/local/")):
            assert sums[path]["SHA256"] == hashlib.sha256(content).hexdigest(), path
    names = {each["name"] for each in bill["packages"]}
    assert {"gantry", "libc6", "libibverbs1", "ibverbs-providers", "libssl3", "ca-certificates"} <= names


def test_it_is_small(archive, variant):
    assert archive.stat().st_size <= BYTES_MAX[variant]


def test_the_cache_has_the_layers_of_the_last_builds_and_no_others():
    cache = Path(os.environ.get("GANTRY_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gantry")
    store = cache / "image" / "store"
    if "GANTRY_IMAGE" in os.environ or not list(store.glob("layers-*")):
        pytest.skip("the image was not built here")
    wanted = {layer for file in store.glob("layers-*") for layer in file.read_text().split()}
    listed = subprocess.run(["buildah", "--root", store / "root", "--runroot", store / "run", "--storage-driver", "overlay",
                             "images", "--all", "--no-trunc", "--json"], capture_output=True, text=True, check=True)
    there = {image["id"].removeprefix("sha256:")[:11]: image["names"] for image in json.loads(listed.stdout)}
    assert wanted - set(there) == set(), "layers that the next build could have taken are gone"
    assert {layer for layer, names in there.items() if not names} - wanted == set(), "layers that no build takes are kept"
