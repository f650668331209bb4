"""The steps of the recipe in one work folder: each reads the results of the step before, and runs only once.

corpus/ -> tokenizer/ -> rows/ -> run/ -> decay/ -> exported/ -> the folder of the bundled model

A run may start from an exported model of another tokenizer: run/start/ then holds it with its new embedding.

The learning rate of a run stays constant, so it can always be continued; exported is a decay of its end.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer
from transformers import LlamaConfig, LlamaForCausalLM

from ngram_builders.arrays import U16
from ngram_builders.errors import UserError
from ngram_builders.table.format import TableSummary
from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.training import checkpoint, workers
from spd_lsp.training.base_model import write_base
from spd_lsp.training.corpus.gather import CORPUS_LANGUAGES, gather
from spd_lsp.training.corpus.package import Source
from spd_lsp.training.export import (
    ExportedWeights,
    collect_facts,
    export,
    measure_exported,
    measure_storage,
    write_card,
)
from spd_lsp.training.export_gguf import write_gguf
from spd_lsp.training.memorization import Memorization, measure_memorization
from spd_lsp.training.ngrams import encode_packages, write_domain
from spd_lsp.training.rows import (
    group_by_package,
    order_rows,
    read_packages,
    read_texts,
    write_held_out_rows,
    write_training_rows,
)
from spd_lsp.training.selection import Selection, is_held_out, select_files
from spd_lsp.training.tokenizer import VOCABULARY, learn_tokenizer, open_tokenizer, save_tokenizer
from spd_lsp.training.train import (
    EMBEDDING_SHARE,
    STARTER_SHAPE,
    ModelShape,
    Progress,
    TrainingPlan,
    load_exported,
    starter_config,
    train,
)
from spd_lsp.training.transfer import add_layers, transfer_vocabulary
from spd_lsp.training.validation import KINDS, HeldOutLoss, measure_held_out, measure_texts, sum_losses

LISTING = Path(__file__).parent / "corpus" / "corpus.txt"
JUDGED = LISTING.with_name("judged.txt")
_START = "run/start"  # the model that a run starts from, if any
_LENGTH = 1_024
_TOKENIZER_BYTES = 60_000_000  # of source text that the merges are learnt from
ROWS_BYTES = 240_000_000  # of source text that is encoded
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
    tokenizer_bytes: int = _TOKENIZER_BYTES
    rows_bytes: int = ROWS_BYTES
    shape: ModelShape = STARTER_SHAPE

    def config(self) -> LlamaConfig:
        """Return the configuration of the model that the run started from, else the recipe's own."""
        tokens = open_tokenizer(self.needed("tokenizer/tokenizer.json", "tokenizer").parent)
        if (start := self.work / _START / "config.json").exists():
            return LlamaConfig.from_json_file(start)
        return starter_config(tokens.get_vocab_size(), self.length, self.shape)

    def needed(self, name: str, step: str) -> Path:
        """Return a file that an earlier step has written."""
        if not (path := self.work / name).exists():
            raise UserError(
                f"{path} does not exist; an earlier step writes it: "
                f"run: python -m spd_lsp.training {step} --work {self.work}"
            )
        return path

    def selection(self, size: int) -> dict[str, Selection]:
        """Select files of about so many bytes, by language, evenly over its packages."""
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


def make_judged(recipe: Recipe, report: Callable[[Source], None]) -> None:
    """Fetch and unpack the evaluation packages, which the model never learns from."""
    if not (recipe.work / "judged" / "sources.json").exists():
        for source in gather(JUDGED, recipe.work / "archives", recipe.work / "judged", library=False):
            report(source)


def make_tokenizer(recipe: Recipe) -> None:
    """Learn the tokenizer from a share of the corpus."""
    folder = recipe.work / "tokenizer"
    if not (folder / "tokenizer_config.json").exists():
        chosen = recipe.selection(recipe.tokenizer_bytes).values()
        texts = read_texts(path for language in chosen for package in language.learnt for path in package)
        save_tokenizer(learn_tokenizer(texts, recipe.vocabulary), folder, recipe.length)


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
    tokens = open_tokenizer(recipe.needed("tokenizer/tokenizer.json", "tokenizer").parent)
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


