"""Measures how soon the real server knows what git did to a repository, while nobody asks.

    python -m tests.lsp.measure_checkout OLD NEW --changed 346 --event checkout

In: two versions of a repository's folder. A scratch repository gets a branch of each, which differ in so many
files; a server serves the old one. Out: after git has gone over to the new one, a line of JSON: how many of the
places are answered right after two seconds in which nobody asked, after twenty, and how long it took for all; how
many deleted names were offered; and the processor time of the server and its builds until then.

Seconds are those of a machine that has a core to spare: less what the server or its builds waited for one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ngram_builders.registry.registry import Registry
from spd_lsp.evaluation.bench.machine import processes_of, processor_seconds, read_proc
from tests.lsp.lsp_client import Editor, at, texts
from tests.lsp.test_checkout import COLOURS, HABIT, built
from tests.lsp.test_server_live import SERVE, replaced
from tests.lsp.test_server_process import COMPLETION, process

_ANIMALS = ("otter", "heron", "raven", "tapir", "viper", "whale")
_NAMES = [f"{colour}_{animal}" for animal in _ANIMALS for colour in COLOURS]
_OPEN, _IMPORTED, _OTHERS, _GONE, _DROPPED = 2, 10, 20, 10, 5  # places of each kind
_DELETED, _WRITTEN = 3, 2  # in the protocol
_EVENTS = ("checkout", "pull", "rebase")
_SOON, _LATE, _NEVER = 2.0, 20.0, 90.0  # seconds after the event


@dataclass
class Change:
    """A repository whose branch `other` differs from `main`, and the names that tell which of them is known."""

    folder: Path
    written: list[Path] = field(default_factory=list)
    deleted: list[Path] = field(default_factory=list)
    names: dict[str, list[str]] = field(default_factory=dict)  # by kind of place
    open_files: list[Path] = field(default_factory=list)
    imports: str = ""

    def git(self, *arguments: str) -> str:
        """Run git in the repository."""
        who = ("-c", "user.name=someone", "-c", "user.email=someone@localhost", "-c", "gc.auto=0")
        found = subprocess.run(["git", *who, *arguments], cwd=self.folder, check=True, capture_output=True)
        return found.stdout.decode()

    @property
    def file_events(self) -> list[dict[str, object]]:
        """What an editor reports."""
        kinds = [(file, _WRITTEN) for file in self.written] + [(file, _DELETED) for file in self.deleted]
        return [{"uri": file.as_uri(), "type": kind} for file, kind in kinds]


def prepare(old: Path, new: Path, folder: Path, changed: int) -> Change:
    """Make the repository, on `main`."""
    change = Change(folder)
    shutil.copytree(old, folder, ignore=lambda _, names: [one for one in names if one == ".git"])
    change.git("init", "-q", "-b", "main")
    paths = {one.relative_to(root) for root in (old, new) for one in root.rglob("*.py")}
    differing = [one for one in sorted(paths) if _read(old / one) != _read(new / one)]
    same = sorted(paths.difference(differing))
    random.Random(0).shuffle(differing)
    random.Random(0).shuffle(same)
    chosen = [*differing, *same][:changed]
    lasting = [one for one in chosen if (old / one).is_file() and _imports_as(one)]
    names = iter(_NAMES)

    def place(kind: str, files: Sequence[Path], where: Path) -> None:
        change.names[kind] = [next(names) for _ in files]
        for number, (name, file) in enumerate(zip(change.names[kind], files, strict=True)):
            with (where / file).open("a", encoding="utf-8") as text:
                text.write(HABIT.format(name=name, number=number))

    gone = lasting[: max(_GONE, len(lasting) // 10)]
    kept = lasting[len(gone) :]
    opened, imported, others, dropped = _parts(kept, _OPEN, _IMPORTED, _OTHERS, _DROPPED)
    place("gone", gone[:_GONE], folder)
    place("dropped", dropped, folder)
    change.git("add", "-A")
    change.git("commit", "-qm", "old")
    change.git("tag", "start")
    change.git("checkout", "-q", "-b", "other")
    for file in chosen:
        if file in gone or not (new / file).is_file():
            (folder / file).unlink(missing_ok=True)
            change.deleted.append(folder / file)
        else:
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_bytes((new / file).read_bytes() + b"\n# of the other branch\n")
            change.written.append(folder / file)
    for kind, files in (("open", opened), ("imported", imported), ("others", others)):
        place(kind, files, folder)
    change.git("add", "-A")
    change.git("commit", "-qm", "new")
    change.git("checkout", "-q", "main")
    change.open_files = [folder / file for file in opened]
    change.imports = "".join(f"import {_imports_as(file)}\n" for file in imported)
    return change


def _parts(files: Sequence[Path], *sizes: int) -> list[list[Path]]:
    """The first files in groups; only such as the new version has, too."""
    ends = [sum(sizes[: number + 1]) for number in range(len(sizes))]
    return [list(files[end - size : end]) for size, end in zip(sizes, ends, strict=True)]


def _read(file: Path) -> bytes:
    return file.read_bytes() if file.is_file() else b""


def _imports_as(file: Path) -> str:
    """The module that a file is, from the top of the repository; empty if its name is none."""
    parts = file.with_suffix("").parts
    return ".".join(parts) if all(map(str.isidentifier, parts)) and parts[-1] != "__init__" else ""


def act(change: Change, event: str) -> None:
    """Let git go over to the other branch."""
    if event == "checkout":
        change.git("checkout", "-q", "other")
    elif event == "pull":
        change.git("pull", "-q", "--ff-only", ".", "other")
    else:
        change.git("rebase", "-q", "other")


def add_commits(change: Change) -> None:
    """Commit three times what the other branch does not touch, so that there is something to rebase."""
    for number in range(3):
        (change.folder / f"mine_{number}.py").write_text(f"mine = {number}\n")
        change.git("add", "-A")
        change.git("commit", "-qm", f"mine {number}")


class FreeClock:
    """Seconds since a moment, less those in which a process or one that it started was ready and had no core."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.waited: dict[int, float] = {}  # of each process, while it was last seen
        self.ended = False
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while not self.ended:
            for one in processes_of(self.pid):
                with suppress(OSError):  # it ended
                    threads = [file.read_text().split() for file in Path(f"/proc/{one}/task").glob("*/schedstat")]
                    # The server's threads take turns; those of a build run side by side.
                    together = sum if one == self.pid else max
                    self.waited[one] = together([0.0, *(int(words[1]) / 1e9 for words in threads)])
            time.sleep(0.05)

    def start(self) -> None:
        """Begin to count."""
        self.began, self.before = time.monotonic(), dict(self.waited)

    def seconds(self) -> float:
        """The time since `start`."""
        waited = [seconds - self.before.get(one, 0.0) for one, seconds in self.waited.items()]
        return time.monotonic() - self.began - max(waited, default=0.0)


