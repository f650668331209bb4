"""The model card and NOTICE of a model, from its training.json."""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from pathlib import Path
from typing import Any

_CARD = Path(__file__).with_name("card.md")
_NOTICE_HEAD = """\
spd-lsp
Its own code is under the MIT licence: see LICENSE.

The bundled model was made from the model and the software below. They hold none of their
files, but may spell short parts of them. Their authors keep their copyright. Each line has a name, a version, and
the licence as the package states it; the package holds the authors' names and the licence's text (that of
Apache-2.0 is in LICENSE-APACHE beside this file). Of licences that are offered as alternatives, the permissive one
was accepted. The name and digest of each archive are in training.json, beside this file.

Weights that were trained on:
  SmolLM2-135M-Instruct, by Hugging Face: Apache-2.0
"""


def card(facts: Mapping[str, Any]) -> str:
    """Return the card of a model with this training.json, including the `remark` of its plan."""
    plan, progress = facts["plan"], facts["progress"]
    rows = []
    for language, packages in _used_sources(facts).items():
        files, size = (sum(package[name] for package in packages) for name in ("files", "bytes"))
        rows.append(f"| {language} | {len(packages)} | {files:,} | {size / 1e6:.1f} |")
    return _CARD.read_text(encoding="utf-8").format(
        shape=facts["shape"],
        parameters=f"{progress['parameters'] / 1e6:.1f}",
        vocabulary=f"{facts['tokenizer']['vocabulary']:,}",
        tokens=f"{progress['tokens'] / 1e6:.1f}",
        budget=plan["tokens"],
        decay=plan["decay"],
        hours=f"{progress['seconds'] / 3600:.1f}",
        remark=plan.get("remark", ""),
        sources="\n".join(rows),
    )


def notice(facts: Mapping[str, Any]) -> str:
    """Return the NOTICE of a model with this training.json."""
    lines = [_NOTICE_HEAD]
    for language, packages in sorted(_used_sources(facts).items()):
        lines.append(f"{language}:")
        packages.sort(key=itemgetter("name"))
        lines += [*(f"  {one['name']} {one['version']}: {one['licence']}" for one in packages), ""]
    return "\n".join(lines)


def _used_sources(facts: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """By language, in the order of the corpus."""
    used: dict[str, list[dict[str, Any]]] = {}
    for source in facts["sources"]:
        if not source["skipped"]:
            used.setdefault(source["language"], []).append(source)
    return used
