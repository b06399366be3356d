"""Sizes as gantry-bench takes them."""

import re


def bytes_of(size: str) -> int:
    """Of "4096" or "64KiB"."""
    found = re.fullmatch(r"(\d+)\s*([KMGT]i)?B?", size.strip())
    if not found:
        raise SystemExit(f"{size!r} is no size: write for example 4096, 64KiB or 1GiB")
    return int(found[1]) * 1024 ** (["Ki", "Mi", "Gi", "Ti"].index(found[2]) + 1 if found[2] else 0)
