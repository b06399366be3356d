"""Which blocks of a read that failed are there all the same."""

from __future__ import annotations

from typing import Any, Optional

_ENDED = ("failed", "cancelled", "expired")


def missing_blocks(details: dict[str, Any], blocks: list[int]) -> Optional[list[int]]:
    """Those of `blocks`, which a transfer was to fill, that may not have arrived whole, in their order.

    details  Transfer.details() after its end. None: the sidecar did not say, so that none of them can be used.
    """
    if details.get("state") == "succeeded":
        return []
    items = details.get("failed_items")
    if details.get("state") not in _ENDED or details.get("failed_items_truncated") or not items:
        return None
    named = sorted(set(items))
    return [blocks[item] for item in named] if named[-1] < len(blocks) else None
