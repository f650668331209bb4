"""Export the starter: from a checkpoint, a tokenizer and the manifest to a Hugging Face folder.

Weights are stored as float16. The model card states their losses and what they were made from; training.json lists
every source with its licence and digest.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

from spd_lsp.training import checkpoint
from spd_lsp.training.corpus.gather import CORPUS_LANGUAGES
from spd_lsp.training.tokenizer import END, PAD, SPECIAL, VOCABULARY
from spd_lsp.training.train import load_exported
from spd_lsp.training.validation import KINDS, HeldOutLoss, measure_held_out

_CARD = Path(__file__).with_name("card.md")


@dataclass(frozen=True, slots=True)
class ExportedWeights:
    """The weights to export: a run's last checkpoint, averaged with exported models that share its beginning.

    The average with the run's start, or with earlier ends of the run, can be better than each of them (Wortsman et
    al., CVPR 2022 and ICML 2022).
    """

    run: Path  # folder of the checkpoint
    averaged: Mapping[Path, float] = field(default_factory=dict)  # exported model -> share of the average

    def load(self, config: LlamaConfig) -> tuple[LlamaForCausalLM, dict[str, Any]]:
        """Return a model with these weights, and the progress of the run."""
        model = LlamaForCausalLM(config)
        progress = checkpoint.load(self.run, model, {})
        own = 1 - sum(self.averaged.values())
        for parameter in model.parameters():
            parameter.data.mul_(own)
        for folder, share in self.averaged.items():
            for parameter, other in zip(model.parameters(), load_exported(folder).parameters(), strict=True):
                parameter.data.add_(other.data, alpha=share)
        return model, progress


def export(config: LlamaConfig, weights: ExportedWeights, tokenizer: Path, out: Path) -> dict[str, Any]:
    """Write weights and tokenizer to `out`. Return the progress of the run and its size."""
    model, progress = weights.load(config)
    progress["parameters"] = sum(parameter.numel() for parameter in model.parameters())
    model.generation_config = GenerationConfig(  # type: ignore[no-untyped-call]
        bos_token_id=SPECIAL.index(END), eos_token_id=SPECIAL.index(END), pad_token_id=SPECIAL.index(PAD)
    )
    model.half().save_pretrained(out)  # type: ignore[no-untyped-call]
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(tokenizer / name, out / name)
    return progress


def measure_exported(out: Path, held_out: Path, tokenizer: Tokenizer) -> dict[str, dict[str, HeldOutLoss]]:
    """Measure the held-out loss of the stored weights, by language and kind of row."""
    model = LlamaForCausalLM.from_pretrained(out, dtype=torch.float32)
    languages = [language for language in CORPUS_LANGUAGES if (held_out / language).is_dir()]
    return {
        language: {kind: measure_held_out(model, held_out / language, kind, tokenizer) for kind in KINDS}
        for language in languages
    }


def round_to_int8(weight: Tensor) -> Tensor:
    """Round each row to multiples of its largest entry / 127; vectors are returned unchanged."""
    if weight.ndim < 2:
        return weight
    scale = (weight.abs().amax(dim=1, keepdim=True) / 127).clamp(min=1e-12)  # [O, 1]
    return (weight / scale).round() * scale


_STORED: dict[str, Callable[[Tensor], Tensor]] = {
    "float32": Tensor.float,
    "float16": Tensor.half,
    "int8, a scale a row": round_to_int8,
}


def measure_storage(
    config: LlamaConfig, weights: ExportedWeights, rows: Path, tokenizer: Tokenizer
) -> dict[str, float]:
    """Measure the cost of lower precision: nats per token of plain code, by storage format of the weights."""
    losses = {}
    for name, narrow in _STORED.items():
        model, _ = weights.load(config)
        for parameter in model.parameters():
            parameter.data.copy_(narrow(parameter.data))
        losses[name] = round(measure_held_out(model, rows, "plain", tokenizer).nats_per_token, 4)
    return losses


def collect_facts(
    plan: Mapping[str, Any],
    progress: Mapping[str, Any],
    measures: Mapping[str, Mapping[str, HeldOutLoss]],
    storage: Mapping[str, float],
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
        "storage": dict(storage),
        "tokenizer": {"vocabulary": tokenizer.get_vocab_size()},
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
    card = _CARD.read_text(encoding="utf-8").format(
        shape=facts["shape"],
        parameters=f"{facts['progress']['parameters'] / 1e6:.1f}",
        vocabulary=f"{facts['tokenizer']['vocabulary']:,}",
        tokens=f"{_total(facts, 'before', 'tokens') / 1e6:.1f}",
        recent=f"{_total(facts, 'tokens') / 1e6:.1f}",
        decayed=_share_of_decay(facts["plan"]),
        commands=commands(facts),
        hours=f"{_total(facts, 'before_seconds', 'seconds') / 3600:.1f}",
        remark=facts["plan"].get("remark", ""),
        losses="\n".join(_loss_line(language, kinds) for language, kinds in facts["validation"].items()),
        storage="\n".join(_storage_line(facts, name, nats) for name, nats in facts["storage"].items()),
        sources="\n".join(_source_lines(facts["sources"])),
    )
    (out / "MODEL_CARD.md").write_text(card, encoding="utf-8")


def _share_of_decay(plan: Mapping[str, Any]) -> str:
    """Say how much of the decay was Python, if that was chosen."""
    share = plan.get("python_share")
    return f"; of the last {plan['decay'] / 1e6:.1f} million, {100 * share:.0f} % were Python" if share else ""


def _total(facts: Mapping[str, Any], *parts: str) -> float:
    """Add up some of a run's numbers; those of its past may be missing."""
    return float(sum(facts["progress"].get(part, 0) for part in parts))


