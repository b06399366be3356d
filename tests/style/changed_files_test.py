"""make check finds the files and folders that changed, in small repositories made here."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TIERS = Path(__file__).resolve().parents[1] / "tiers"
ASK = f"import sys; sys.path.insert(0, {str(TIERS)!r}); import changed_files as c; print(c.changed_files(), sorted(c.affected_folders()))"


class ChangedFilesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.git("init", "-q", "-b", "main")
        self.write("lib/base/error.h", "")
        self.write("lib/wire/body.h", '#include "lib/base/error.h"\n')
        self.write("sidecar/api/route.cc", '#include "lib/wire/body.h"\n')
        self.commit()

    def git(self, *words):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=self.root, check=True, capture_output=True)

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def commit(self):
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "one")

    def ask(self, **settings):
        environment = {name: value for name, value in os.environ.items() if name != "GANTRY_CHECK_BASE"} | settings
        return subprocess.run([sys.executable, "-B", "-c", ASK], cwd=self.root, env=environment, capture_output=True, text=True)

    def test_a_changed_folder_and_those_that_include_from_it(self):
        self.write("lib/base/error.h", "// changed\n")
        self.assertEqual(self.ask().stdout, "['lib/base/error.h'] ['lib/base', 'lib/wire']\n")

    def test_the_first_commit_is_all_new(self):
        self.assertIn("'sidecar/api/route.cc'", self.ask().stdout)

    def test_a_clean_tree_is_compared_with_the_commit_before(self):
        self.write("lib/wire/body.h", "")
        self.commit()
        self.assertEqual(self.ask().stdout, "['lib/wire/body.h'] ['lib/wire', 'sidecar/api']\n")

    def test_a_branch_is_compared_with_where_it_left(self):
        self.git("update-ref", "refs/remotes/origin/main", "HEAD")
        for name in ("lib/a/a.cc", "lib/b/my file.cc"):
            self.write(name, "")
            self.commit()
        self.assertEqual(self.ask().stdout, "['lib/a/a.cc', 'lib/b/my file.cc'] ['lib/a', 'lib/b']\n")

    def test_a_base_that_is_not_there_is_an_error(self):
        done = self.ask(GANTRY_CHECK_BASE="nothing")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("nothing", done.stderr)


if __name__ == "__main__":
    unittest.main()
