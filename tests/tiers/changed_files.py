"""Which files and folders changed, for the tiers of make check."""

import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"  # git's own name for it
SOURCES = ("*.h", "*.cc", "*.cu")


def git(*words):
    """Returns the entries that git prints, each ended by a zero byte or a line's end; ends the tier where git fails."""
    done = subprocess.run(["git", *words], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"git {' '.join(words)}: {done.stderr.strip()}")
    return [entry for entry in re.split(r"[\0\n]", done.stdout) if entry]


def knows(commit):
    return subprocess.run(["git", "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}"], capture_output=True).returncode == 0


def base():
    """Returns the commit to compare with: $GANTRY_CHECK_BASE, where the branch left origin/main, or the last commit.

    In a tree without changes and without a branch of its own, that is the commit before the last.
    """
    if given := os.environ.get("GANTRY_CHECK_BASE"):
        return given
    head = git("rev-parse", "HEAD")
    if knows("origin/main") and (left := git("merge-base", "HEAD", "origin/main")) != head:
        return left[0]
    if git("status", "--porcelain"):
        return "HEAD"
    return "HEAD~1" if knows("HEAD~1") else EMPTY_TREE


def changed_files():
    """Returns the paths that differ from base() and exist, tracked or not ignored, sorted."""
    tracked = git("diff", "-z", "--name-only", "--diff-filter=d", base())
    return sorted({*tracked, *git("ls-files", "-z", "--others", "--exclude-standard")})


def changed_folders():
    """Returns the folders of sources that changed, also by a file that was removed."""
    removed = git("diff", "-z", "--name-only", base())
    names = {*changed_files(), *removed}
    return {str(Path(name).parent) for name in names if re.search(r"\.(h|cc|cu|proto)$|CMakeLists\.txt$", name)}


def included_folders():
    """Returns, for each folder with sources, the folders that these include from."""
    found = defaultdict(set)
    for name in git("ls-files", "-z", *SOURCES):
        if (path := Path(name)).exists():
            for line in re.findall(r'^#include "(.*)/[^/"]*"', path.read_text(), re.M):
                found[str(path.parent)].add(line)
    return found


def affected_folders():
    """Returns the folders that changed and those that include from one of them."""
    changed = changed_folders()
    return changed | {folder for folder, included in included_folders().items() if included & changed}
