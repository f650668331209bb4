"""Only permissive licences pass; where several are offered, one is enough."""

from __future__ import annotations

import pytest

from spd_lsp.training.corpus.licences import is_permissive, is_wholly_permissive


@pytest.mark.parametrize(
    ("licence", "permissive"),
    [
        ("MIT", True),
        ("BSD-3-Clause AND 0BSD AND Zlib", True),
        ("Apache Software License", True),
        ("PSF-2.0", True),
        ("LicenseRef-Biopython-License-Agreement", True),
        ("Expat", True),
        ("GPL-2+ or Expat", True),
        ("public-domain", True),
        ("GPL-3.0-only", False),
        ("MIT AND LGPL-2.1", False),
        ("GNU Affero General Public License v3", False),
        ("General Public License v2 or later", False),
        ("MPL-2.0", False),
        ("Proprietary", False),
        ("", False),
    ],
)
def test_only_permissive_licences_pass(licence: str, permissive: bool) -> None:
    assert is_permissive(licence) is permissive


@pytest.mark.parametrize(
    ("licence", "permissive"),
    [
        ("Expat", True),
        ("BSD-3-clause and Expat", True),
        ("GPL-2+ or Apache-2.0 and ISC", True),
        ("Expat and unknown-terms", False),
        ("GPL-2+ and Expat", False),
        ("(MIT OR Apache-2.0) AND BSD-2-clause", True),
        ("GPL-2+ with Autoconf exception", False),
    ],
)
def test_every_part_of_a_files_licence_counts(licence: str, permissive: bool) -> None:
    assert is_wholly_permissive(licence) is permissive
