"""Of an npm package, handwritten files are read and build output is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from spd_lsp.training.corpus.npm import describe_archive, select_sources, source_files
from tests.training.archives import make_tar


@pytest.mark.parametrize(
    ("names", "kept"),
    [
        (["src/a.ts", "dist/a.js", "dist/a.d.ts", "src/a.d.ts"], ["src/a.ts"]),
        (
            ["lib/a.js", "lib/b.js", "lib/c.js", "lib/d.js", "types/index.ts"],
            ["lib/a.js", "lib/b.js", "lib/c.js", "lib/d.js"],
        ),
        (["lib/a.js", "lib/b.js", "test/types/a.ts"], ["lib/a.js", "lib/b.js"]),
        (["lib/a.ts", "lib/b.ts", "scripts/c.js"], ["lib/a.ts", "lib/b.ts"]),
        (["actions/a.ts", "_esm/a.js", "actions/a.d.ts"], ["actions/a.ts"]),
        (["src/a.ts", "lib/a.js", "lib/a.mjs"], ["src/a.ts"]),
        (["src/a.js", "lib/a.js"], ["src/a.js"]),
        (["compat/src/a.js", "src/b.js", "dist/b.js"], ["compat/src/a.js", "src/b.js"]),
        (["lib/a.js", "umd/a.js", "a.min.js"], ["lib/a.js"]),
        (["src/a.ts", "src/a.js"], ["src/a.ts"]),
    ],
)
def test_sources_and_build_output_are_distinguished_by_name(names: list[str], kept: list[str]) -> None:
    assert select_sources(names) == kept


@pytest.mark.parametrize(
    ("stated", "licence"),
    [
        ('"license": "MIT"', "MIT"),
        ('"license": {"type": "ISC"}', "ISC"),
        ('"licenses": [{"type": "MIT"}, {"type": "GPL-2.0"}]', "MIT OR GPL-2.0"),
        ('"main": "index.js"', ""),
    ],
)
def test_every_form_of_a_licence_field_is_read(tmp_path: Path, stated: str, licence: str) -> None:
    facts = f'{{"name": "a", "version": "1", {stated}}}'
    assert describe_archive(make_tar(tmp_path / "a.tgz", {"package/package.json": facts})).licence == licence


def test_files_are_sorted_and_without_the_archives_folder(tmp_path: Path) -> None:
    archive = make_tar(
        tmp_path / "a.tgz", {"package/src/b.ts": "b\n", "package/src/a.ts": "a\n", "package/a.md": "-"}
    )
    assert source_files(archive) == [("src/a.ts", b"a\n"), ("src/b.ts", b"b\n")]
