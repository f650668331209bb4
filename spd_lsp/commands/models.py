"""The command `models`: what is on this machine that `--model` could name, and whether it fits."""

from __future__ import annotations

from typing import Any

import click

from ngram_builders.errors import UserError
from spd_lsp.models.checkpoint.limits import free_memory, memory_needed
from spd_lsp.models.checkpoint.stored_models import StoredModel, list_models, searched_folders
from spd_lsp.printable import as_json
from spd_lsp.progress import format_bytes


@click.command()
@click.option("--json", "prints_json", is_flag=True, help="Print one JSON array.")
def models(prints_json: bool) -> None:
    """List the models that are on this machine.

    Those that Ollama, LM Studio, llama.cpp and Hugging Face's library keep. Each name is what --model takes.
    Memory is about what the weights need on a CPU; nothing is downloaded.
    """
    free = free_memory()
    found = [_described(model, free) for model in list_models()]
    if prints_json:
        click.echo(as_json(found))
    elif not found:
        click.echo("no models found in\n" + "\n".join(f"  {folder}" for folder in searched_folders()))
    else:
        click.echo(_as_table(found, free))


def _described(model: StoredModel, free: int | None) -> dict[str, Any]:
    memory = model.size if model.is_gguf else memory_needed(model.path)
    return {
        "name": model.name,
        "format": _format(model),
        "bytes": model.size,
        "memory": memory,
        "fits": None if free is None else memory <= free,
        "path": str(model.path),
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
    lines = [f"{'model':{width}}  {'format':{kinds}}  {'size':>12}  {'memory':>12}  fits"]
    for model in found:
        fits = {True: "yes", False: "no", None: "?"}[model["fits"]]
        sizes = f"{format_bytes(model['bytes']):>12}  {format_bytes(model['memory']):>12}"
        lines.append(f"{model['name']:{width}}  {model['format']:{kinds}}  {sizes}  {fits}")
    if free is not None:
        lines.append(f"free memory: {format_bytes(free)}")
    return "\n".join(lines)
