"""Results on disk, a JSON object a line: first what was run, then what was found at each place, as it is found.

A run that is stopped goes on where it was; a last line that was cut off is dropped. Drafts and targets are kept as
texts, so that metrics can be computed anew. The files hold pieces of the code they were made from.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ngram_builders.errors import UserError

Record = dict[str, Any]


class Store:
    """One file of results, to which is only ever added."""

    def __init__(self, path: Path, run: Mapping[str, Any]) -> None:
        """Open results of this very run, or begin them; those of another run are refused, not mixed."""
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or not path.stat().st_size:
            self.append({"run": dict(run)})
            return
        path.chmod(0o600)  # earlier versions let everybody read it
        self.mend()
        found = next(_read_records(path), {}).get("run", {})
        differing = [key for key in {*run, *found} if run.get(key) != found.get(key)]
        if differing:
            told = ", ".join(f"{key} {found.get(key)!r} instead of {run.get(key)!r}" for key in sorted(differing))
            raise UserError(f"expected results of this run in {path}, found others ({told}); give another --out")

    def mend(self) -> None:
        """Drop a last line that was not written to its end."""
        data = self.path.read_bytes()
        if not data.endswith(b"\n"):
            self.path.write_bytes(data[: data.rfind(b"\n") + 1])

    def append(self, record: Mapping[str, Any]) -> None:
        """Add one record."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record, ensure_ascii=False) + "\n")

    def kept(self, name: str) -> Any:
        """What was last kept under a name beside the places, or None."""
        return next((one[name] for one in reversed([*_read_records(self.path)]) if name in one), None)

    def records(self) -> list[Record]:
        """What was found at each place, in the order of the places' first records; later ones add arms to them."""
        return read_places(self.path)


def read_places(path: Path) -> list[Record]:
    """What a file says of each place; one that is not there raises UserError."""
    if not path.exists():
        raise UserError(f"expected results of `spd-lsp eval quality` in {path}, found nothing; name its --out")
    places: dict[str, Record] = {}
    for record in _read_records(path):
        if "key" in record:
            merge(places.setdefault(record["key"], {}), record)
    return list(places.values())


def merge(into: Record, record: Record) -> None:
    """Add what a record says of a place."""
    for name, value in record.items():
        if isinstance(value, dict):
            merge(into.setdefault(name, {}), value)
        else:
            into[name] = value


def _read_records(path: Path) -> Iterator[Record]:
    """The records of a file."""
    with path.open(encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)
