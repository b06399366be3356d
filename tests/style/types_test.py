"""The Python packages that say they are typed (py.typed) are what they say, by mypy --strict.

Types of vLLM, torch and numpy are checked by hand where these are installed, as here for vLLM's (minutes, once):
    MYPYPATH=client/python:connectors/vllm mypy --strict --follow-imports=silent \\
      --python-executable $(tests/vllm/environment)/venv/bin/python -p gantry_vllm -p gantry
"""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {"gantry": ROOT / "client" / "python", "gantry_nixl": ROOT / "connectors" / "nixl",
            "gantry_vllm": ROOT / "connectors" / "vllm", "gantry_lmcache": ROOT / "connectors" / "lmcache"}
# Its one error is found unless callers see Any in place of the client's types.
CALLER = "import gantry\ngantry.Client('/run/gantry', workload=7)\n"


def mypy(*packages, folders):
    words = [word for package in packages for word in ("-p", package)]
    return subprocess.run([sys.executable, "-m", "mypy", "--config-file", ROOT / "tests" / "style" / "mypy.ini", "--cache-dir", os.devnull,
                           "--no-error-summary", *words], env={**os.environ, "MYPYPATH": os.pathsep.join(map(str, folders))},
                          capture_output=True, text=True, check=False)


class TypesTest(unittest.TestCase):
    def test_packages_that_say_they_are_typed(self):
        found = {path.parent.name for folder in ("client", "connectors") for path in (ROOT / folder).rglob("py.typed")
                 if "build" not in path.parts}
        self.assertEqual(found, set(PACKAGES))

    def test_they_have_no_error_and_a_caller_s_error_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            package = Path(folder) / "caller"
            package.mkdir()
            (package / "__init__.py").write_text(CALLER)
            done = mypy(*PACKAGES, package.name, folders=[*PACKAGES.values(), folder])
        self.assertRegex(done.stdout, r'\A\S*caller/__init__.py:2: error: Argument "workload" to "Client" has incompatible type "int"; '
                                      r'expected "str" +\[arg-type\]\n\Z', done.stderr)


if __name__ == "__main__":
    unittest.main()
