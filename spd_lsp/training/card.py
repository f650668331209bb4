"""Writes the model card, NOTICE and training.json: every setting, and every source with its licence and digest."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from transformers import LlamaConfig

_CARD = Path(__file__).with_name("card.md")
_QUICK_CONTEXT = 384  # tokens that a model of 120 million parameters reads in about a second of one thread


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


def write_card(out: Path, facts: dict[str, Any], config: LlamaConfig) -> None:
    """Write MODEL_CARD.md and training.json for a model of this shape."""
    facts["shape"] = {
        "layers": config.num_hidden_layers,
        "width": config.hidden_size,
        "heads": config.num_attention_heads,
        "inner": config.intermediate_size,
    }
    facts["tokenizer"] = {"vocabulary": config.vocab_size}
    facts["settings"] = {"context_tokens": _QUICK_CONTEXT}
    (out / "training.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    (out / "MODEL_CARD.md").write_text(card(facts), encoding="utf-8")


def card(facts: Mapping[str, Any]) -> str:
    """The card of a model of which training.json says this; `remark` in its plan appears there."""
    plan = facts["plan"]
    progress = facts["progress"]
    return _CARD.read_text(encoding="utf-8").format(
        shape=facts["shape"],
        parameters=f"{progress['parameters'] / 1e6:.1f}",
        vocabulary=f"{facts['tokenizer']['vocabulary']:,}",
        tokens=f"{progress['tokens'] / 1e6:.1f}",
        budget=plan["tokens"],
        decay=plan["decay"],
        hours=f"{progress['seconds'] / 3600:.1f}",
        remark=plan.get("remark", ""),
        sources="\n".join(_source_lines(facts["sources"])),
    )


def _source_lines(sources: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Format what was used of each language as rows of the card's table."""
    used = [source for source in sources if not source["skipped"]]
    for language in dict.fromkeys(source["language"] for source in used):
        packages = [source for source in used if source["language"] == language]
        files, size = (sum(package[name] for package in packages) for name in ("files", "bytes"))
        yield f"| {language} | {len(packages)} | {files:,} | {size / 1e6:.1f} |"


def notice(training: Mapping[str, Any]) -> str:
    """The text for a model trained as `training.json` says."""
    used = sorted((one for one in training["sources"] if not one["skipped"]), key=itemgetter("language", "name"))
    lines = [_NOTICE_HEAD]
    for language, group in groupby(used, itemgetter("language")):
        lines += [f"{language}:", *(f"  {one['name']} {one['version']}: {one['licence']}" for one in group), ""]
    return "\n".join(lines)
