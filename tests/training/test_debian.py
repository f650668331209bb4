"""Of a Debian package, only files of one language with a known permissive licence are read."""

from __future__ import annotations

from pathlib import Path

from spd_lsp.training.corpus.debian import is_permitted, open_debian, read_grants
from tests.training.archives import make_tar

RIGHTS = """\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: three

Files: *
Copyright: 2020 Someone
License: Expat

Files: src/gpl/* src/odd.c
Copyright: 2020 Someone else
License: GPL-2+
 This program is free software
 .
 and more

Files: src/gpl/free.c
License: BSD-3-clause

License: Expat
 Permission is hereby granted
"""


def test_the_last_licence_that_covers_a_file_holds() -> None:
    grants = read_grants(RIGHTS)
    assert [grant.licence for grant in grants] == ["Expat", "GPL-2+", "BSD-3-clause"]
    names = ("src/a.c", "src/gpl/a.c", "src/gpl/deep/a.c", "src/odd.c", "src/gpl/free.c", "share/src/odd.c")
    assert [is_permitted(name, grants) for name in names] == [True, False, False, False, True, False]


def test_a_copyright_file_in_another_format_permits_nothing() -> None:
    assert read_grants("This package was debianised by someone.\n\nLicense: MIT\n") == []
    assert not is_permitted("a.c", [])


def test_only_permitted_files_of_the_language_are_read(tmp_path: Path) -> None:
    make_tar(tmp_path / "three=1-2" / "three_1-2.debian.tar.gz", {"debian/copyright": RIGHTS})
    files = {"three-1/src/a.c": "a", "three-1/src/gpl/b.c": "b", "three-1/src/c.py": "c", "three-1/src/d.h": "d"}
    make_tar(tmp_path / "three=1-2" / "three_1.orig.tar.gz", files)
    package = open_debian("three=1-2", tmp_path, "c")
    assert list(package.read()) == [("src/a.c", b"a"), ("src/d.h", b"d")]
    assert package.source.licence == "BSD-3-clause, Expat"
    assert package.source.archive == "three_1.orig.tar.gz"
