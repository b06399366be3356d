"""Puts libgantry.so into the package: the one that GANTRY_LIBRARY names or build/release holds, else a fresh build."""

import os
import shutil
import subprocess
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # setuptools before 70.1
    from wheel.bdist_wheel import bdist_wheel

ROOT = Path(__file__).resolve().parents[2]


def find_library():
    built = ROOT / "build" / "release" / "lib" / "libgantry.so"
    named = os.environ.get("GANTRY_LIBRARY")
    if named:
        return Path(named)
    if not built.exists():
        subprocess.run(["cmake", "--preset", "release"], cwd=ROOT, check=True)
        subprocess.run(["cmake", "--build", "--preset", "release", "--target", "gantry"], cwd=ROOT, check=True)
    return built


class BuildWithLibrary(build_py):
    def run(self):
        super().run()
        if getattr(self, "editable_mode", False):
            return  # a checkout finds build/release by itself
        target = Path(self.build_lib) / "gantry" / "libgantry.so"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(find_library(), target)
        if shutil.which("strip"):
            subprocess.run(["strip", "--strip-unneeded", str(target)], check=True)

    def get_outputs(self, include_bytecode=True):
        return [*super().get_outputs(include_bytecode), str(Path(self.build_lib) / "gantry" / "libgantry.so")]


class AnyPythonOfThisPlatform(bdist_wheel):
    """The library is reached by ctypes: the wheel depends on the machine and not on the Python."""

    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self):
        return ("py3", "none", super().get_tag()[2])


setup(cmdclass={"build_py": BuildWithLibrary, "bdist_wheel": AnyPythonOfThisPlatform})
