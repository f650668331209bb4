"""The command `models`: what `--model` could name on this machine, what is worth fetching, and fetching it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import click

from ngram_builders.errors import UserError
from spd_lsp.commands.completion_times import Pace, key_of, measure, measure_pace, measured_times, note_time
from spd_lsp.extras import install_command, missing_for_models
from spd_lsp.models.checkpoint.download import fetch, list_files, models_folder
from spd_lsp.models.checkpoint.gguf_parts import is_part, whole_name
from spd_lsp.models.checkpoint.hub import STARTER
from spd_lsp.models.checkpoint.limits import free_gpu_memory, free_memory, memory_needed
from spd_lsp.models.checkpoint.recommended import RecommendedModel, read_table, recommend
from spd_lsp.models.checkpoint.stored_models import (
    StoredModel,
    list_models,
    repository_file_name,
    searched_folders,
)
from spd_lsp.output.printable import as_json
from spd_lsp.output.progress import format_bytes, resumable_progress
from spd_lsp.settings import HUGGING_FACE_ID, NO_MODEL, is_path

_FILE = re.compile(r"([\w.-]+/[\w.-]+):([\w./-]+\.gguf)", re.IGNORECASE)


@click.group(invoke_without_command=True)
@click.option("--json", "prints_json", is_flag=True, help="Print one JSON array.")
@click.pass_context
def models(context: click.Context, prints_json: bool) -> None:
    """List local and recommended models.

    Up to three are recommended, which suit this machine. Local ones are where Ollama, LM Studio, llama.cpp,
    Hugging Face's library and `models get` keep them; nothing is downloaded. Pass a name to --model, or that
    of a recommended model to `models get`. Memory is roughly what the weights need on a CPU.
    """
    if context.invoked_subcommand:
        return
    free = free_memory()
    pace = _pace()
    times = measured_times()
    found = [_described(model, free, pace, times) for model in list_models()]
    here = {model["name"] for model in found}
    rows = [
        row
        for row in recommend(free, free_gpu_memory(), pace.seconds if pace else lambda size: 0.0)
        if row.model not in here
    ]
    if prints_json:
        click.echo(as_json([*found, *(_offered(row, pace) for row in rows)]))
        return
    nothing = "no models found in\n" + "\n".join(f"  {folder}" for folder in searched_folders())
    click.echo(_as_table(found, free) if found else nothing)
    click.echo(_as_offers([_offered(row, pace) for row in rows]))
    if pace:
        click.echo("~: not measured, but estimated by the size, from what the bundled model takes just now")


@models.command("get")
@click.argument("name")
@click.option("--json", "prints_json", is_flag=True, help="Print what happens as JSON, a line each.")
def get_model(name: str, prints_json: bool) -> None:
    """Fetch a model if it is not here, and check that it completes.

    NAME is a recommended one, OWNER/REPOSITORY:FILE.gguf or OWNER/REPOSITORY of Hugging Face, or anything that
    --model takes. The environment variable HF_ENDPOINT names a mirror. An interrupted download is resumed.
    """
    with resumable_progress() as bar:

        def report(text: str) -> None:
            stage, _, share = text.rpartition(": ")
            if prints_json:
                click.echo(json.dumps({"status": text}))
            elif share.endswith("%"):
                bar(stage, int(share[:-1]), 100)

        model = _fetched(name, report)
        report(f"trying {model}")
        seconds = measure(model, report)
    for stored in list_models():
        if stored.name == model:
            note_time(stored, seconds)
    if prints_json:
        click.echo(json.dumps({"model": model, "milliseconds": round(1000 * seconds)}))
        return
    click.echo(f"{model} is here; a completion takes {seconds:.2f} s. To use it, set `model` to this name:")
    click.echo(f'  VS Code: "spd-lsp.model": "{model}", or "Choose the model" in its menu')
    click.echo(f'  Neovim: init_options = {{ model = "{model}" }}, or :SpdModel')
    click.echo(f"  commands: --model {model}")


def _fetched(name: str, report: Callable[[str], None]) -> str:
    """The name that `--model` takes for a model; a file is there then, a repository is fetched as it is opened."""
    row = next((row for row in read_table() if row.name == name), None)
    if row and not row.file:
        return row.model
    if row and row.model in {model.name for model in list_models()}:
        return row.model
    if row:
        _fetch_file(row.repository, row.file, report, row.sha256)
        return row.model
    if named := _FILE.fullmatch(name):
        _fetch_file(named[1], named[2], report)
        return repository_file_name(named[1], models_folder() / named[1] / named[2])
    if re.fullmatch(r"[\w.-]+", name) and not is_path(name) and name not in (STARTER, NO_MODEL):
        known = "\n".join(f"  {row.name}" for row in read_table())
        raise UserError(
            f"there is no recommended model {name!r}; there are\n{known}\nor give OWNER/REPOSITORY:FILE.gguf of "
            "Hugging Face, or the path of a GGUF file; `spd-lsp models` lists what suits this machine"
        )
    if HUGGING_FACE_ID.fullmatch(name) and not is_path(name) and name not in {m.name for m in list_models()}:
        _refuse_several(name)
    return name


def _fetch_file(repository: str, file: str, report: Callable[[str], None], sha256: str = "") -> None:
    """Fetch a GGUF file with all of its parts."""
    whole = whole_name(file)
    names = [one for one in list_files(repository) if whole_name(one) == whole] if is_part(file) else [file]
    stage = f"downloading {file.rpartition('/')[2]}"
    report(f"{stage}: 0%")
    fetch(repository, names, lambda done, total: report(f"{stage}: {100 * done // max(total, 1)}%"), sha256)


def _refuse_several(repository: str) -> None:
    """Say which files a repository of GGUF files has: one has to be chosen."""
    names = list_files(repository)
    found = [name for name in names if name.lower().endswith(".gguf")]
    if found and "config.json" not in names:
        lines = "\n".join(f"  spd-lsp models get {repository}:{name}" for name in found)
        raise UserError(f"{repository} holds GGUF files; choose one:\n{lines}")


def _pace() -> Pace | None:
    """What passes take, if the bundled model runs here."""
    try:
        return measure_pace()
    except UserError:
        return None


def _described(model: StoredModel, free: int | None, pace: Pace | None, times: dict[str, float]) -> dict[str, Any]:
    memory = model.size if model.is_gguf else memory_needed(model.path)
    measured = times.get(key_of(model))
    estimated = None if pace is None else pace.seconds(memory)
    seconds = estimated if measured is None else measured
    return {
        "name": model.name,
        "format": _format(model),
        "bytes": model.size,
        "memory": memory,
        "fits": None if free is None else memory <= free,
        "milliseconds": None if seconds is None else round(1000 * seconds),
        "measured": measured is not None,
        "path": str(model.path),
    }


def _offered(row: RecommendedModel, pace: Pace | None) -> dict[str, Any]:
    """A model that could be fetched; it has no path."""
    return {
        "name": row.name,
        "model": row.model,
        "licence": row.licence,
        "parameters": row.parameters,
        "bytes": row.bytes,
        "memory": row.memory,
        "milliseconds": None if row.extra or pace is None else round(1000 * pace.seconds(row.bytes)),
        "measured": False,
        "install": install_command(row.extra) if row.extra and missing_for_models() else "",
    }


def _format(model: StoredModel) -> str:
    """How the weights are stored. Example: `GGUF qwen2 Q4_K`."""
    if not model.is_gguf:
        return "safetensors"
    from spd_lsp.models.llama.header import read_header

    try:
        header = read_header(model.path)
    except UserError:
        return "GGUF, damaged"
    return f"GGUF {header.architecture} {header.quantization}".rstrip()


def _as_table(found: list[dict[str, Any]], free: int | None) -> str:
    """A line a model."""
    width = max(len(model["name"]) for model in found)
    kinds = max(len(model["format"]) for model in found)
    lines = [f"{'model':{width}}  {'format':{kinds}}  {'size':>12}  {'memory':>12}  fits  completion"]
    for model in found:
        fits = {True: "yes", False: "no", None: "?"}[model["fits"]]
        sizes = f"{format_bytes(model['bytes']):>12}  {format_bytes(model['memory']):>12}"
        lines.append(f"{model['name']:{width}}  {model['format']:{kinds}}  {sizes}  {fits:4}  {_time(model)}")
    if free is not None:
        lines.append(f"free memory: {format_bytes(free)}")
    return "\n".join(lines)


def _as_offers(offers: list[dict[str, Any]]) -> str:
    """A line for each model that could be fetched, with what it needs."""
    if not offers:
        return ""
    lines = ["", "recommended here, to be fetched with `spd-lsp models get NAME`:"]
    for offer in offers:
        facts = (format_bytes(offer["bytes"]), f"memory {format_bytes(offer['memory'])}", offer["licence"])
        lines.append(f"  {offer['name']:22}  {'  '.join(facts)}  completion {_time(offer)}")
        lines += [f"    needs: {offer['install']}"] if offer["install"] else []
    return "\n".join(lines)


def _time(model: dict[str, Any]) -> str:
    """What a completion takes. Example: `0.3 s`, or `~0.3 s` if that is estimated."""
    if model["milliseconds"] is None:
        return "?"
    return f"{'' if model['measured'] else '~'}{model['milliseconds'] / 1000:.2f} s"
