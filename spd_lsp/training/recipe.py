"""The steps of the recipe in one work folder: each reads the results of the step before, and runs only once.

corpus/ -> tokenizer/ -> rows/ -> run/ -> exported/ -> the folder of the bundled model

run/start/ holds the published model that a run goes on from, with its trimmed embedding.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from transformers import LlamaConfig, LlamaForCausalLM

from ngram_builders.arrays import U16
from ngram_builders.errors import UserError
from ngram_builders.table.format import TableSummary
from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.training import checkpoint
from spd_lsp.training.base_model import write_base
from spd_lsp.training.corpus.gather import gather
from spd_lsp.training.corpus.package import Source
from spd_lsp.training.export import collect_facts, export, measure_exported, write_card
from spd_lsp.training.export_gguf import write_gguf
from spd_lsp.training.memorization import Memorization, measure_memorization
from spd_lsp.training.ngrams import encode_packages, write_built_in
from spd_lsp.training.rows import (
    group_by_package,
    read_packages,
    read_texts,
    write_held_out_rows,
    write_training_rows,
)
from spd_lsp.training.selection import Selection, is_held_out, select_files
from spd_lsp.training.tokenizer import open_tokenizer
from spd_lsp.training.train import Progress, TrainingPlan, load_exported, train

LISTING = Path(__file__).parent / "corpus" / "corpus.txt"
EVALUATION_PACKAGES = LISTING.with_name("evaluation_packages.txt")
_START = "run/start"  # the model that a run starts from
_LENGTH = 1_024
VOCABULARY = 22_528
_ROWS_BYTES = 30_000_000  # of source text that is encoded
_HELD_OUT_FILES = 120  # of Python, for the loss
_HELD_OUT_OTHERS = 30  # of each other language
_HELD_OUT_ROWS = 48  # of each kind, at most
_EXPORTED = "exported"  # the Hugging Face folder, from which another run may start
_NAME = "spd-lsp-starter"
_BASE_BYTES = 16_000_000  # of source text that the vocabulary of a base model is trimmed for
ReportStep = Callable[[Progress, float], None]
Stop = Callable[[Progress], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A work folder, and the settings that determine its contents."""

    work: Path
    listing: Path = LISTING
    seed: int = 0
    vocabulary: int = VOCABULARY
    length: int = _LENGTH
    rows_bytes: int = _ROWS_BYTES

    def config(self) -> LlamaConfig:
        """Return the configuration of the model that the run starts from."""
        return LlamaConfig.from_json_file(self.needed(f"{_START}/config.json", "base MODEL.gguf"))

    def tokenizer(self) -> Path:
        """Return the folder of the tokenizer."""
        return self.needed("tokenizer/tokenizer.json", "base MODEL.gguf").parent

    def load(self) -> tuple[LlamaForCausalLM, dict[str, Any]]:
        """Return the model of the run's last checkpoint, and its progress."""
        folder = self.needed(f"run/{checkpoint.FULL_FILE}", "train").parent
        model = LlamaForCausalLM(self.config())
        return model, checkpoint.load(folder, model)

    def needed(self, name: str, step: str) -> Path:
        """Return a file that an earlier step has written."""
        if not (path := self.work / name).exists():
            raise UserError(
                f"{path} does not exist; an earlier step writes it: "
                f"run: python -m spd_lsp.training {step} --work {self.work}"
            )
        return path

    def selection(self, size: int) -> dict[str, Selection]:
        """Select files of about this many bytes, by language, evenly over its packages."""
        return select_files(self.needed("corpus/sources.json", "corpus").parent, size, self.seed)

    def held_out(self, chosen: Mapping[str, Selection]) -> dict[str, list[Path]]:
        """Return the held-out files used to measure the loss, by language."""
        limits = dict.fromkeys(chosen, _HELD_OUT_OTHERS) | {"python": _HELD_OUT_FILES}
        return {language: files.held_out[: limits[language]] for language, files in chosen.items()}


def never(progress: Progress) -> bool:
    """The default `stop`: run to the end of the budget."""
    return False


def make_corpus(recipe: Recipe, report: Callable[[Source], None], held_out: Sequence[Path] = ()) -> None:
    """Fetch and unpack the packages; `report` is called for each. Nothing like the files in `held_out` is kept."""
    if not (recipe.work / "corpus" / "sources.json").exists():
        for source in gather(recipe.listing, recipe.work / "archives", recipe.work / "corpus", held_out=held_out):
            report(source)


def fetch_evaluation_packages(recipe: Recipe, report: Callable[[Source], None]) -> None:
    """Fetch and unpack the evaluation packages, which the model never learns from."""
    if not (recipe.work / "judged" / "sources.json").exists():
        for source in gather(EVALUATION_PACKAGES, recipe.work / "archives", recipe.work / "judged", library=False):
            report(source)


