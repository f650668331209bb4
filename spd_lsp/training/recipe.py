"""The steps of the recipe over one work folder: each reads what the one before left there and is done only once.

corpus/ -> tokenizer/ -> rows/ -> run/ -> the exported folder -> a phase, superposed/ or longer/ -> exported again
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from transformers import LlamaConfig

from ngram_builders.tables import TableSummary
from spd_lsp.settings import UserError
from spd_lsp.tokens import Tokens
from spd_lsp.training.corpus import Source, gather
from spd_lsp.training.export import export, measure_exported, measure_storage, record, write_card
from spd_lsp.training.ngrams import encode_packages, write_domain
from spd_lsp.training.rows import read, write_held_out, write_learnt
from spd_lsp.training.selection import Selection, is_held_out, select
from spd_lsp.training.superposed import superposed_loss
from spd_lsp.training.tokenizer import MERGES, VOCABULARY, learn_tokenizer, open_tokenizer, save_tokenizer
from spd_lsp.training.train import Objective, Plan, Progress, plain_loss, starter_config, train

LISTING = Path(__file__).with_name("corpus.txt")
LENGTH = 1_024
TOKENIZER_BYTES = 70_000_000  # of source text the merges are learnt from
ROWS_BYTES = 100_000_000  # of source text that is encoded: 24 million tokens
HELD_OUT_FILES = 120  # of those held out, for the loss
PHASES: dict[str, Objective] = {"superposed": superposed_loss, "longer": plain_loss}
SMALL_RATE = 0.006  # of matrices in a phase; embeddings learn at 0.3 of it, as in a run


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A work folder and the settings that its contents follow from."""

    work: Path
    listing: Path = LISTING
    seed: int = 0
    vocabulary: int = VOCABULARY
    merges: str = MERGES[0]
    length: int = LENGTH
    tokenizer_bytes: int = TOKENIZER_BYTES
    rows_bytes: int = ROWS_BYTES

    def config(self) -> LlamaConfig:
        """The model's shape; the tokenizer of the work folder has the last word on its size."""
        tokens = open_tokenizer(self.needed("tokenizer/tokenizer.json", "tokenizer").parent)
        return starter_config(tokens.get_vocab_size(), self.length)

    def needed(self, name: str, step: str) -> Path:
        """A file that an earlier step left behind."""
        if not (path := self.work / name).exists():
            raise UserError(
                f"expected {path} from an earlier step, found nothing; "
                f"run: python -m spd_lsp.training {step} --work {self.work}"
            )
        return path

    def selection(self, size: int) -> Selection:
        """The files of about so many bytes, evenly over the packages."""
        return select(self.needed("corpus/sources.json", "corpus").parent, size, self.seed)


def make_corpus(recipe: Recipe, report: Callable[[Source], None]) -> None:
    """Fetch and unpack the packages; `report` hears of each."""
    if not (recipe.work / "corpus" / "sources.json").exists():
        for source in gather(recipe.listing, recipe.work / "archives", recipe.work / "corpus"):
            report(source)


def make_tokenizer(recipe: Recipe) -> None:
    """Learn the tokenizer from a share of the corpus."""
    folder = recipe.work / "tokenizer"
    if not (folder / "tokenizer_config.json").exists():
        texts = read(recipe.selection(recipe.tokenizer_bytes).learnt)
        save_tokenizer(learn_tokenizer(texts, recipe.vocabulary, recipe.merges), folder, recipe.length)


def make_rows(recipe: Recipe) -> None:
    """Encode the files to learn from and those to measure on."""
    folder = recipe.work / "rows"
    if (folder / "learnt.ids.npy").exists():
        return
    tokens = open_tokenizer(recipe.needed("tokenizer/tokenizer.json", "tokenizer").parent)
    chosen = recipe.selection(recipe.rows_bytes)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rows.json").write_text(json.dumps({"source_bytes": recipe.rows_bytes}), encoding="utf-8")
    write_held_out(read(chosen.held_out[:HELD_OUT_FILES]), tokens, recipe.length, recipe.seed, folder)
    write_learnt(read(chosen.learnt), tokens, recipe.length, recipe.seed, folder / "learnt.ids.npy")


