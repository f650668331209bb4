"""Secrets of an indexed repository are not offered with a model that people use, wherever one would go on."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from spd_lsp.cli import main
from spd_lsp.completion.loading import load_completer
from spd_lsp.settings import Settings
from tests.planted import lines

CODE = "import os\n\n\ndef connect(url):\n    return os.popen(url)\n\n\n"


@pytest.mark.slow
def test_no_half_of_a_secret_is_offered_where_it_would_go_on(smollm2: Path, tmp_path: Path) -> None:
    """The table is built from files with every kind of secret; a new file there begins each line anew."""
    shop = tmp_path / "shop"
    shop.mkdir()
    for number in range(3):
        said = "".join(f"{line}\nname{number} = {number}\n" for line, _ in lines().values())
        (shop / f"settings{number}.py").write_text(f"{CODE}{said}end = {number}\n")
    data = str(tmp_path / "data")
    built = CliRunner().invoke(main, ["--data-dir", data, "build-ngrams", str(shop), "--model", str(smollm2)])
    assert built.exit_code == 0, built.output
    settings = Settings(model=str(smollm2), data_dir=data, drafts=3, max_tokens=24, indexing="off")
    completer = load_completer(settings, lambda text: None)
    offered, back = 0, []
    for what, (line, secret) in lines().items():
        start = line[: line.index(secret)]
        for typed, above in ((0, ""), (2, ""), (5, ""), (0, f"{line}\nx = 1\n\n")):  # above: the file says it, too
            text = CODE + above + start + secret[:typed]
            answer = completer.complete(text, len(text), "python", shop / "new.py", explicit=True)
            offered += len(answer.completions)
            whole = [secret[:typed] + one.text for one in answer.completions]
            back += [(what, typed, above) for one in whole if _has_half(one, secret, typed)]
    assert offered > len(lines()), "there is no answer that could hold one"
    assert not back


def _has_half(text: str, secret: str, typed: int) -> bool:
    """Whether a text holds half of a secret in a row, beside what was typed."""
    size = max(-(-len(secret) // 2), typed + 2)
    return any(secret[i : i + size] in text for i in range(len(secret) - size + 1))