def make_start(recipe: Recipe, model: Path, layers: int = 0) -> None:
    """Start the run from an exported model with another tokenizer, adding layers up to `layers`."""
    run = recipe.work / "run"
    if (run / "start.json").exists():
        return
    if (run / "plan.json").exists():
        raise UserError(
            f"the run in {run} was started without a model; leave out --from or name another work folder"
        )
    past = _so_far(_recorded(model)["progress"])
    teacher, tokens = load_exported(model), recipe.needed("tokenizer/tokenizer.json", "tokenizer").parent
    layers_now = teacher.config.num_hidden_layers
    if 0 < layers < layers_now:
        raise UserError(
            f"{model} has {layers_now} layers and cannot lose any; set --layers to {layers_now} or more"
        )
    student = transfer_vocabulary(teacher, open_tokenizer(model), open_tokenizer(tokens))
    add_layers(student, layers or layers_now).save_pretrained(recipe.work / _START)
    (run / "start.json").write_text(json.dumps(past), encoding="utf-8")


def make_weights(recipe: Recipe, plan: TrainingPlan, report: ReportStep, stop: Stop = never) -> None:
    """Train until the plan's budget is spent or `stop` is true, resuming from the last checkpoint."""
    learnt = np.load(recipe.needed("rows/learnt.ids.npy", "rows"), mmap_mode="r")
    with workers.first_alone():
        record_plan(recipe.work / "run", plan)
    start = recipe.work / _START
    start_model = start if (start / "model.safetensors").exists() else None
    train(recipe.config(), learnt, plan, recipe.work / "run", report, start=start_model, stop=stop)


def make_decay(
    recipe: Recipe, tokens: int, report: ReportStep, stop: Stop = never, *, python_share: float | None = None
) -> None:
    """Continue the run's last checkpoint in a separate folder, with the rate falling to 0 over so many tokens.

    An interrupted decay is resumed. The run itself is unchanged and can be continued later.
    """
    folder = recipe.work / "decay"
    with workers.first_alone():
        if not (folder / "plan.json").exists():
            _start_decay(recipe, tokens, python_share)
    plan = _stored_plan(folder / "plan.json")
    train(recipe.config(), _rows_of_decay(recipe, plan), plan, folder, report, stop=stop)


def _start_decay(recipe: Recipe, tokens: int, python_share: float | None) -> None:
    """Copy the run's last checkpoint and record the plan of its decay."""
    folder, run = recipe.work / "decay", recipe.work / "run"
    plan = _stored_plan(recipe.needed("run/plan.json", "train"))
    spent = checkpoint.read_progress(run)["tokens"]
    folder.mkdir(parents=True, exist_ok=True)
    for name in (checkpoint.FULL_FILE, checkpoint.WEIGHTS_FILE, "start.json"):
        if (run / name).exists():
            shutil.copyfile(run / name, folder / name)
    record_plan(folder, replace(plan, tokens=spent + tokens, decay=tokens, python_share=python_share))


def _rows_of_decay(recipe: Recipe, plan: TrainingPlan) -> U16:
    """Return the training rows, those of the decay with its share of Python."""
    path = recipe.needed("rows/learnt.ids.npy", "rows")
    learnt: U16 = np.load(path, mmap_mode="r")
    if plan.python_share is None:
        return learnt
    counts = json.loads(path.with_name("rows.json").read_text(encoding="utf-8"))["rows"]
    spent = (plan.tokens - plan.decay) // recipe.length % len(learnt)
    return learnt[order_rows([*counts.values()], recipe.seed, spent, plan.python_share)]


def _recorded(model: Path) -> dict[str, Any]:
    """Return the record of a model that this recipe exported."""
    if not (facts := model / "training.json").exists():
        raise UserError(
            f"{model} has no training.json, so it is not a model that this recipe exported; choose another one"
        )
    recorded: dict[str, Any] = json.loads(facts.read_text(encoding="utf-8"))
    return recorded


def _so_far(progress: Mapping[str, float]) -> dict[str, float]:
    """Return the tokens and seconds of a model's whole training, as the past of a run that starts from it."""
    return {
        "before": progress.get("before", 0) + progress["tokens"],
        "before_seconds": progress.get("before_seconds", 0) + progress["seconds"],
    }


