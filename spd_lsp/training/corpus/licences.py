"""Which licences are permissive: a licence as a package states it goes in, yes or no comes out."""

from __future__ import annotations

import re

_PERMISSIVE = re.compile(
    r"\b(MIT|Expat|X11|BSD|0BSD|Apache|ISC|PSF|Python Software Foundation|Biopython License|Unlicense|Zlib)\b"
    r"|\b(Public[- ]Domain|BSL|Boost|CC0|curl|PostgreSQL|libpng|OpenSSL)\b"
    r"|Biopython-License|BSD-\d|MIT-CMU|HPND",
    re.IGNORECASE,
)
_RESTRICTIVE = re.compile(
    r"\b(A?GPL|LGPL|General Public|[EM]PL|CDDL|SSPL|Artistic|CC-BY|BUSL|Commons Clause|Proprietary|non-?free)",
    re.IGNORECASE,
)
_GRANTS = {  # how the licences that are often left unnamed begin
    "Permission is hereby granted, free of charge": "MIT",
    "Redistribution and use in source and binary forms": "BSD",
}
_EITHER = re.compile(r"(?<!\s)\s+or\s+", re.IGNORECASE)
_BOTH = re.compile(r"(?<!\s)\s+and\s+|,", re.IGNORECASE)


def is_permissive(licence: str) -> bool:
    """Whether one of the licences offered is permissive in all of its parts. Example: `GPL-2+ or ISC`."""
    return any(
        all(_PERMISSIVE.search(part) and not _RESTRICTIVE.search(part) for part in _BOTH.split(offer))
        for offer in _EITHER.split(licence)
    )


def granted(text: str) -> str:
    """The licence that a licence's text grants, or nothing."""
    plain = " ".join(text.split())
    return next((licence for words, licence in _GRANTS.items() if words in plain), "")