def make_weights(recipe: Recipe, plan: Plan, report: Callable[[Progress, float], None]) -> None:
    """Train until the plan's budget is spent, going on from the last checkpoint."""
    learnt = np.load(recipe.needed("rows/learnt.ids.npy", "rows"), mmap_mode="r")
    keep_plan(recipe.work / "run", plan)
    train(recipe.config(), learnt, plan, recipe.work / "run", report)


def make_phase(
    recipe: Recipe, phase: str, start: Path, plan: Plan, report: Callable[[Progress, float], None]
) -> None:
    """Go on from the exported model in start, on rows behind those it has seen; `longer` is more of the same."""
    learnt = np.load(recipe.needed("rows/learnt.ids.npy", "rows"), mmap_mode="r")
    if not (facts := start / "training.json").exists():
        raise UserError(
            f"expected a model that this recipe exported in {start}, found no training.json; name another"
        )
    seen = so_far(json.loads(facts.read_text(encoding="utf-8"))["progress"])
    plan = replace(plan, first_row=int(seen["before"]) // recipe.length)
    keep_plan(recipe.work / phase, plan)
    (recipe.work / phase / "start.json").write_text(json.dumps(seen), encoding="utf-8")
    train(recipe.config(), learnt, plan, recipe.work / phase, report, start=start, objective=PHASES[phase])


def so_far(progress: Mapping[str, float]) -> dict[str, float]:
    """What an exported model has seen, as what came before a phase that goes on from it: tokens and seconds."""
    return {
        "before": progress.get("before", 0) + progress["tokens"],
        "before_seconds": progress.get("before_seconds", 0) + progress["seconds"],
    }


def phase_plan(tokens: int, minutes: float, seed: int, rate: float, decay_from: float) -> Plan:
    """How a phase goes on from an exported model."""
    return Plan(
        tokens=tokens,
        minutes=minutes,
        seed=seed,
        matrix_rate=rate,
        embedding_rate=round(0.3 * rate, 6),
        warm_up=0.02,
        decay_from=decay_from,
    )


def keep_plan(folder: Path, plan: Plan) -> None:
    """Note the plan of a new run; a run that was begun with another one is not mixed with this."""
    path = folder / "plan.json"
    wanted = json.dumps(asdict(plan), indent=1)
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(wanted, encoding="utf-8")
    elif path.read_text(encoding="utf-8") != wanted:
        raise UserError(
            f"expected the settings that the run in {folder} was begun with (see plan.json), found others; "
            "give the same ones to go on, or name another work folder"
        )


def make_starter(recipe: Recipe, out: Path, phase: str = "run") -> dict[str, Any]:
    """Export a phase's last checkpoint, measure it as stored, write its card; what the card says is returned."""
    run = recipe.needed(f"{phase}/checkpoint.safetensors", "train" if phase == "run" else "phase").parent
    folder = recipe.needed("tokenizer/tokenizer.json", "tokenizer").parent
    out.mkdir(parents=True, exist_ok=True)
    progress = export(recipe.config(), run, folder, out)
    rows, tokenizer = recipe.work / "rows", open_tokenizer(folder)
    measures = measure_exported(out, rows, tokenizer)
    storage = measure_storage(recipe.config(), run, rows, tokenizer)
    plan = json.loads((run / "plan.json").read_text(encoding="utf-8"))
    sources = json.loads(recipe.needed("corpus/sources.json", "corpus").read_text(encoding="utf-8"))
    if phase != "run":
        progress |= json.loads((run / "start.json").read_text(encoding="utf-8"))
    plan |= json.loads((rows / "rows.json").read_text(encoding="utf-8")) | {"phase": phase}
    facts = record(plan, progress, measures, storage, sources, tokenizer)
    write_card(out, facts)
    return facts


def make_ngrams(recipe: Recipe, out: Path, report: Callable[[int], None]) -> TableSummary:
    """Write the built-in `python` domain beside the model: all of the corpus but the files held out."""
    corpus = recipe.needed("corpus/sources.json", "corpus").parent
    tokens = Tokens(recipe.needed("tokenizer/tokenizer.json", "tokenizer").parent)
    folders = sorted(path for path in corpus.iterdir() if path.is_dir())
    packages = encode_packages(folders, lambda path: not is_held_out(path, corpus), tokens)
    out.mkdir(parents=True, exist_ok=True)
    return write_domain(packages, tokens, out / "python.ngt", report=report)
