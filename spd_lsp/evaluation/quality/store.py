"""Results on disk as JSON lines: first the facts of the run, then one record an example, as they are measured.

An interrupted run resumes where it stopped; a last line that was cut off is dropped. Drafts and targets are kept
as text, so that metrics can be computed again. The files hold pieces of the evaluated code.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ngram_builders.errors import UserError

_EXAMPLES_FILE = "examples.jsonl"
Record = dict[str, Any]


class ResultStore:
    """An append-only file of results."""

    def __init__(self, folder: Path, facts: Mapping[str, Any]) -> None:
        """Open the results of this very run, or begin them; raise UserError for those of another run."""
        self.path = folder / _EXAMPLES_FILE
        folder.mkdir(parents=True, exist_ok=True)
        if not self.path.exists() or not self.path.stat().st_size:
            self.append({"run": dict(facts)})
            return
        self._drop_partial_line()
        stored = next(_read_records(self.path), {}).get("run", {})
        differing = sorted(key for key in {*facts, *stored} if facts.get(key) != stored.get(key))
        if differing:
            text = ", ".join(f"{key} {stored.get(key)!r} instead of {facts.get(key)!r}" for key in differing)
            raise UserError(f"{self.path} holds results of another run ({text}); give another --out")

    def _drop_partial_line(self) -> None:
        data = self.path.read_bytes()
        if not data.endswith(b"\n"):
            self.path.write_bytes(data[: data.rfind(b"\n") + 1])

    def append(self, record: Mapping[str, Any]) -> None:
        """Add one record."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record, ensure_ascii=False) + "\n")

    def records(self) -> list[Record]:
        """One record an example, in the order of first appearance; later records add arms to earlier ones."""
        return read_results(self.path.parent)


def read_results(folder: Path) -> list[Record]:
    """Read the records of a results folder; raise UserError if there are none."""
    path = folder / _EXAMPLES_FILE
    if not path.exists():
        raise UserError(f"no results of `spd-lsp eval quality` in {folder}; name the folder of its --out")
    examples: dict[str, Record] = {}
    for record in _read_records(path):
        if "key" in record:
            _merge(examples.setdefault(record["key"], {}), record)
    return list(examples.values())


def _merge(into: Record, record: Record) -> None:
    """Add the values of a record, dictionaries within dictionaries."""
    for name, value in record.items():
        if isinstance(value, dict):
            _merge(into.setdefault(name, {}), value)
        else:
            into[name] = value


def _read_records(path: Path) -> Iterator[Record]:
    with path.open(encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)
