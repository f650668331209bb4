"""No file, whatever it holds, costs the others: each is text that can be tokenized, or has a reason."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

from ngram_builders.sources.filters import read_source_text

ENCODINGS = ("utf-8", "utf-8-sig", "utf-16", "utf-32", "latin-1", "cp1252", "shift_jis", "gb18030", "utf-7", "hz")
CODE = "def café(x):\n    return x + 1  # 名前\n"


def encoded(choose: random.Random) -> bytes:
    """Code in some encoding, from or up to somewhere, perhaps within a character."""
    data = (CODE * 20).encode(choose.choice(ENCODINGS), "replace")
    return data[choose.randint(0, 40) : choose.randint(41, len(data))]


def surrogates(choose: random.Random) -> bytes:
    """Halves of characters, as an encoder that does not look writes them."""
    text = "".join(choose.choices(["x = 1\n", "\ud83d", "\ude00", "'", "é", "\x01", "\u202e", "\ufeff"], k=40))
    return text.encode("utf-8", "surrogatepass")


def noise(choose: random.Random) -> bytes:
    return choose.randbytes(choose.randint(1, 4_000))


def notebook(choose: random.Random) -> bytes:
    """A notebook with what may stand anywhere in its JSON."""
    half = "\\ud83d"  # the first of two escapes that make an emoji
    odd = ["null", "1", "[]", '{"a": 1}', "1e999", "NaN", "true", "[" * 50_000]
    odd += [f'"{text}"' for text in ("x = 1\\n", half, f"{half}\\ude00", "\\u0000")]
    source = choose.choice([choose.choice(odd), f"[{', '.join(choose.choices(odd, k=3))}]"])
    kind = choose.choice(['"code"', '"code"', '"markdown"', "null", "[]"])
    cells = choose.choice([*[f'[{{"cell_type": {kind}, "source": {source}}}]'] * len(odd), *odd])
    return f'{{"cells": {cells}, "metadata": {choose.choice(odd)}}}'.encode()


KINDS: tuple[Callable[[random.Random], bytes], ...] = (encoded, surrogates, noise, notebook)


def test_every_file_is_text_that_can_be_encoded_or_has_a_reason(tmp_path: Path) -> None:
    choose, kept = random.Random(0), 0
    for number in range(150 * len(KINDS)):
        data = KINDS[number % len(KINDS)](choose)
        for name in ("a.py", "a.ipynb"):
            (tmp_path / name).write_bytes(data)
            text, reason = read_source_text(str(tmp_path / name))
            assert text.encode().decode() == text
            assert (reason is None) == bool(text)
            kept += reason is None
    assert kept > 100  # or nothing was tried


def test_halves_of_a_character_are_joined_or_replaced(tmp_path: Path) -> None:
    """Editors save half an emoji where a person deleted the other half."""
    path = tmp_path / "a.ipynb"
    cells = [{"cell_type": "code", "source": f"x = '{half}'"} for half in ("\ud800", "\ud83d\ude00", "a\udc00b")]
    path.write_text(json.dumps({"cells": cells}))
    assert read_source_text(str(path)) == ("x = '\ufffd'\nx = '😀'\nx = 'a\ufffdb'\n", None)