def commands(facts: Mapping[str, Any]) -> str:
    """Return the command that makes the model."""
    plan, progress, size = facts["plan"], facts["progress"], facts["tokenizer"]["vocabulary"]
    command = "python -m spd_lsp.training all --work DIR"
    command += "" if size == VOCABULARY else f" --vocabulary {size}"
    command += _start_options(facts) if "before" in progress else ""
    command += f" --tokens {progress['tokens'] - plan.get('decay', 0)}"
    if plan.get("phase") != "decay":
        return command
    share = plan.get("python_share")
    return f"{command} --decay {plan['decay']}" + (f" --python-share {share}" if share else "")


def _start_options(facts: Mapping[str, Any]) -> str:
    options = f" --from START --layers {facts['shape']['layers']} --rate {facts['plan']['matrix_rate']}"
    averages = (f" --average {name} {share}" for name, share in facts["plan"].get("averaged", {}).items())
    return options + "".join(averages)


def _loss_line(language: str, kinds: Mapping[str, Mapping[str, float]]) -> str:
    """Format a language's losses as a row of the card's table."""
    losses = [f"{kinds[kind][unit]:.3f}" for kind in KINDS for unit in ("nats_per_token", "bits_per_byte")]
    return f"| {language} | {' | '.join(losses)} | {kinds['plain']['tokens']:,} |"


def _storage_line(facts: Mapping[str, Any], name: str, nats: float) -> str:
    """Format a storage format of the weights as a row of the card's table."""
    size = facts["progress"]["parameters"] * {"float32": 4, "float16": 2}.get(name, 1) / 2**20
    return f"| {name} | {size:.1f} | {nats:.4f} |"


def _source_lines(sources: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Format what was used of each language as rows of the card's table."""
    used = [source for source in sources if not source["skipped"]]
    for language in dict.fromkeys(source["language"] for source in used):
        packages = [source for source in used if source["language"] == language]
        files, size = (sum(package[name] for package in packages) for name in ("files", "bytes"))
        yield f"| {language} | {len(packages)} | {files:,} | {size / 1e6:.1f} |"
