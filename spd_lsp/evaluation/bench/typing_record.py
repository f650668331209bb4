"""The report of `spd-lsp bench --typing`: what someone who types real code sees, in three editors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ngram_builders.programs import python
from ngram_builders.sources.language_ids import language_of
from spd_lsp.evaluation.bench.machine import load_average
from spd_lsp.evaluation.bench.server_client import run_server
from spd_lsp.evaluation.bench.typist import EDITORS, AskingEditor, TypingRecord, Typist
from spd_lsp.evaluation.report_writer import Cell, Report, ReportTable
from spd_lsp.settings import Settings

_CAPTION = """\
Each file is open but for a part in its middle, which is typed in real time: a key every 80 to 200 ms, and half a
second more before a new line and at one key in ten. A draft that is right for three characters or more is accepted
with one key; in the last column nothing is, a key takes 110 ms, and the pauses 400 ms in all. VS Code asks 50 ms
after a key, Neovim and Emacs after 200 ms without one, Emacs only behind a dot or three letters. Times are from
key to answer, the editor's wait included."""
_WAITING = """\
Here nobody paused or typed before an answer was there: times mean nothing, nothing is computed ahead, and what is
counted does not depend on how busy the machine is, unless completions take more than 0.2 s."""


@dataclass(frozen=True, slots=True)
class Session:
    """One editor's record, and what its server used."""

    editor: AskingEditor
    record: TypingRecord
    cpu_seconds: float
    memory: tuple[int, int]  # bytes before and after


def record_typing(
    files: Sequence[Path],
    keys: int,
    settings: Settings,
    report: Callable[[str, int, int], None],
    *,
    waits: bool = False,
) -> Report:
    """Type this many keys in each editor, as many in each file; in real time, or waiting for every answer."""
    sessions = [asyncio.run(_type_files(editor, files, keys, settings, report, waits)) for editor in EDITORS]
    columns = ["", *(session.editor.name for session in sessions)]
    cells = [_cells(session) for session in sessions]
    rows = [[name, *(cell[name] for cell in cells)] for name in cells[0]]
    facts = {
        "model": settings.model,
        "files": ", ".join(path.name for path in files),
        "load average": load_average(),
    }
    caption = f"{_CAPTION} {_WAITING}" if waits else _CAPTION
    table = ReportTable(caption, columns, rows, 1)
    return Report("typing", "Typing, recorded", facts, [table], {"sessions": cells})


async def _type_files(
    editor: AskingEditor,
    files: Sequence[Path],
    keys: int,
    settings: Settings,
    report: Callable[[str, int, int], None],
    waits: bool,
) -> Session:
    folder = ["--data-dir", settings.data_dir] if settings.data_dir else []
    command = python("spd_lsp", *folder, "serve", "--model", settings.model, "--device", settings.device)
    record = TypingRecord()
    async with run_server(command, {"indexing": "off"}) as server:
        memory = server.memory
        cpu_seconds = server.cpu_seconds
        for number, path in enumerate(files):
            report(editor.name, number, len(files))
            document = path.absolute().as_uri(), language_of(path) or ""
            typist = Typist(server, editor, document, record, seed=number, waits=waits)
            await typist.type(*_parts(path.read_text(encoding="utf-8")), keys=keys // len(files))
        return Session(editor, record, server.cpu_seconds - cpu_seconds, (memory, server.memory))


def _parts(text: str) -> tuple[str, str, str]:
    """The lines of the file's first third, those that are typed, and those below them.

    Example: "a\\nb\\nc" -> "a\\n", "b", "\\nc": the cursor is on an empty line.
    """
    lines = text.replace("\r\n", "\n").split("\n")
    third = max(1, len(lines) // 3)
    first, typed, last = ("\n".join(part) for part in (lines[:third], lines[third:-third], lines[-third:]))
    return f"{first}\n", typed, f"\n{last}"


def _cells(session: Session) -> dict[str, Cell]:
    record = session.record
    answered = len(record.seconds)
    shown = record.shown

    def share(count: int, all_: int) -> float:
        return 100 * count / all_ if all_ else float("nan")

    p50, p95, p99 = np.percentile(record.seconds or [float("nan")], (50, 95, 99)) * 1000
    return {
        "keys": record.keys,
        "drafts accepted": record.accepted,
        "keystrokes saved, %": share(record.saved, record.keys + record.saved),
        "asked, % of keys": share(record.asked, record.keys),
        "answered before the next key, %": share(answered, record.asked),
        "ms to the answer, median": float(p50),
        "95th percentile": float(p95),
        "99th percentile": float(p99),
        "something was shown, % of answers": share(shown, answered),
        "of keys": share(shown, record.keys),
        "of pauses": share(record.shown_in_pauses, record.pauses),
        "of these without a model pass, %": share(record.without_pass, shown),
        "of these usable as a whole, %": share(record.usable, shown),
        "of these wrong from the next key on, %": share(record.wrong, shown),
        "flicker, % of keys that the first draft had foreseen": share(record.flickers, record.agreed),
        "processor time, ms a key": 1000 * session.cpu_seconds / max(1, record.keys),
        "memory before, MiB": session.memory[0] / 2**20,
        "memory after, MiB": session.memory[1] / 2**20,
    }
