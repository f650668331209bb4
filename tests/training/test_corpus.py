"""The corpus has only permissive packages, each once, and a manifest with the origin of each."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ngram_builders.errors import UserError
from spd_lsp.training.corpus import package, wheels
from spd_lsp.training.corpus.gather import CORPUS_LANGUAGES, folder_name, gather, read_listing
from spd_lsp.training.recipe import LISTING
from tests.training.archives import CODE, make_tar, make_wheel

SCRIPT = "export function add(a: number, b: number): number {\n  return a + b;\n}\n"


@pytest.fixture
def lib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A standard library of three files, one of them worth reading."""
    lib = tmp_path / "lib"
    for name in ("os.py", "test/test_os.py", "site-packages/other.py"):
        (lib / name).parent.mkdir(parents=True, exist_ok=True)
        (lib / name).write_text(f"name = {name!r}\n")
    monkeypatch.setattr(wheels.sysconfig, "get_path", lambda name: str(lib))
    return lib


def test_gathering_keeps_permissive_packages_and_the_standard_library(tmp_path: Path, lib: Path) -> None:
    """The archives are there already, so nothing is fetched."""
    archives = tmp_path / "archives"
    make_wheel(archives, "kept", {"kept/a.py": CODE, "kept/copy.py": CODE, "kept/notes.txt": "no code"})
    make_wheel(archives, "closed", {"closed/a.py": "x = 2\n"}, "License-Expression: GPL-3.0-only\n")
    listing = tmp_path / "listing.txt"
    listing.write_text("# two packages\n[python]\nkept==1.0\nclosed==1.0\n")

    kept, closed, library = gather(listing, archives, tmp_path / "corpus")

    assert (kept.files, kept.left_out) == (1, {"duplicate": 1})
    assert closed.files == 0
    assert "licence" in closed.skipped
    assert (library.licence, library.files) == ("PSF-2.0", 1)
    found = sorted(path.relative_to(tmp_path / "corpus").as_posix() for path in tmp_path.glob("corpus/**/*.py"))
    assert found == ["python/kept/kept/a.py", "python/python-stdlib/os.py"]
    manifest = json.loads((tmp_path / "corpus" / "sources.json").read_text())
    assert [source["sha256"] for source in manifest] == [kept.sha256, closed.sha256, library.sha256]


def test_copies_of_held_out_files_are_left_out(tmp_path: Path) -> None:
    """Wherever they are: a package may contain another one."""
    near = "".join(f"a_long_enough_line_{number} = {number}\n" for number in range(20))
    make_wheel(tmp_path, "kept", {"kept/a.py": CODE, "kept/b.py": near + "x = 1\n", "kept/c.py": "y = 2\n"})
    (tmp_path / "listing.txt").write_text("[python]\nkept==1.0\n")
    for name, text in (("one/a.py", CODE), ("two/b.py", near)):
        (tmp_path / "judged" / name).parent.mkdir(parents=True)
        (tmp_path / "judged" / name).write_text(text)
    folders = [tmp_path / "judged" / name for name in ("one", "two")]
    (kept,) = gather(tmp_path / "listing.txt", tmp_path, tmp_path / "corpus", library=False, held_out=folders)
    assert (kept.files, kept.left_out) == (1, {"duplicate": 1, "near duplicate": 1})


def test_every_language_is_fetched_from_its_package_index(tmp_path: Path) -> None:
    archives = tmp_path / "archives"
    facts = '{"name": "@one/two", "version": "1.2.3", "license": "MIT"}'
    make_tar(
        archives / "@one+two@1.2.3" / "one-two-1.2.3.tgz",
        {"package/package.json": facts, "package/src/a.ts": SCRIPT},
    )
    rights = (
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\nFiles: *\nLicense: Expat\n"
    )
    make_tar(archives / "three=1-2" / "three_1-2.debian.tar.gz", {"debian/copyright": rights})
    make_tar(archives / "three=1-2" / "three_1.orig.tar.gz", {"three-1/a.c": "int x;\n", "three-1/a.py": CODE})
    listing = tmp_path / "listing.txt"
    listing.write_text("[typescript]\n@one/two@1.2.3\n[c]\nthree=1-2\n")

    script, native = gather(listing, archives, tmp_path / "corpus", library=False)

    assert (script.name, script.version, script.licence, script.language) == (
        "@one/two",
        "1.2.3",
        "MIT",
        "typescript",
    )
    assert (native.name, native.version, native.licence, native.language) == ("three", "1-2", "Expat", "c")
    assert (tmp_path / "corpus" / "typescript" / "one+two" / "src" / "a.ts").read_text() == SCRIPT
    assert [path.name for path in (tmp_path / "corpus" / "c").rglob("*.*")] == ["a.c"]


