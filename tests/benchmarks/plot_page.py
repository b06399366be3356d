"""What the plots share: their command line and the beginning of an SVG, which is written by hand."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def folders(usage):
    """The build folder and the folder for results (docs/benchmarks), from the command line."""
    if len(sys.argv) not in (2, 3):
        sys.exit(usage)
    output = Path(sys.argv[2]) if len(sys.argv) == 3 else ROOT / "docs" / "benchmarks"
    output.mkdir(parents=True, exist_ok=True)
    return Path(sys.argv[1]), output


def begin(width, height, left, title):
    """The first lines of a picture; the last is "</svg>"."""
    return [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
            'font-size="12">', f'<rect width="{width}" height="{height}" fill="white"/>',
            f'<text x="{left}" y="24" font-size="16">{title}</text>']
