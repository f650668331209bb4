"""The corpus has only permissive handwritten files, each once, and a manifest with the origin of each package."""

from __future__ import annotations

import email.message
import hashlib
import io
import json
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from spd_lsp.training.corpus import packages
from spd_lsp.training.corpus.filters import Copies, is_skipped, is_table
from spd_lsp.training.corpus.gather import CORPUS_LANGUAGES, LISTING, folder_name, gather, read_listing
from spd_lsp.training.corpus.packages import (
    STANDARD_LIBRARY,
    is_permissive,
    is_permitted,
    licence_of,
    open_wheel,
    read_grants,
    select_sources,
)

CODE = "def f(x):\n    return x\n"
SCRIPT = "export function add(a: number, b: number): number {\n  return a + b;\n}\n"
RIGHTS = """\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/

Files: *
Copyright: 2020 Someone
License: Expat

Files: src/gpl/* src/odd.c
License: GPL-2+
 This program is free software
 .
 and more

Files: src/gpl/free.c
License: BSD-3-clause
"""


def make_wheel(
    folder: Path, name: str, files: dict[str, str], metadata: str = "License-Expression: MIT\n"
) -> Path:
    into = folder / f"{name}==1.0"
    into.mkdir(parents=True)
    path = into / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in files.items():
            archive.writestr(file, text)
        archive.writestr(f"{name}-1.0.dist-info/METADATA", f"Name: {name}\nVersion: 1.0\n{metadata}\nReadme\n")
    return path


