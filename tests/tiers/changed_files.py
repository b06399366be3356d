"""Which files and folders changed, for the tiers of make check."""

import os
import re
import subprocess
from collections import defaultdict
from pathlib import Path

SOURCES = ("*.h", "*.cc", "*.cu")


def git(*words):
    done = subprocess.run(["git", *words], capture_output=True, text=True)
    return done.stdout.split() if done.returncode == 0 else []


def base():
    """Returns the commit to compare with: $GANTRY_CHECK_BASE, where the branch left origin/main, or the last commit.

    In a tree without changes and without a branch of its own, that is the commit before the last.
    """
    if given := os.environ.get("GANTRY_CHECK_BASE"):
        return given
    left, head = git("merge-base", "HEAD", "origin/main"), git("rev-parse", "HEAD")
    if left and left != head:
        return left[0]
    return "HEAD" if git("status", "--porcelain") else "HEAD~1"


def changed_files():
    """Returns the paths that differ from base() and exist, tracked or not ignored, sorted."""
    tracked = git("diff", "--name-only", "--diff-filter=d", base())
    return sorted({*tracked, *git("ls-files", "--others", "--exclude-standard")})


def changed_folders():
    """Returns the folders of sources that changed, also by a file that was removed."""
    removed = git("diff", "--name-only", base())
    names = {*changed_files(), *removed}
    return {str(Path(name).parent) for name in names if re.search(r"\.(h|cc|cu|proto)$|CMakeLists\.txt$", name)}


def included_folders():
    """Returns, for each folder with sources, the folders that these include from."""
    found = defaultdict(set)
    for name in git("ls-files", *SOURCES):
        if (path := Path(name)).exists():
            for line in re.findall(r'^#include "(.*)/[^/"]*"', path.read_text(), re.M):
                found[str(path.parent)].add(line)
    return found


def affected_folders():
    """Returns the folders that changed and those that include from one of them."""
    changed = changed_folders()
    return changed | {folder for folder, included in included_folders().items() if included & changed}