def make_base(recipe: Recipe, model: Path) -> None:
    """Start the run from a published model in a GGUF file, with its tokenizer, trimmed to what code needs."""
    folder = recipe.work / "tokenizer"
    if not (folder / "tokenizer_config.json").exists():
        chosen = recipe.selection(_BASE_BYTES).values()
        texts = read_texts(path for language in chosen for package in language.learnt for path in package)
        write_base(model, texts, recipe.vocabulary, recipe.length, folder, recipe.work / _START)


def make_rows(recipe: Recipe) -> None:
    """Encode the training files and the held-out ones."""
    folder = recipe.work / "rows"
    if (folder / "learnt.ids.npy").exists():
        return
    tokens = open_tokenizer(recipe.tokenizer())
    chosen = recipe.selection(recipe.rows_bytes)
    folder.mkdir(parents=True, exist_ok=True)
    corpus = recipe.work / "corpus"
    for language, held_out in recipe.held_out(chosen).items():
        packages = read_packages(group_by_package(held_out, corpus / language), corpus / language)
        into = folder / "held_out" / language
        write_held_out_rows(packages, tokens, recipe.length, recipe.seed, into, _HELD_OUT_ROWS)
    learnt = [read_packages(files.learnt, corpus / language) for language, files in chosen.items()]
    counts = write_training_rows(learnt, tokens, recipe.length, recipe.seed, folder / "learnt.ids.npy")
    facts = {"source_bytes": recipe.rows_bytes, "rows": dict(zip(chosen, counts, strict=True))}
    (folder / "rows.json").write_text(json.dumps(facts), encoding="utf-8")


def make_weights(recipe: Recipe, plan: TrainingPlan, report: ReportStep, stop: Stop = never) -> None:
    """Train until the plan's budget is spent or `stop` is true, resuming from the last checkpoint."""
    learnt = np.load(recipe.needed("rows/learnt.ids.npy", "rows"), mmap_mode="r")
    start = recipe.work / _START
    is_here = (start / "model.safetensors").exists()  # else the run was unpacked, and has a checkpoint
    model = load_exported(start) if is_here else LlamaForCausalLM(recipe.config())
    record_plan(recipe.work / "run", plan)
    train(model, learnt, plan, recipe.work / "run", report, stop=stop)


def record_plan(folder: Path, plan: TrainingPlan) -> None:
    """Store the plan of a new run; an existing run must have the same one."""
    path = folder / "plan.json"
    if path.exists():
        if json.loads(path.read_text(encoding="utf-8")) != asdict(plan):
            raise UserError(
                f"the run in {folder} was started with other settings (see plan.json); "
                "use the same ones to continue it, or another work folder"
            )
        return
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(plan), indent=1), encoding="utf-8")


def make_starter(recipe: Recipe, out: Path) -> dict[str, Any]:
    """Export the last checkpoint of the run, measure the stored weights, write the card. Return its facts.

    A Hugging Face folder stays in the work folder; `out` gets one GGUF file.
    """
    model, progress = recipe.load()
    progress["parameters"] = sum(parameter.numel() for parameter in model.parameters())
    out.mkdir(parents=True, exist_ok=True)
    rows = recipe.work / "rows"
    exported = recipe.work / _EXPORTED
    tokenizer = open_tokenizer(recipe.tokenizer())
    write_gguf(model, tokenizer, _NAME, out / f"{_NAME}.gguf")
    export(model, recipe.tokenizer(), exported)
    measures = measure_exported(exported, rows / "held_out", tokenizer)
    plan = json.loads((recipe.work / "run" / "plan.json").read_text(encoding="utf-8"))
    plan |= json.loads((rows / "rows.json").read_text(encoding="utf-8"))
    sources = json.loads(recipe.needed("corpus/sources.json", "corpus").read_text(encoding="utf-8"))
    facts = collect_facts(plan, progress, measures, sources, tokenizer, recipe.config())
    for written in (exported, out):
        write_card(written, facts)
    return facts


def measure_copies(recipe: Recipe, folder: Path, prompts: int) -> Memorization:
    """Measure what an exported model repeats of the training rows, word for word."""
    learnt = np.load(recipe.needed("rows/learnt.ids.npy", "rows"), mmap_mode="r")
    return measure_memorization(load_exported(folder), learnt, prompts, recipe.seed)


def make_ngrams(
    recipe: Recipe, out: Path, report: Callable[[str, TableSummary], None], languages: Sequence[str]
) -> None:
    """Write a built-in table for each of these languages beside the model, without the held-out files."""
    corpus = recipe.needed("corpus/sources.json", "corpus").parent
    tokens = ModelTokenizer(recipe.tokenizer())
    out.mkdir(parents=True, exist_ok=True)
    for folder in (corpus / language for language in languages if (corpus / language).is_dir()):
        report(folder.name, write_built_in(_learnable(folder, tokens), tokens, out / f"{folder.name}.ngt"))


def _learnable(folder: Path, tokens: ModelTokenizer) -> list[list[U16]]:
    """Encode the files of a language's packages, without the held-out ones."""
    packages = sorted(path for path in folder.iterdir() if path.is_dir())
    return encode_packages(packages, lambda path: not is_held_out(path, folder), tokens)
