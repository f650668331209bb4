"""A GGUF file's header is read within its bounds: truncated and crafted files are refused in a sentence."""

from __future__ import annotations

import struct

import pytest

from ngram_builders.errors import UserError
from spd_lsp.models.llama import header
from spd_lsp.models.llama.header import read_header, read_short_header

TEXT, LIST, U32, U64 = 8, 9, 4, 10


def text(content: bytes, length: int | None = None) -> bytes:
    return struct.pack("<Q", len(content) if length is None else length) + content


def pair(name: bytes, kind: int, value: bytes) -> bytes:
    return text(name) + struct.pack("<I", kind) + value


ARCHITECTURE = pair(b"general.architecture", TEXT, text(b"qwen2"))


def gguf(*pairs: bytes, tensors: bytes = b"", count: int = 0, names: int | None = None, version: int = 3) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", version, count, len(pairs) if names is None else names)
    return head + b"".join(pairs) + tensors


def tensor(shape: list[int], kind: int = 0, offset: int = 0, dimensions: int | None = None) -> bytes:
    sizes = struct.pack(f"<I{len(shape)}Q", len(shape) if dimensions is None else dimensions, *shape)
    return text(b"token_embd.weight") + sizes + struct.pack("<IQ", kind, offset)


def many(kind: int, count: int, content: bytes) -> bytes:
    return struct.pack("<IQ", kind, count) + content


def test_what_a_file_says_of_itself(tmp_path):
    file = tmp_path / "m.gguf"
    numbers = pair(b"tokenizer.ggml.token_type", LIST, many(U32, 3, struct.pack("<3I", 1, 3, 1)))
    names = pair(b"tokenizer.ggml.tokens", LIST, many(TEXT, 2, text(b"a") + text("é".encode())))
    size = pair(b"qwen2.context_length", U32, struct.pack("<I", 512))
    file.write_bytes(gguf(ARCHITECTURE, numbers, names, size, tensors=tensor([4, 2]), count=1) + bytes(128))
    found = read_header(file)
    assert (found.architecture, found.number("context_length")) == ("qwen2", 512)
    assert found.metadata["tokenizer.ggml.token_type"].tolist() == [1, 3, 1]
    assert found.metadata["tokenizer.ggml.tokens"] == ["a", "é"]
    [info] = found.tensors.values()
    assert info.offset % 32 == 0


def test_the_digest_tells_files_apart(tmp_path):
    one, two = tmp_path / "1.gguf", tmp_path / "2.gguf"
    one.write_bytes(gguf(ARCHITECTURE))
    two.write_bytes(gguf(ARCHITECTURE, pair(b"x", U32, bytes(4))))
    assert read_header(one).digest == read_header(one).digest != read_header(two).digest


HUGE = 1 << 62


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"GGU",
        b"PK\x03\x04" + bytes(64),
        gguf(ARCHITECTURE, version=1),
        gguf(ARCHITECTURE, version=3 << 24),  # the other byte order
        gguf(),
        gguf(ARCHITECTURE, names=HUGE),
        gguf(ARCHITECTURE, count=HUGE),
        gguf(ARCHITECTURE, names=2),
        gguf(pair(b"general.architecture", U32, bytes(4))),
        gguf(ARCHITECTURE, text(b"x", HUGE)),
        gguf(ARCHITECTURE, pair(b"x", TEXT, text(b"", HUGE))),
        gguf(ARCHITECTURE, pair(b"x", 77, b"")),
        gguf(ARCHITECTURE, pair(b"x", LIST, many(77, 1, b""))),
        gguf(ARCHITECTURE, pair(b"x", LIST, many(LIST, 1, many(U32, 1, bytes(4))))),
        gguf(ARCHITECTURE, pair(b"x", LIST, many(U32, HUGE, bytes(64)))),
        gguf(ARCHITECTURE, pair(b"x", LIST, many(TEXT, HUGE, bytes(64)))),
        gguf(ARCHITECTURE, pair(b"x", LIST, many(TEXT, 2, text(b"a") + text(b"b", HUGE)))),
        gguf(ARCHITECTURE, pair(b"\xff\xfe", U32, bytes(4))),
        gguf(ARCHITECTURE, pair(b"general.alignment", U32, bytes(4))),
        gguf(ARCHITECTURE, tensors=tensor([4], dimensions=1 << 31), count=1),
        gguf(ARCHITECTURE, tensors=tensor([4], offset=HUGE), count=1),
    ],
)
def test_a_crafted_file_is_refused_in_a_sentence(content, tmp_path):
    file = tmp_path / "m.gguf"
    file.write_bytes(content)
    with pytest.raises(UserError, match=r"m\.gguf is not a usable GGUF file: .*; fetch it again"):
        read_header(file)


def test_a_header_cut_off_anywhere_is_refused(tmp_path):
    file = tmp_path / "m.gguf"
    names = pair(b"tokenizer.ggml.tokens", LIST, many(TEXT, 2, text(b"a") + text(b"b")))
    whole = gguf(ARCHITECTURE, names, tensors=tensor([4, 2]), count=1)
    for end in range(len(whole)):
        file.write_bytes(whole[:end])
        with pytest.raises(UserError):
            read_header(file)


def test_the_header_is_read_once_while_the_file_stays_as_it_is(tmp_path, monkeypatch):
    file, other = tmp_path / "1.gguf", tmp_path / "2.gguf"
    names = pair(b"tokenizer.ggml.tokens", LIST, many(TEXT, 2, text(b"a") + text(b"b")))
    size = pair(b"qwen2.context_length", U32, struct.pack("<I", 512))
    file.write_bytes(gguf(ARCHITECTURE, names, size))
    other.write_bytes(gguf(ARCHITECTURE, pair(b"x", U32, bytes(4))))
    whole = read_header(file)
    with monkeypatch.context() as patch:
        patch.setattr(header, "_read_file", lambda path: pytest.fail("read again"))
        short = read_short_header(file)
    assert (short.digest, short.number("context_length")) == (whole.digest, 512)
    assert "tokenizer.ggml.tokens" not in short.metadata  # memory is not kept for it
    assert read_short_header(other).digest == read_header(other).digest
    file.write_bytes(gguf(ARCHITECTURE, size) + bytes(32))
    assert read_short_header(file).digest not in (whole.digest, read_header(other).digest)
    file.unlink()
    with pytest.raises(UserError, match=r"cannot read .*1\.gguf: No such file"):
        read_short_header(file)
