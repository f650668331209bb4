"""Bytes become the text of an editor, and nothing else is read: no pipe, no link, nothing too large."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngram_builders.sources.filters import (
    MAX_SOURCE_BYTES,
    NotSource,
    decode_source,
    describe_secrets,
    normalize_line_ends,
    read_file,
)
from tests.planted import lines


@given(lines=st.lists(st.text(st.characters(exclude_characters="\r\n")), min_size=1), data=st.data())
def test_every_line_end_becomes_a_line_feed(lines: list[str], data: st.DataObject) -> None:
    ends = data.draw(st.lists(st.sampled_from(["\n", "\r\n"]), min_size=len(lines), max_size=len(lines)))
    text = "".join(line + end for line, end in zip(lines, ends, strict=True))
    assert normalize_line_ends(text) == "".join(f"{line}\n" for line in lines)
    assert normalize_line_ends("a\rb") == "a\nb"


def test_a_byte_order_mark_is_not_part_of_the_text() -> None:
    assert decode_source("\ufeffx = 1\r\n".encode()) == ("x = 1\n", None)
    assert decode_source("\ufeff".encode()) == ("", "empty")


def test_a_file_of_the_maximum_size_is_read_and_one_byte_more_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(b"x" * MAX_SOURCE_BYTES)
    assert len(read_file(str(tmp_path / "a.py"))) == MAX_SOURCE_BYTES
    (tmp_path / "a.py").write_bytes(b"x" * (MAX_SOURCE_BYTES + 1))
    with pytest.raises(NotSource, match="larger than 1 MB"):
        read_file(str(tmp_path / "a.py"))


def test_secrets_are_described_by_line_as_an_editor_counts_them(tmp_path: Path) -> None:
    line, _ = lines()["GitHub"]
    (tmp_path / "a.py").write_bytes(f"\ufeffimport os\r\r\n{line}\r\n".encode())
    assert describe_secrets(str(tmp_path / "a.py")) == {3: "GitHub token"}
    assert describe_secrets(str(tmp_path / "missing.py")) == {}