class Asker:
    """An open document in which names are asked for."""

    def __init__(self, editor: Editor, file: Path, imports: str) -> None:
        self.editor = editor
        self.uri = file.as_uri()
        self.imports = imports
        self.version = 1
        editor.open(imports + "\n", self.uri)

    async def found(self, names: Sequence[str]) -> int:
        """How many names are offered where each is asked for."""
        count = 0
        for name in names:
            text = f"{self.imports}\ndef read_again(gateway):\n    {name}_ledger = gateway.coll"
            self.show(text)
            line = text.rpartition("\n")[2]
            answer = await self.editor.request(COMPLETION, at(text.count("\n"), len(line), uri=self.uri))
            count += any(f"collect_{name}_entries" in one for one in texts(answer))
        self.show(f"{self.imports}\n")  # or the other document would learn from what was asked
        return count

    def show(self, text: str) -> None:
        """Replace the document's text."""
        self.version += 1
        self.editor.notify("textDocument/didChange", replaced(text, self.uri, self.version))


def used_by(pid: int) -> tuple[float, float]:
    """Processor seconds of a process, and of those that it started."""
    own = read_proc(pid, "stat").rpartition(")")[2].split()
    ticks = os.sysconf("SC_CLK_TCK")
    others = processor_seconds(processes_of(pid)[1:]) + sum(map(int, own[13:15])) / ticks
    return sum(map(int, own[11:13])) / ticks, others


