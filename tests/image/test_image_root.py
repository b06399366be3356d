"""What tools/image-root takes out of packages: of another architecture's folder, and AMD's libraries wherever they are.

The packages are made here: libraries that hold nothing but the names of those that they need.
"""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = "/usr/lib/some-linux-gnu"


class Packages:
    """The folder that tools/sysroot would print."""

    def __init__(self, folder):
        self.folder = folder
        self.info = folder / "var/lib/dpkg/info"
        self.info.mkdir(parents=True)
        self.status = folder / "var/lib/dpkg/status"
        for name in ("lib", "lib64"):
            (folder / "usr" / name).mkdir(parents=True)
            (folder / name).symlink_to(f"usr/{name}")
        self.add("libc6", f"{FOLDER}/libc.so.6", "/lib64/ld-linux-x86-64.so.2")
        self.add("ibverbs-providers", f"{FOLDER}/libibverbs/libsome-rdmav34.so")
        self.add("ca-certificates")
        self.add("base-files", "/etc/os-release", "/usr/lib/os-release", "/etc/debian_version",
                 "/usr/share/common-licenses/GPL-2")

    def add(self, package, *paths, needs=(), licence="/usr/share/doc/{}/copyright"):
        licence = licence.format(package)
        for path in [*paths, licence]:
            file = self.folder / path[1:]
            file.parent.mkdir(parents=True, exist_ok=True)
            if ".so" in path:
                shared_library(file, needs)
            else:
                file.write_text(f"{path}\n")
        (self.info / f"{package}.list").write_text("".join(f"{path}\n" for path in [*paths, licence]))
        (self.info / f"{package}.md5sums").write_text("".join(f"{'0' * 32}  {path[1:]}\n" for path in paths))
        with self.status.open("a") as status:
            status.write(f"Package: {package}\nStatus: install ok installed\nVersion: 1\nArchitecture: amd64\n"
                         "Maintainer: nobody <nobody@example.com>\nDescription: some\n\n")


def compiled(path, *options):
    subprocess.run(["gcc", "-x", "c", "-nostdlib", "-o", path, "-", "-x", "none", *options], input="void _start(void) {}", text=True, check=True)


def shared_library(path, needs):
    """One that needs others by their names, which the linker takes from files that say no more."""
    for name in needs:
        if not (path.parent / name).exists():
            compiled(path.parent / name, "-shared", f"-Wl,-soname,{name}")
    compiled(path, "-shared", f"-Wl,-soname,{path.name}", "-Wl,--no-as-needed", *(str(path.parent / name) for name in needs))


@pytest.fixture
def packages(tmp_path):
    return Packages(tmp_path / "packages")


@pytest.fixture
def install(tmp_path, packages):
    for name in ("bin", "lib"):
        (tmp_path / "install" / name).mkdir(parents=True)
    compiled(tmp_path / "install/bin/program", "-Wl,--no-as-needed", str(packages.folder / FOLDER[1:] / "libc.so.6"),
             "-Wl,--dynamic-linker=/lib64/ld-linux-x86-64.so.2")
    return tmp_path / "install"


def laid_out(packages, install, gpu):
    root = install.parent / "root"
    run = subprocess.run([ROOT / "tools/image-root", "--gpu", gpu, "--install", install, "--root", root,
                          "--sysroot", packages.folder], cwd=ROOT, capture_output=True, text=True)
    return root, run


def files(root):
    return {f"/{path.relative_to(root)}" for path in root.rglob("*.so*") if path.is_file()}


def test_libraries_are_those_of_the_folder_and_not_the_machines(packages, install):
    root, run = laid_out(packages, install, "any")
    assert run.returncode == 0, run.stderr
    assert {f"{FOLDER}/libc.so.6", f"{FOLDER}/libibverbs/libsome-rdmav34.so"} <= files(root)
    assert (root / FOLDER[1:] / "libc.so.6").read_bytes() == (packages.folder / FOLDER[1:] / "libc.so.6").read_bytes()
    assert (root / "etc/os-release").read_text() == "/etc/os-release\n"
    assert {path.name for path in (root / "var/lib/dpkg/status.d").iterdir() if path.suffix != ".md5sums"} == {
        "libc6", "ibverbs-providers", "ca-certificates", "base-files"}


def test_a_library_that_no_package_has_ends_it(packages, install):
    packages.add("needy", f"{FOLDER}/libibverbs/libneedy-rdmav34.so", needs=["libmissing.so.1"])
    (packages.info / "needy.list").rename(packages.info / "ibverbs-providers.list")
    (packages.folder / FOLDER[1:] / "libibverbs/libmissing.so.1").unlink()
    _, run = laid_out(packages, install, "any")
    assert run.returncode != 0 and "the library libmissing.so.1 is not in" in run.stderr


def test_rocm_takes_the_distributions_runtime_and_its_compiler(packages, install):
    packages.add("libllvm", f"{FOLDER}/libLLVM.so.1")
    packages.add("libamdhip64-5", f"{FOLDER}/libamdhip64.so.5")
    packages.add("libamd-comgr2", f"{FOLDER}/libamd_comgr.so.2", needs=["libLLVM.so.1"])
    root, run = laid_out(packages, install, "rocm")
    assert run.returncode == 0, run.stderr
    assert {f"{FOLDER}/{name}" for name in ("libamdhip64.so.5", "libamd_comgr.so.2", "libLLVM.so.1")} <= files(root)


def test_rocm_without_the_compiler_ends_it(packages, install):
    packages.add("libamdhip64-5", f"{FOLDER}/libamdhip64.so.5")
    _, run = laid_out(packages, install, "rocm")
    assert run.returncode != 0 and "there is no libamd_comgr.so in" in run.stderr


def test_rocm_takes_amds_own_packages_where_there_are_some(packages, install):
    amd = "/opt/rocm-7.1.0/lib"
    packages.add("hip-runtime-amd", f"{amd}/libamdhip64.so.7", f"{amd}/libhiprtc.so.7", f"{amd}/libhiprtc-builtins.so.7",
                 needs=["libhsa-runtime64.so.1"], licence="/opt/rocm-7.1.0/share/doc/{}/LICENSE.md")
    packages.add("hsa-rocr", f"{amd}/libhsa-runtime64.so.1")
    packages.add("comgr", f"{amd}/libamd_comgr.so.3")
    (packages.folder / "opt/rocm").symlink_to("rocm-7.1.0")
    root, run = laid_out(packages, install, "rocm")
    assert run.returncode == 0, run.stderr
    assert {f"{amd}/{name}" for name in ("libamdhip64.so.7", "libhiprtc.so.7", "libhiprtc-builtins.so.7", "libamd_comgr.so.3",
                                         "libhsa-runtime64.so.1")} <= files(root)
    assert (root / "opt/rocm/lib/libamdhip64.so.7").exists()
    assert (root / "opt/rocm-7.1.0/share/doc/hip-runtime-amd/LICENSE.md").exists()
    # Where the loader looks for it in the image.
    assert "/opt/rocm/lib" in re.search(r"^ENV .*LD_LIBRARY_PATH=(\S+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE)[1].split(":")