def run_plan(
    tokens: int, seed: int, rate: float, rows_a_step: int, optimiser: str = "muon", bits: int = 0
) -> TrainingPlan:
    """Return the plan of a run with a constant rate."""
    return TrainingPlan(
        tokens=tokens,
        optimiser=optimiser,
        bits=bits,
        seed=seed,
        matrix_rate=rate,
        embedding_rate=round(EMBEDDING_SHARE * rate, 6),
        rows_a_step=rows_a_step,
    )


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
    """Read the plan of a run; older ones also have the number of its first row, which is 0."""
    plan = json.loads(path.read_text(encoding="utf-8"))
    plan.pop("first_row", None)
    return TrainingPlan(**plan)


def make_starter(
    recipe: Recipe, out: Path, phase: str = "decay", averaged: Mapping[Path, float] = {}
) -> dict[str, Any]:
    """Export the last checkpoint of a decay or run, measure the stored weights, write the card. Return its facts.

    A Hugging Face folder stays in the work folder; `out` gets one GGUF file.
    averaged: exported models, and the share of each in an average with the checkpoint.
    """
    if not (shares := sum(averaged.values())) < 1:
        raise UserError(f"the shares of the models to average add up to {shares:g}; keep them below 1")
    step = {"run": "train", "decay": "decay"}[phase]
    run = recipe.needed(f"{phase}/{checkpoint.FULL_FILE}", step).parent
    folder = recipe.needed("tokenizer/tokenizer.json", "tokenizer").parent
    out.mkdir(parents=True, exist_ok=True)
    weights, exported = ExportedWeights(run, averaged), recipe.work / _EXPORTED
    progress = export(recipe.config(), weights, folder, exported)
    rows, tokenizer = recipe.work / "rows", open_tokenizer(folder)
    write_gguf(weights.load(recipe.config())[0], tokenizer, _NAME, out / f"{_NAME}.gguf")
    measures = measure_exported(exported, rows / "held_out", tokenizer)
    storage = measure_storage(recipe.config(), weights, rows / "held_out" / "python", tokenizer)
    plan = json.loads((run / "plan.json").read_text(encoding="utf-8"))
    sources = json.loads(recipe.needed("corpus/sources.json", "corpus").read_text(encoding="utf-8"))
    if (past := run / "start.json").exists():
        progress |= json.loads(past.read_text(encoding="utf-8"))
    plan |= json.loads((rows / "rows.json").read_text(encoding="utf-8")) | {
        "phase": phase,
        "averaged": {str(folder): share for folder, share in averaged.items()},
    }
    facts = collect_facts(plan, progress, measures, storage, sources, tokenizer, recipe.config())
    for written in (exported, out):
        write_card(written, facts)
    return facts


def make_gguf(recipe: Recipe, out: Path, phase: str = "run") -> dict[str, Any]:
    """Write the last checkpoint of a run or decay as a GGUF file, and add its losses to the learning curve."""
    folder = recipe.needed("tokenizer/tokenizer.json", "tokenizer").parent
    model, progress = ExportedWeights(recipe.work / phase).load(recipe.config())
    write_gguf(model, open_tokenizer(folder), out.stem, out)
    losses = _measure_curve(model.bfloat16(), recipe.work / "rows" / "held_out", open_tokenizer(folder))
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


def make_ngrams(recipe: Recipe, out: Path, report: Callable[[str, TableSummary], None]) -> None:
    """Write a built-in domain for each language beside the model, without the held-out files."""
    corpus = recipe.needed("corpus/sources.json", "corpus").parent
    tokens = ModelTokenizer(recipe.needed("tokenizer/tokenizer.json", "tokenizer").parent)
    out.mkdir(parents=True, exist_ok=True)
    for folder in (corpus / language for language in CORPUS_LANGUAGES if (corpus / language).is_dir()):
        report(folder.name, write_domain(_learnable(folder, tokens), tokens, out / f"{folder.name}.ngt"))


def _learnable(folder: Path, tokens: ModelTokenizer) -> list[list[U16]]:
    """Encode the files of a language's packages, without the held-out ones."""
    packages = sorted(path for path in folder.iterdir() if path.is_dir())
    return encode_packages(packages, lambda path: not is_held_out(path, folder), tokens)
