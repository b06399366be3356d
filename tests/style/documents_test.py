"""The pages of docs: diagrams have their pictures, links lead somewhere, and the tests of docs/invariants.md are there."""

import importlib.machinery
import importlib.util
import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def drawing():
    loader = importlib.machinery.SourceFileLoader("draw_diagrams", str(ROOT / "tools" / "draw-diagrams"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


def anchors_of(text):
    """As GitHub makes them of headings; a second one of the same words is not told apart."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def wrong_links(page):
    for label, target in re.findall(r"\[([^]]*)\]\(([^)\s]+)\)", page.read_text()):
        path, _, anchor = target.partition("#")
        if "://" in target or target.startswith("mailto:"):
            continue
        file = page.parent / path if path else page
        if not file.exists():
            yield f"{page.relative_to(ROOT)}: [{label}]({target}): no such file"
        elif anchor and file.suffix == ".md" and anchor not in anchors_of(file.read_text()):
            yield f"{page.relative_to(ROOT)}: [{label}]({target}): no such heading"


def named_tests(page):
    """(suite, test) of each C++ test, and (None, function) of each in Python. A name with a dot before it is of the last suite."""
    suite = None
    for name in re.findall(r"`([^`]+)`", page):
        if found := re.fullmatch(r"([A-Z]\w*)?\.([A-Z]\w+|\*)", name):
            suite = found[1] or suite
            yield suite, found[2]
        elif re.fullmatch(r"test_\w+", name):
            yield None, name


class DiagramsTest(unittest.TestCase):
    def test_each_has_a_picture_of_its_present_text(self):
        draw = drawing()
        old = [picture.name for picture, block in draw.diagrams() if not draw.is_current(picture, block)]
        self.assertEqual(old, [], "run tools/draw-diagrams")

    def test_each_drawn_picture_has_a_diagram(self):
        drawn = {picture for picture, _ in drawing().diagrams()}
        self.assertEqual(set((ROOT / "docs" / "pictures").glob("*.svg")) - drawn, set())


class LinksTest(unittest.TestCase):
    def test_relative_links_lead_somewhere(self):
        pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
        self.assertEqual([wrong for page in pages for wrong in wrong_links(page)], [])


class InvariantsTest(unittest.TestCase):
    def test_each_test_that_is_named_is_there(self):
        texts = "".join(path.read_text() for end in ("cc", "h", "py") for path in (ROOT / "tests").rglob(f"*.{end}"))
        there = set(re.findall(r"\bTEST\w*\(\s*(\w+)\s*,\s*(\w+)", texts)) | {(None, name) for name in re.findall(r"def (test_\w+)", texts)}
        there |= {(suite, "*") for suite, _ in there}
        named = list(named_tests((ROOT / "docs" / "invariants.md").read_text()))
        self.assertGreater(len(named), 100)
        self.assertEqual([name for name in named if name not in there], [])


if __name__ == "__main__":
    unittest.main()