def make_tar(path: Path, files: dict[str, str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return path


def test_every_language_gives_its_permissive_files_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The archives are there already, so nothing is fetched."""
    # 1. A standard library of one file, a package of two copies and one of another licence.
    lib = tmp_path / "lib"
    for name in ("os.py", "test/test_os.py", "site-packages/other.py"):
        (lib / name).parent.mkdir(parents=True, exist_ok=True)
        (lib / name).write_text(f"name = {name!r}\n")
    monkeypatch.setattr(packages.sysconfig, "get_path", lambda name: str(lib))
    archives = tmp_path / "archives"
    make_wheel(archives, "kept", {"kept/a.py": CODE, "kept/copy.py": CODE, "kept/notes.txt": "no code"})
    make_wheel(archives, "closed", {"closed/a.py": "x = 2\n"}, "License-Expression: GPL-3.0-only\n")

    # 2. A package of npm, and one of Debian, some of whose files are under another licence.
    facts = '{"name": "@one/two", "version": "1.2.3", "license": "MIT"}'
    script = {"package/package.json": facts, "package/src/a.ts": SCRIPT, "package/dist/a.js": SCRIPT}
    make_tar(archives / "@one+two@1.2.3" / "one-two-1.2.3.tgz", script)
    make_tar(archives / "three=1-2" / "three_1-2.debian.tar.gz", {"debian/copyright": RIGHTS})
    native = {"three-1/src/a.c": "int a;\r\n", "three-1/src/gpl/b.c": "int b;\n", "three-1/src/c.py": CODE}
    make_tar(archives / "three=1-2" / "three_1.orig.tar.gz", native)
    listing = f"# packages\n[python]\nkept==1.0\nclosed==1.0\n{STANDARD_LIBRARY}\n[typescript]\n@one/two@1.2.3\n"
    (tmp_path / "listing.txt").write_text(f"{listing}[c]\nthree=1-2\n")

    found = list(gather(tmp_path / "listing.txt", archives, tmp_path / "corpus"))

    assert [(one.name, one.version, one.licence, one.files) for one in found] == [
        ("kept", "1.0", "MIT", 1),
        ("closed", "1.0", "GPL-3.0-only", 0),
        (STANDARD_LIBRARY, sys.version.split()[0], "PSF-2.0", 1),
        ("@one/two", "1.2.3", "MIT", 1),
        ("three", "1-2", "BSD-3-clause, Expat", 1),
    ]
    assert "licence" in found[1].skipped
    files = [path for path in tmp_path.glob("corpus/*/**/*.*") if path.is_file()]
    assert sorted(path.relative_to(tmp_path / "corpus").as_posix() for path in files) == [
        "c/three/src/a.c",
        "python/kept/kept/a.py",
        "python/python-stdlib/os.py",
        "typescript/one+two/src/a.ts",
    ]
    assert (tmp_path / "corpus" / "c" / "three" / "src" / "a.c").read_bytes() == b"int a;\n"
    manifest = json.loads((tmp_path / "corpus" / "sources.json").read_text())
    assert [source["sha256"] for source in manifest] == [one.sha256 for one in found]
    wheel = archives / "kept==1.0" / "kept-1.0-py3-none-any.whl"
    assert found[0].sha256 == hashlib.sha256(wheel.read_bytes()).hexdigest()


def test_every_listed_package_is_pinned_and_none_is_judged_on() -> None:
    listing, judged = read_listing(LISTING), read_listing(LISTING.with_name("evaluation_packages.txt"))
    assert list(listing) == list(CORPUS_LANGUAGES)
    assert listing["python"].pop() == STANDARD_LIBRARY
    for language, requirements in listing.items():
        names = [folder_name(requirement) for requirement in requirements]
        assert len(names) == len(set(names))
        assert all(name != requirement.lstrip("@") for name, requirement in zip(names, requirements, strict=True))
        assert {*map(folder_name, judged.get(language, ()))}.isdisjoint(names)


def test_the_last_licence_that_covers_a_file_holds() -> None:
    grants = read_grants(RIGHTS)
    names = ("src/a.c", "src/gpl/a.c", "src/gpl/deep/a.c", "src/odd.c", "src/gpl/free.c", "share/src/odd.c")
    assert [is_permitted(name, grants) for name in names] == [True, False, False, False, True, False]
    assert read_grants("This package was debianised by someone.\n\nLicense: MIT\n") == []
    assert not is_permitted("a.c", [])


def test_a_licence_is_read_from_expression_then_classifiers_then_text_then_its_file(tmp_path: Path) -> None:
    metadata = email.message.Message()
    metadata["License"] = "Apache License\nVersion 2.0"
    assert licence_of(metadata) == "Apache License"
    metadata["Classifier"] = "License :: OSI Approved :: BSD License"
    assert licence_of(metadata) == "BSD License"
    metadata["License-Expression"] = "MIT"
    assert licence_of(metadata) == "MIT"
    make_wheel(
        tmp_path, "quiet", {"quiet-1.0.dist-info/LICENSE": "Permission is hereby granted,\nfree of charge"}, ""
    )
    assert open_wheel("quiet==1.0", tmp_path)[0].licence == "MIT"


@pytest.mark.parametrize(
    ("licence", "permissive"),
    [
        ("MIT", True),
        ("Apache-2.0 AND Apache-2.0 WITH LLVM-exception", True),
        ("GPL-2+ or Expat", True),
        ("Expat and something", False),
        ("GPL-3.0-only", False),
        ("MIT AND LGPL-2.1", False),
        ("GNU Affero General Public License v3", False),
        ("", False),
    ],
)
def test_only_permissive_licences_pass(licence: str, permissive: bool) -> None:
    assert is_permissive(licence) is permissive


@pytest.mark.parametrize(
    ("names", "kept"),
    [
        (["src/a.ts", "dist/a.js", "dist/a.d.ts", "src/a.d.ts"], ["src/a.ts"]),
        (["lib/a.js", "lib/b.js", "test/types/a.ts"], ["lib/a.js", "lib/b.js"]),
        (["lib/a.ts", "lib/b.ts", "scripts/c.js"], ["lib/a.ts", "lib/b.ts"]),
        (["src/a.js", "lib/a.js"], ["src/a.js"]),
        (["lib/a.js", "umd/a.js", "a.min.js"], ["lib/a.js"]),
    ],
)
def test_sources_and_build_output_are_distinguished_by_name(names: list[str], kept: list[str]) -> None:
    assert select_sources(names) == kept


@pytest.mark.parametrize(
    ("name", "content", "skipped"),
    [
        ("a/b.py", CODE, False),
        ("a/_vendor/b.py", CODE, True),
        ("a/b.py", "x = 1  # y\n" * 20_000, True),
        ("a/b.py", "x = '\0'\n", True),
        ("a/b.py", f"# DO NOT EDIT\n{CODE}", True),
        ("a/b.py", f'"""Trees are generated by parse()."""\n{CODE}', False),
        ("a/b.js", f'"use strict";\nObject.defineProperty(exports, "__esModule", {{}});\n{SCRIPT}', True),
        ("a/b.py", "TABLE = [\n" + "    'abc', 12, 0.5,\n" * 9 + "]\n", True),
        ("a/b.py", f"x = '{'a' * 2000}'\n", True),
        ("a/b.js", ("f(a);" * 40 + "\n") * 5, True),
    ],
)
def test_what_is_not_written_by_hand_is_skipped(name: str, content: str, skipped: bool) -> None:
    assert is_skipped(name, content.encode()) is skipped
    assert is_skipped(name, b"# caf\xe9\n")
    assert not is_table('"""\nSome words, some more words.\n\nAnd more.\n"""\n')


def test_copies_are_skipped_even_with_a_few_lines_changed_and_what_only_begins_alike_is_kept() -> None:
    def content(lines: list[str]) -> bytes:
        return ("\n".join(lines) + "\n").encode()

    text = [f"value_{number} = compute_the_value({number})" for number in range(40)]
    copies = Copies()
    found = [
        copies.is_copy(one)
        for one in (
            b"x = 1\n",
            b"x = 1\n",
            content(text),
            content(["another_line = something_else()", *text[2:]]),
            content(text[5:30]),
            content([*text[:20], *(f"other_{n} = something_else({n})" for n in range(20))]),
            content(text[:5]),
        )
    ]
    assert found == [False, True, False, True, True, False, False]