async def measure(change: Change, registry: Registry, event: str, told: bool) -> dict[str, Any]:
    """Serve, act, wait, ask."""
    names, deleted = change.names, [*change.names["gone"], *change.names["dropped"]]
    if event == "rebase":
        add_commits(change)
    async with process("-m", "spd_lsp", "--data-dir", str(registry.folder), *SERVE) as (child, editor):
        clock = FreeClock(child.pid)
        await editor.start(workspaceFolders=[{"uri": change.folder.as_uri(), "name": "shop"}])
        await editor.ready()
        for file in change.open_files:
            editor.open(file.read_text(), file.as_uri())
        near = Asker(editor, change.folder / "near.py", change.imports)
        far = Asker(editor, change.folder / "far.py", "")
        await far.found(deleted)
        await asyncio.sleep(2.0)
        known = await far.found(deleted)
        await near.found(names["imported"][:1])
        await asyncio.sleep(2.0)
        began, used = time.monotonic(), used_by(child.pid)
        await asyncio.to_thread(act, change, event)
        clock.start()
        if told:
            editor.notify("workspace/didChangeWatchedFiles", {"changes": change.file_events})
        for file in change.open_files:  # which editors load again
            editor.notify("textDocument/didChange", replaced(file.read_text(), file.as_uri(), 2))
        result: dict[str, Any] = {
            "event": event, "told": told, "written": len(change.written), "deleted": len(change.deleted),
            "known before": known,
            "git seconds": round(clock.began - began, 1),
        }  # fmt: skip

        async def ask(when: float) -> bool:
            while clock.seconds() < when:
                await asyncio.sleep(0.1)
            spent = [round(now - before, 1) for now, before in zip(used_by(child.pid), used, strict=True)]
            key = f"{clock.seconds():.1f} s ({time.monotonic() - clock.began:.0f} on the clock)"
            found = {
                "open": await near.found(names["open"]), "imported": await near.found(names["imported"]),
                "deleted": await far.found(deleted), "others": await far.found(names["others"]),
            }  # fmt: skip
            result[key] = found | {"cpu": spent}
            sys.stderr.write(f"{key}: {result[key]}\n")
            wanted = {kind: len(names[kind]) for kind in ("open", "imported", "others")} | {"deleted": 0}
            return found == wanted

        await ask(_SOON)
        is_right, when = await ask(_LATE), _LATE
        while not is_right and when < _NEVER:
            when = clock.seconds() + 2.0
            is_right = await ask(when)
        clock.ended = True
        result["load"] = round(os.getloadavg()[0], 1)
    return result


def main() -> None:
    """Parse the arguments, measure in a scratch folder, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--changed", type=int, default=346)
    parser.add_argument("--event", choices=_EVENTS, action="append", help="only this one; may be repeated")
    given = parser.parse_args()
    with TemporaryDirectory() as scratch:
        change = prepare(given.old.resolve(), given.new.resolve(), Path(scratch, "shop"), given.changed)
        registry = built(change, Path(scratch, "data"))  # type: ignore[arg-type]
        times = {file: file.stat().st_mtime_ns for file in change.folder.rglob("*.py")}
        data = registry.folder.with_name("kept")
        shutil.copytree(registry.folder, data)
        for event in given.event or _EVENTS:
            for told in (True, False):
                sys.stdout.write(json.dumps(asyncio.run(measure(change, registry, event, told))) + "\n")
                sys.stdout.flush()
                change.git("checkout", "-q", "-f", "-B", "main", "start")
                for file, mtime in times.items():
                    os.utime(file, ns=(mtime, mtime))
                shutil.rmtree(registry.folder)
                shutil.copytree(data, registry.folder)


if __name__ == "__main__":
    main()
