"""No file, whatever it holds, costs the others: each is text that can be tokenized, or has a reason."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path

from ngram_builders.sources.filters import read_source_text
from ngram_builders.sources.language_ids import LANGUAGE_BY_EXTENSION

HALF = "\\ud83d"  # the first of two JSON escapes that make an emoji
ENCODINGS = ("utf-8", "utf-8-sig", "utf-16", "utf-32", "latin-1", "cp1252", "shift_jis", "gb18030", "utf-7", "hz")
CODE = "def café(x):\n    return x + 1  # 名前\n"


def encoded(choose: random.Random) -> bytes:
    """Code in some encoding."""
    return CODE.encode(choose.choice(ENCODINGS), "replace")


def surrogates(choose: random.Random) -> bytes:
    """Halves of characters, as an encoder that does not look writes them."""
    text = "".join(choose.choices(["x = 1\n", "\ud83d", "\ude00", "'", "é"], k=40))
    return text.encode("utf-8", "surrogatepass")


def noise(choose: random.Random) -> bytes:
    return choose.randbytes(choose.randint(1, 4_000))


def torn(choose: random.Random) -> bytes:
    """Text that ends, or begins, within a character."""
    data = (CODE * 20).encode()
    return data[choose.randint(0, 40) : choose.randint(41, len(data))]


def controls(choose: random.Random) -> bytes:
    text = "".join(map(chr, choose.choices(range(1, 0x300), k=400)))
    return f"{text}\u2028\u202e\ufeff\U0010ffff".encode()


def deep(choose: random.Random) -> bytes:
    return choose.choice((b"[", b'{"cells":', b"(", b"<!--", b"/*")) * choose.choice((1_000, 50_000))


def notebook(choose: random.Random) -> bytes:
    """A notebook with what may stand anywhere in its JSON."""
    odd = ["null", "1", "[]", '{"a": 1}', "1e999", "NaN", "true"]
    odd += [f'"{text}"' for text in ("x = 1\\n", HALF, f"{HALF}\\ude00", "\\u0000")]
    source = choose.choice([choose.choice(odd), f"[{', '.join(choose.choices(odd, k=3))}]"])
    kind = choose.choice(['"code"', '"code"', '"markdown"', "null", "[]"])
    cells = choose.choice([*[f'[{{"cell_type": {kind}, "source": {source}}}]'] * len(odd), *odd])
    return f'{{"cells": {cells}, "metadata": {choose.choice(odd)}}}'.encode()


KINDS: tuple[Callable[[random.Random], bytes], ...] = (encoded, surrogates, noise, torn, controls, deep, notebook)


def hostile_files(per_kind: int) -> Iterator[tuple[str, bytes]]:
    """Names of every kind that is source, and contents."""
    choose = random.Random(0)
    names = [*(f"a.{extension}" for extension in LANGUAGE_BY_EXTENSION), "Dockerfile", "Makefile", "a.json"]
    for make in KINDS:
        for number in range(per_kind):
            yield f"{make.__name__}{number}_{choose.choice(names)}", make(choose)
            yield f"{make.__name__}{number}_b.ipynb", make(choose)


def test_every_file_is_text_that_can_be_encoded_or_has_a_reason(tmp_path: Path) -> None:
    kept = 0
    for name, data in hostile_files(150):
        path = tmp_path / name
        path.write_bytes(data)
        text, reason = read_source_text(str(path))
        assert text.encode().decode() == text, name
        assert (reason is None) == bool(text), name
        kept += reason is None
    assert kept > 400  # or nothing was tried


def test_halves_of_a_character_are_joined_or_replaced(tmp_path: Path) -> None:
    """Editors save half an emoji where a person deleted the other half."""
    path = tmp_path / "a.ipynb"
    cells = [{"cell_type": "code", "source": f"x = '{half}'"} for half in ("\ud800", "\ud83d\ude00", "a\udc00b")]
    path.write_text(json.dumps({"cells": cells}))
    assert read_source_text(str(path)) == ("x = '\ufffd'\nx = '😀'\nx = 'a\ufffdb'\n", None)
