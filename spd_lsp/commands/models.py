"""The command `models`: lists the models on this machine and recommended ones, and downloads models."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from ngram_builders.errors import UserError
from spd_lsp.command_options import config_path
from spd_lsp.completion.loading import load_completer
from spd_lsp.extras import install_command, missing_for_models
from spd_lsp.models.fitting import (
    free_gpu_memory,
    free_memory,
    memory_needed,
    read_table,
    recommend,
)
from spd_lsp.models.hub import STARTER, fetch, list_files
from spd_lsp.models.stored import (
    list_models,
    repository_file_name,
    searched_folders,
    whole_name,
)
from spd_lsp.output.printable import as_json
from spd_lsp.output.progress import format_bytes, progress
from spd_lsp.settings import HUGGING_FACE_ID, NO_MODEL, Settings, is_path

_SOURCE = "import os\n\n\ndef names(path):\n    return os."  # completed to check a model
_FILE = re.compile(r"([\w.-]+/[\w.-]+):([\w./-]+\.gguf)", re.IGNORECASE)


@click.group(invoke_without_command=True)
@click.option("--json", "prints_json", is_flag=True, help="Print one JSON array.")
@click.pass_context
def models(context: click.Context, prints_json: bool) -> None:
    """List and download models.

    The list contains the models of Ollama, LM Studio, llama.cpp, the Hugging Face library and `models get`. Up to
    three recommended models suit this machine. Nothing is downloaded. Pass a name to --model, or a recommended
    name to `models get`. The memory column estimates the memory use on a CPU.
    """
    if context.invoked_subcommand:
        return
    free = free_memory()
    found = []
    for model in list_models():
        memory = model.size if model.path.is_file() else memory_needed(model.path)
        fits = None if free is None else memory <= free
        facts = {"name": model.name, "format": _format(model.path), "bytes": model.size, "memory": memory}
        found.append({**facts, "fits": fits, "path": str(model.path)})
    offers = []
    for row in recommend(free, free_gpu_memory()):
        if row.model not in {model["name"] for model in found}:
            about = ("name", "model", "licence", "parameters", "bytes", "memory")
            install = install_command(row.extra) if row.extra and missing_for_models() else ""
            offers.append({**{fact: getattr(row, fact) for fact in about}, "install": install})
    if prints_json:
        click.echo(as_json([*found, *offers]))
    else:
        click.echo("\n".join(_as_lines(found, offers, free)))


@models.command("get")
@click.argument("name")
@click.option("--json", "prints_json", is_flag=True, help="Print progress as one JSON object per line.")
def get_model(name: str, prints_json: bool) -> None:
    """Download a model and check that it works.

    NAME is a recommended model, OWNER/REPOSITORY:FILE.gguf or OWNER/REPOSITORY on Hugging Face, or any other value
    of --model. Stored models are not downloaded again. The environment variable HF_ENDPOINT selects a mirror.
    """
    with progress() as bar:

        def report(text: str) -> None:
            stage, _, share = text.rpartition(": ")
            if prints_json:
                click.echo(json.dumps({"status": text}))
            elif share.endswith("%"):
                bar(stage, int(share[:-1]), 100)

        model = _fetched(name, report)
        report(f"trying {model}")
        completer = load_completer(Settings(model=model), report, ngrams=False)
        completer.complete(_SOURCE, len(_SOURCE), "python", explicit=True)
    if prints_json:
        click.echo(json.dumps({"model": model}))
        return
    click.echo(f"{model} is here. To use it, set `model` to this name:")
    click.echo(f'  VS Code: "spd-lsp.model": "{model}", or "Choose the model" in its menu')
    click.echo(f'  Neovim: init_options = {{ model = "{model}" }}, or :SpdModel')
    click.echo(f'  everywhere: model = "{model}" in {config_path()}')


def _fetched(name: str, report: Callable[[str], None]) -> str:
    """The name for `--model`; a GGUF file is downloaded now, a repository once it is opened."""
    here = {model.name for model in list_models()}
    if row := next((row for row in read_table() if row.name == name), None):
        if row.file and row.model not in here:
            fetch(row.repository, [row.file], report, row.sha256)
        return row.model
    if named := _FILE.fullmatch(name):
        whole = whole_name(named[2])
        parts = [one for one in list_files(named[1]) if whole_name(one) == whole] or [named[2]]
        return repository_file_name(named[1], fetch(named[1], parts, report) / named[2])
    if re.fullmatch(r"[\w.-]+", name) and not is_path(name) and name not in (STARTER, NO_MODEL):
        known = "\n".join(f"  {row.name}" for row in read_table())
        raise UserError(
            f"there is no recommended model {name!r}; there are\n{known}\nor give OWNER/REPOSITORY:FILE.gguf of "
            "Hugging Face, or the path of a GGUF file; `spd-lsp models` lists what suits this machine"
        )
    if HUGGING_FACE_ID.fullmatch(name) and not is_path(name) and name not in here:
        listed = list_files(name)
        found = [file for file in listed if file.lower().endswith(".gguf")]
        if found and "config.json" not in listed:
            lines = "\n".join(f"  spd-lsp models get {name}:{file}" for file in found)
            raise UserError(f"{name} holds GGUF files; choose one:\n{lines}")
    return name


def _format(path: Path) -> str:
    """How the weights are stored. Example: `GGUF qwen2 Q4_K`."""
    if path.is_dir():
        return "safetensors"
    from spd_lsp.models.llama.gguf_file import describe

    try:
        return f"GGUF {describe(path)}".rstrip()
    except UserError:
        return "GGUF, damaged"


def _as_lines(found: list[dict[str, Any]], offers: list[dict[str, Any]], free: int | None) -> Iterator[str]:
    """A line for each model on this machine, and for each recommended one with the packages that it needs."""
    if not found:
        yield "no models besides `starter`, which is bundled, in"
        yield from (f"  {folder}" for folder in searched_folders())
    else:
        fits = {True: "yes", False: "no", None: "?"}
        rows = [("model", "format", "size", "memory", "fits")]
        for one in found:
            sizes = format_bytes(one["bytes"]), format_bytes(one["memory"])
            rows.append((one["name"], one["format"], *sizes, fits[one["fits"]]))
        width, kinds = (max(len(row[column]) for row in rows) for column in (0, 1))
        for name, kind, size, memory, fit in rows:
            yield f"{name:{width}}  {kind:{kinds}}  {size:>12}  {memory:>12}  {fit}"
        if free is not None:
            yield f"free memory: {format_bytes(free)}"
    if offers:
        yield from ("", "recommended here, to be fetched with `spd-lsp models get NAME`:")
    for offer in offers:
        memory = f"memory {format_bytes(offer['memory'])}"
        yield f"  {offer['name']:22}  {format_bytes(offer['bytes'])}  {memory}  {offer['licence']}"
        if offer["install"]:
            yield f"    needs: {offer['install']}"
