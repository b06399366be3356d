"""Puts libplugin_GANTRY.so where NIXL looks for backends: beside those of its own wheels.

The plugin is the one that GANTRY_NIXL_PLUGIN names, that lies beside this file or that build/release holds, else a fresh build.
"""

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

ROOT = Path(__file__).resolve().parents[min(2, len(Path(__file__).resolve().parents) - 1)]
PLUGIN = "libplugin_GANTRY.so"
# NIXL's wheels for two versions of its GPU runtime, each with a folder of plugins.
FOLDERS = [f".nixl_cu{major}.mesonpy.libs/plugins" for major in (12, 13)]


def find_plugin():
    built = ROOT / "build" / "release" / "lib" / PLUGIN
    named = os.environ.get("GANTRY_NIXL_PLUGIN")
    if named:
        return Path(named)
    beside = Path(__file__).resolve().parent / PLUGIN  # as in Gantry's image
    if beside.exists():
        return beside
    if not built.exists():
        subprocess.run(["cmake", "--preset", "release"], cwd=ROOT, check=True)
        subprocess.run(["cmake", "--build", "--preset", "release", "--target", "plugin_GANTRY"], cwd=ROOT, check=True)
    return built


class BuildWithPlugin(build_py):
    def run(self):
        super().run()
        if getattr(self, "editable_mode", False):
            raise SystemExit("gantry-nixl cannot be installed editable: NIXL looks for the plugin beside its own")
        for target in self._targets():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(find_plugin(), target)
            if shutil.which("strip"):
                subprocess.run(["strip", "--strip-unneeded", str(target)], check=True)

    def get_outputs(self, include_bytecode=True):
        return [*super().get_outputs(include_bytecode), *map(str, self._targets())]

    def _targets(self):
        return [Path(self.build_lib) / folder / PLUGIN for folder in FOLDERS]


class AnyPythonOfThisPlatform(bdist_wheel):
    """NIXL loads the plugin: the wheel depends on the machine and not on the Python."""

    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self):
        return ("py3", "none", super().get_tag()[2])


setup(cmdclass={"build_py": BuildWithPlugin, "bdist_wheel": AnyPythonOfThisPlatform})
