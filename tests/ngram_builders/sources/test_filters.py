"""Bytes become the text of an editor, and nothing else is read: no pipe, no link, nothing too large."""

from __future__ import annotations

import json
import zlib
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
    read_source_text,
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


@pytest.mark.parametrize(
    ("declaration", "encoding"),
    [
        ("# -*- coding: latin-1 -*-", "latin-1"),
        ("#!/usr/bin/python\n# vim: set fileencoding=cp1252 :", "cp1252"),
        ("# coding: koi8-r", "koi8-r"),
        ("# coding=shift_jis", "shift_jis"),
        ("// -*- coding: euc-jp -*-", "euc-jp"),
        ('<?xml version="1.0" encoding="ISO-8859-15"?>', "iso8859-15"),
    ],
)
def test_declared_encodings_are_read(declaration: str, encoding: str) -> None:
    """As PEP 263 has it for Python, and editors for all languages."""
    words = {"koi8-r": "имя", "shift_jis": "名前を示す", "euc-jp": "名前を示す"}
    text = f"{declaration}\nname = '{words.get(encoding, 'café')}'\n"
    assert decode_source(text.encode(encoding)) == (text, None)


@pytest.mark.parametrize(
    "declaration", ["# coding: rot13", "# coding: punycode", "# coding: utf-7", "# coding: no"]
)
def test_bytes_in_no_declared_encoding_of_characters_are_no_source(declaration: str) -> None:
    assert decode_source(f"{declaration}\nname = 'café'\n".encode("latin-1")) == ("", "unknown encoding")


@pytest.mark.parametrize(
    ("encoding", "comment"),
    [
        ("utf-16", "名前 café"),
        ("latin-1", "café"),
        ("latin-1", "\xa9 2004"),
        ("cp1252", "François’s clés, déjà enregistrées"),
        ("gbk", "获取名称，错误处理"),
        ("cp932", "この関数は名前を登録します。"),
    ],
)
def test_encodings_that_nothing_declares_are_told_by_their_bytes(encoding: str, comment: str) -> None:
    text = f"{'x = compute(y)' * 3}\n" * 99 + f"# {comment}\nname = 'a'\n"
    assert decode_source(text.encode(encoding)) == (text, None)


@pytest.mark.parametrize(
    "data", [b"\xfe\xff\xd8", b"\x7fELF\x02\x01\xff", zlib.compress(b"x = 1").replace(b"\0", b"")]
)
def test_bytes_of_programs_are_no_text(data: bytes) -> None:
    assert decode_source(data) == ("", "unknown encoding")


def notebook(*cells: tuple[str, str | list[str]], **rest: object) -> bytes:
    listed = [{"cell_type": kind, "source": source, "outputs": [{"text": "x" * 99}]} for kind, source in cells]
    return json.dumps({"cells": listed, "metadata": {}, "nbformat": 4, **rest}).encode()


def test_a_notebook_is_its_code(tmp_path: Path) -> None:
    data = notebook(
        ("code", ["import os\n", "os.getcwd()"]),
        ("markdown", "# Title"),
        ("code", "%%bash\nls"),
        ("code", ""),
        ("code", "%%time\nprint('é')\n"),
    )
    code = "import os\nos.getcwd()\n%%time\nprint('é')\n\n"
    assert decode_source(data, "a.ipynb") == (code, None)
    (tmp_path / "a.ipynb").write_bytes(data + b" " * MAX_SOURCE_BYTES)
    assert read_source_text(str(tmp_path / "a.ipynb")) == (code, None)
    assert decode_source(notebook(("markdown", "x")), "a.ipynb") == ("", "empty")


@pytest.mark.parametrize(
    "data",
    [b"{", b"[]", b"5", b'{"cells": 5}', b'{"cells": [5]}', b'{"cells": [{"cell_type": "code"}]}', b"[" * 100_000,
     b'{"cells": [{"cell_type": "code", "source": [5]}]}'],
)  # fmt: skip
def test_a_damaged_notebook_is_no_source(data: bytes) -> None:
    assert decode_source(data, "a.ipynb") == ("", "damaged notebook")


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
