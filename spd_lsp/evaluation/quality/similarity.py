"""Measure how similar source texts are: by identifiers."""

from __future__ import annotations

import re

NEAR_DUPLICATE = 0.8  # Jaccard index of identifiers from which two files count as versions of each other
_IDENTIFIER = re.compile(r"[^\W\d]\w*")


def identifiers(text: str) -> frozenset[str]:
    """The identifiers of a text, including those in comments."""
    return frozenset(_IDENTIFIER.findall(text))


def jaccard(first: frozenset[str], second: frozenset[str]) -> float:
    """Intersection over union. Example: {a, b}, {b, c} -> 1/3"""
    both = len(first & second)
    return both / max(1, len(first) + len(second) - both)
