"""Code that stands elsewhere at another level of indentation, over real pipes and with the bundled model."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import pytest

from tests.lsp.lsp_client import at, texts
from tests.lsp.test_server_process import COMPLETION, serving

BEGUN = "quagga = frob.quench(depth=4)\nwhile quagga:\n"
BLOCK = "    zygote.kindle(quagga)\n    quagga = None\n"
# They begin as the block does, at the cursor's level.
OTHERS = "".join(f"def f{n}(x):\n    x = n + {n}\n    while quagga:\n        print(x)\n\n\n" for n in range(3))


def nested(code: str, levels: int, names: str) -> str:
    """Code within so many functions."""
    heads = "".join(f"{'    ' * n}def {names}{n}(x):\n" for n in range(levels))
    return heads + indent(code, "    " * levels)


@pytest.mark.slow
@pytest.mark.parametrize(("here", "elsewhere", "step"), [(1, 2, "    "), (2, 1, "\t")])
async def test_a_block_that_stands_at_another_level_is_completed_at_that_of_the_cursor(
    tmp_path: Path, here: int, elsewhere: int, step: str
):
    known = OTHERS + nested(BEGUN + BLOCK + "return zygote\n", elsewhere, "g")
    text = f"{known}\n\n{nested(BEGUN, here, 'h')}{'    ' * (here + 1)}".replace("    ", step)
    async with serving(tmp_path) as (_, editor):
        editor.open(text)
        answer = await editor.request(COMPLETION, at(text.count("\n"), len(step) * (here + 1)))
        assert f"zygote.kindle(quagga)\n{step * (here + 1)}quagga = None" in texts(answer)
