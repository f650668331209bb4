"""The steps of the recipe in one work folder: each reads the results of the step before, and runs only once.

corpus/ -> tokenizer/ -> rows/ -> run/ -> decay/ -> exported/ -> the folder of the bundled model

run/start/ holds the published model that a run goes on from, with its trimmed embedding.

The learning rate of a run stays constant, so it can always be continued; exported is a decay of its end.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer
from transformers import LlamaConfig, LlamaForCausalLM

from ngram_builders.arrays import U16
from ngram_builders.errors import UserError
from ngram_builders.table.format import TableSummary
from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.training import checkpoint
from spd_lsp.training.base_model import write_base
from spd_lsp.training.corpus.gather import CORPUS_LANGUAGES, gather
from spd_lsp.training.corpus.package import Source
from spd_lsp.training.export import collect_facts, export, measure_exported, write_card
from spd_lsp.training.export_gguf import write_gguf
from spd_lsp.training.memorization import Memorization, measure_memorization
from spd_lsp.training.ngrams import encode_packages, write_domain
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
from spd_lsp.training.validation import KINDS, HeldOutLoss, measure_held_out, measure_texts, sum_losses

LISTING = Path(__file__).parent / "corpus" / "corpus.txt"
EVALUATION_PACKAGES = LISTING.with_name("evaluation_packages.txt")
_START = "run/start"  # the model that a run starts from
_LENGTH = 1_024
VOCABULARY = 22_528
ROWS_BYTES = 30_000_000  # of source text that is encoded
_HELD_OUT_FILES = 120  # of Python, for the loss
_HELD_OUT_OTHERS = 30  # of each other language
_HELD_OUT_ROWS = 48  # of each kind, at most
_CURVE_ROWS = {"python": 6}  # of each kind, measured while a run goes on; one of each other language
_CURVE = "curve.jsonl"
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
    rows_bytes: int = ROWS_BYTES

    def config(self) -> LlamaConfig:
        """Return the configuration of the model that the run starts from."""
        return LlamaConfig.from_json_file(self.needed(f"{_START}/config.json", "base MODEL.gguf"))

    def tokenizer(self) -> Path:
        """Return the folder of the tokenizer."""
        return self.needed("tokenizer/tokenizer.json", "base MODEL.gguf").parent

    def load(self, phase: str) -> tuple[LlamaForCausalLM, dict[str, Any]]:
        """Return the model of the last checkpoint of a run or decay, and its progress."""
        folder = self.needed(f"{phase}/{checkpoint.FULL_FILE}", {"run": "train", "decay": "decay"}[phase]).parent
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


def make_decay(recipe: Recipe, tokens: int, report: ReportStep, stop: Stop = never) -> None:
    """Continue the run's last checkpoint in a separate folder, with the rate falling to 0 over this many tokens.

    An interrupted decay is resumed. The run itself is unchanged and can be continued later.
    """
    folder, run = recipe.work / "decay", recipe.work / "run"
    model = LlamaForCausalLM(recipe.config())
    if not (folder / "plan.json").exists():
        plan = _stored_plan(recipe.needed("run/plan.json", "train"))
        spent = checkpoint.load(run, model)["tokens"]
        folder.mkdir(parents=True, exist_ok=True)
        for name in (checkpoint.FULL_FILE, checkpoint.WEIGHTS_FILE):
            if (run / name).exists():
                shutil.copyfile(run / name, folder / name)
        record_plan(folder, replace(plan, tokens=spent + tokens, decay=tokens))
    learnt = np.load(recipe.needed("rows/learnt.ids.npy", "rows"), mmap_mode="r")
    train(model, learnt, _stored_plan(folder / "plan.json"), folder, report, stop=stop)


def record_plan(folder: Path, plan: TrainingPlan) -> None:
    """Store the plan of a new run; an existing run must have the same one.

    A run whose rate never falls may be given more tokens.
    """
    path = folder / "plan.json"
    if path.exists():
        stored = _stored_plan(path)
        if stored == plan:
            return
        if plan.decay or replace(stored, tokens=plan.tokens) != plan:
            raise UserError(
                f"the run in {folder} was started with other settings (see plan.json); "
                "use the same ones to continue it, or another work folder"
            )
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(plan), indent=1), encoding="utf-8")


def _stored_plan(path: Path) -> TrainingPlan:
    """Read the plan of a run; older ones name the rate otherwise, and settings that are fixed today."""
    plan = json.loads(path.read_text(encoding="utf-8"))
    plan.setdefault("rate", plan.get("matrix_rate"))
    return TrainingPlan(**{field.name: plan[field.name] for field in fields(TrainingPlan)})


def make_starter(recipe: Recipe, out: Path, phase: str = "decay") -> dict[str, Any]:
    """Export the last checkpoint of a decay or run, measure the stored weights, write the card. Return its facts.

    A Hugging Face folder stays in the work folder; `out` gets one GGUF file.
    """
    model, progress = recipe.load(phase)
    progress["parameters"] = sum(parameter.numel() for parameter in model.parameters())
    out.mkdir(parents=True, exist_ok=True)
    rows, exported, tokenizer = recipe.work / "rows", recipe.work / _EXPORTED, open_tokenizer(recipe.tokenizer())
    write_gguf(model, tokenizer, _NAME, out / f"{_NAME}.gguf")
    export(model, recipe.tokenizer(), exported)
    measures = measure_exported(exported, rows / "held_out", tokenizer)
    plan = json.loads((recipe.work / phase / "plan.json").read_text(encoding="utf-8"))
    plan |= json.loads((rows / "rows.json").read_text(encoding="utf-8")) | {"phase": phase}
    sources = json.loads(recipe.needed("corpus/sources.json", "corpus").read_text(encoding="utf-8"))
    facts = collect_facts(plan, progress, measures, sources, tokenizer, recipe.config())
    for written in (exported, out):
        write_card(written, facts)
    return facts


def make_gguf(recipe: Recipe, out: Path, phase: str = "run") -> dict[str, Any]:
    """Write the last checkpoint of a run or decay as a GGUF file, and add its losses to the learning curve."""
    model, progress = recipe.load(phase)
    tokenizer = open_tokenizer(recipe.tokenizer())
    write_gguf(model, tokenizer, out.stem, out)
    losses = _measure_curve(model.bfloat16(), recipe.work / "rows" / "held_out", tokenizer)
    point = {"phase": phase, "tokens": progress["tokens"], "seconds": progress["seconds"], **losses}
    with (recipe.work / _CURVE).open("a", encoding="utf-8") as curve:
        curve.write(json.dumps(point) + "\n")
    return point


def _measure_curve(model: LlamaForCausalLM, held_out: Path, tokenizer: Tokenizer) -> dict[str, dict[str, float]]:
    """Return bits per byte of a few held-out rows of Python and of all other languages together, by kind."""
    others = [language for language in CORPUS_LANGUAGES if language != "python" and (held_out / language).is_dir()]
    return {
        name: {
            kind: round(
                sum_losses(
                    measure_held_out(model, held_out / language, kind, tokenizer, _CURVE_ROWS.get(language, 1))
                    for language in languages
                ).bits_per_byte,
                4,
            )
            for kind in KINDS
        }
        for name, languages in {"python": ["python"], "others": others}.items()
    }


def measure_by_language(recipe: Recipe, folder: Path) -> dict[str, HeldOutLoss]:
    """Measure an exported model, with any tokenizer, on the held-out files, by language."""
    model, tokenizer = load_exported(folder), open_tokenizer(folder)
    return {
        language: measure_texts(model, read_texts(held_out), tokenizer, recipe.length)
        for language, held_out in recipe.held_out(recipe.selection(recipe.rows_bytes)).items()
    }


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
        report(folder.name, write_domain(_learnable(folder, tokens), tokens, out / f"{folder.name}.ngt"))


def _learnable(folder: Path, tokens: ModelTokenizer) -> list[list[U16]]:
    """Encode the files of a language's packages, without the held-out ones."""
    packages = sorted(path for path in folder.iterdir() if path.is_dir())
    return encode_packages(packages, lambda path: not is_held_out(path, folder), tokens)
