"""A tier fails when its tests leave something in the folder that they are given."""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run(commands):
    """A tier of these commands; (exit code, output, the folder that its tests were given)."""
    with tempfile.TemporaryDirectory() as results:
        script = f". tests/tiers/functions.sh; echo $GANTRY_TEST_ROOT; {commands}; nothing_is_left || status=1; exit $status"
        done = subprocess.run(["bash", "-c", script], cwd=ROOT, env={**os.environ, "RESULTS": results}, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return done.returncode, done.stdout, Path(done.stdout.split("\n", 1)[0])


class LeftBehindTest(unittest.TestCase):
    def test_nothing(self):
        code, said, folder = run("mkdir $GANTRY_TEST_ROOT/a; rmdir $GANTRY_TEST_ROOT/a")
        self.assertEqual((code, said, folder.exists()), (0, f"{folder}\n", False))

    def test_a_folder_is_named_and_removed(self):
        code, said, folder = run("mkdir -p $GANTRY_TEST_ROOT/a/b; touch $GANTRY_TEST_ROOT/a/b/api.sock")
        self.assertEqual(code, 1)
        self.assertIn(f"tests left behind in {folder}:\n{folder}/a\n", said)
        self.assertIn("/a/b/api.sock", said)
        self.assertFalse(folder.exists())

    def test_what_a_tier_leaves_by_itself_goes_with_it(self):
        code, _, folder = run("nothing_is_left; touch $GANTRY_TEST_ROOT/a; exit 3")
        self.assertEqual((code, folder.exists()), (3, False))


if __name__ == "__main__":
    unittest.main()
