"""Every C++ file that git knows is as clang-format 14 writes it. "make format" mends it."""

import re
import shutil
import subprocess
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PATTERNS = ["*.h", "*.cc", "*.cu"]


class FormatTest(unittest.TestCase):
    def test_tracked_files_are_formatted(self):
        formatter = shutil.which("clang-format-14")
        self.assertIsNotNone(formatter, "clang-format-14 is not installed: run tools/setup test")
        listed = subprocess.run(["git", "ls-files", "-z", "--", *PATTERNS], cwd=ROOT, capture_output=True, check=True)
        files = [name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).exists()]
        self.assertTrue(files, "git lists no C++ file")
        run = subprocess.run([formatter, "--dry-run", "-Werror", *files], cwd=ROOT, capture_output=True, text=True)
        wrong = sorted(set(re.findall(r"^(\S+?):\d+:\d+: error: code should be clang-formatted", run.stderr, re.M)))
        self.assertEqual(wrong, [], "make format would change these files")
        self.assertEqual(run.returncode, 0, run.stderr)


if __name__ == "__main__":
    unittest.main()
