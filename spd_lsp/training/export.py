"""Export the starter: from a checkpoint, a tokenizer and the manifest to a Hugging Face folder.

Weights are stored as float16. The model card states their losses and what they were made from; training.json lists
every source with its licence and digest.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

from spd_lsp.training.corpus.gather import CORPUS_LANGUAGES
from spd_lsp.training.precision import LowCopy
from spd_lsp.training.tokenizer import END, PAD, SPECIAL
from spd_lsp.training.train import load_exported
from spd_lsp.training.validation import KINDS, HeldOutLoss, measure_held_out

_CARD = Path(__file__).with_name("card.md")
_QUICK_CONTEXT = 384  # tokens that a model of 120 million parameters reads in about a second of one thread


def export(model: LlamaForCausalLM, tokenizer: Path, out: Path) -> None:
    """Write a model and its tokenizer to `out`, in half precision."""
    model.generation_config = GenerationConfig(  # type: ignore[no-untyped-call]
        bos_token_id=SPECIAL.index(END), eos_token_id=SPECIAL.index(END), pad_token_id=SPECIAL.index(PAD)
    )
    model.half().save_pretrained(out)  # type: ignore[no-untyped-call]
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(tokenizer / name, out / name)


def measure_exported(out: Path, held_out: Path, tokenizer: Tokenizer) -> dict[str, dict[str, HeldOutLoss]]:
    """Measure the held-out loss by language and kind of row, of the weights in four bits."""
    model = LowCopy(load_exported(out)).model
    languages = [language for language in CORPUS_LANGUAGES if (held_out / language).is_dir()]
    return {
        language: {kind: measure_held_out(model, held_out / language, kind, tokenizer) for kind in KINDS}
        for language in languages
    }


def collect_facts(
    plan: Mapping[str, Any],
    progress: Mapping[str, Any],
    measures: Mapping[str, Mapping[str, HeldOutLoss]],
    sources: Sequence[Mapping[str, Any]],
    tokenizer: Tokenizer,
    config: LlamaConfig,
) -> dict[str, Any]:
    """Return the facts of the card in machine-readable form."""
    losses = {
        language: {kind: _loss_of(found) for kind, found in kinds.items()} for language, kinds in measures.items()
    }
    return {
        "plan": dict(plan),
        "progress": dict(progress),
        "shape": {
            "layers": config.num_hidden_layers,
            "width": config.hidden_size,
            "heads": config.num_attention_heads,
            "inner": config.intermediate_size,
        },
        "validation": losses,
        "tokenizer": {"vocabulary": tokenizer.get_vocab_size()},
        "settings": {"context_tokens": _QUICK_CONTEXT},
        "sources": list(sources),
    }


def _loss_of(found: HeldOutLoss) -> dict[str, float]:
    return {
        "nats_per_token": round(found.nats_per_token, 4),
        "bits_per_byte": round(found.bits_per_byte, 4),
        "tokens": found.tokens,
        "bytes": found.bytes,
    }


def write_card(out: Path, facts: Mapping[str, Any]) -> None:
    """Write MODEL_CARD.md and training.json; a `remark` in the run's plan.json appears on the card."""
    (out / "training.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    plan = facts["plan"]
    progress = facts["progress"]
    card = _CARD.read_text(encoding="utf-8").format(
        shape=facts["shape"],
        parameters=f"{progress['parameters'] / 1e6:.1f}",
        vocabulary=f"{facts['tokenizer']['vocabulary']:,}",
        tokens=f"{progress['tokens'] / 1e6:.1f}",
        budget=plan["tokens"],
        decay=plan["decay"],
        hours=f"{progress['seconds'] / 3600:.1f}",
        remark=plan.get("remark", ""),
        losses="\n".join(_loss_line(language, kinds) for language, kinds in facts["validation"].items()),
        sources="\n".join(_source_lines(facts["sources"])),
    )
    (out / "MODEL_CARD.md").write_text(card, encoding="utf-8")


def _loss_line(language: str, kinds: Mapping[str, Mapping[str, float]]) -> str:
    """Format a language's losses as a row of the card's table."""
    losses = [f"{kinds[kind][unit]:.3f}" for kind in KINDS for unit in ("nats_per_token", "bits_per_byte")]
    return f"| {language} | {' | '.join(losses)} | {kinds['plain']['tokens']:,} |"


def _source_lines(sources: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Format what was used of each language as rows of the card's table."""
    used = [source for source in sources if not source["skipped"]]
    for language in dict.fromkeys(source["language"] for source in used):
        packages = [source for source in used if source["language"] == language]
        files, size = (sum(package[name] for package in packages) for name in ("files", "bytes"))
        yield f"| {language} | {len(packages)} | {files:,} | {size / 1e6:.1f} |"