def test_line_ends_are_normalized(tmp_path: Path) -> None:
    make_wheel(tmp_path, "kept", {"kept/a.py": "\ufeffx = 1\r\ny = 2\rz = 3\n"})
    (tmp_path / "listing.txt").write_text("[python]\nkept==1.0\n")
    list(gather(tmp_path / "listing.txt", tmp_path, tmp_path / "corpus", library=False))
    assert (tmp_path / "corpus/python/kept/kept/a.py").read_bytes() == b"x = 1\ny = 2\nz = 3\n"


def test_every_listed_package_is_pinned_and_listed_once() -> None:
    listing = read_listing(LISTING)
    assert list(listing) == list(CORPUS_LANGUAGES)
    for requirements in listing.values():
        names = [folder_name(requirement) for requirement in requirements]
        assert len(names) == len(set(names))
        assert all(name != requirement.lstrip("@") for name, requirement in zip(names, requirements, strict=True))
    assert len(listing["python"]) == 47


def test_evaluation_packages_are_not_trained_on() -> None:
    learnt, judged = read_listing(LISTING), read_listing(LISTING.with_name("evaluation_packages.txt"))
    assert set(judged) == set(CORPUS_LANGUAGES) - {"python"}
    for language, requirements in judged.items():
        assert len(requirements) == 3
        assert {*map(folder_name, requirements)}.isdisjoint(map(folder_name, learnt[language]))


def test_a_list_that_names_an_unknown_language_is_refused(tmp_path: Path) -> None:
    (tmp_path / "listing.txt").write_text("[cobol]\nsome==1\n")
    with pytest.raises(UserError, match=r"unknown language \[cobol\].*known are python"):
        read_listing(tmp_path / "listing.txt")


@pytest.mark.parametrize(
    ("requirement", "name"),
    [("torch==2.1", "torch"), ("@trpc/server@11.4.3", "trpc+server"), ("rxjs@7.8.2", "rxjs"), ("a=1:2~b", "a")],
)
def test_folders_are_named_for_packages(requirement: str, name: str) -> None:
    assert folder_name(requirement) == name


def test_a_package_that_cannot_be_fetched_is_reported_in_one_sentence(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import sys; sys.exit('ERROR: No matching distribution found for kept==1.0')"]
    with pytest.raises(UserError, match=r"No matching distribution found for kept==1\.0.*run this again"):
        package.fetch_archives(command, "kept==1.0", tmp_path, "*.whl", "pip")


def test_a_missing_program_is_reported_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no archive of kept@1: npm exited with status 127 \(not installed\)"):
        package.fetch_archives(["no-such-program"], "kept@1", tmp_path, "*.tgz", "npm")


def test_a_downloaded_archive_is_not_fetched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = make_wheel(tmp_path, "kept", {})
    monkeypatch.setattr(package.subprocess, "run", None)
    assert wheels.download_wheel("kept==1.0", tmp_path) == wheel


def test_a_debian_package_is_read_like_a_tar_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """dpkg-deb unpacks it; what it prints is a tar archive."""
    tar = make_tar(tmp_path / "a.tar", {"./usr/share/doc/a/copyright": "free", "./usr/share/a.rs": "fn f() {}\n"})
    done = subprocess.CompletedProcess([], 0, tar.read_bytes(), b"")
    monkeypatch.setattr(package.subprocess, "run", lambda *given, **options: done)
    found = package.read_archive(tmp_path / "a.deb", lambda name: name.endswith(".rs"))
    assert found == [("share/a.rs", b"fn f() {}\n")]
