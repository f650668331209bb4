"""Corpora are read in tasks: any executor and number of workers writes the same bytes, and can be resumed."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from ngram_builders import build as local
from ngram_builders.errors import UserError
from ngram_builders.index.table_file import Table
from ngram_builders.registry.registry import Registry
from ngram_builders.scratch import read_record, write_record
from ngram_builders.token_space import TokenSpace
from spd_lsp.cli import main
from tests.ngram_builders import byte_encoder
from tests.ngram_builders.byte_encoder import END, VOCABULARY, make_failing
from tests.planted import lines

pytest.importorskip("datatrove", reason="needs the extra `distributed`")

from ngram_builders import corpora
from ngram_builders.corpora import Task, build_corpora

ROOT = Path(__file__).parents[2]
SPACE = TokenSpace("bytes", VOCABULARY, END)
HERE = Path(sys.executable).parent
CPU = {"partition": "cpu", "account": "lab"}


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Seven texts, and copies of three of them; in several tasks."""
    monkeypatch.setattr(corpora, "_TASK_BYTES", 100)
    folder = tmp_path / "sources"
    folder.mkdir()
    for number in range(9):
        (folder / f"{number}.py").write_text(f"import os\nvalue_{number % 6} = {number % 6}\n" * (1 + number % 6))
    (folder / "x.go").write_text("package main\n")
    (folder / "notes.md").write_text("no source\n")
    return folder


def run(registry: Registry, *addresses: Path | str, make: Any = byte_encoder.make_encode, **options: Any) -> Any:
    chosen: dict[str, Any] = {"name": "there", "workers": 1, "token_space": SPACE, **options}
    return build_corpora([str(one) for one in addresses], make_encode=make, registry=registry, **chosen)


def run_here(registry: Registry, folder: Path) -> local.BuildSummary:
    """The same sources, in a build of one process."""
    return local.build([folder], "here", byte_encoder.encode, token_space=SPACE, registry=registry)


def content(registry: Registry, name: str = "there") -> list[bytes]:
    return [path.read_bytes() for path in registry.find(name).paths]


def texts(*files: Path) -> list[bytes]:
    """The texts of a table, from all its shards."""
    arrays = [Table.open(path).array for path in files]
    streams = [array.stream(number) for array in arrays for number in range(len(array.breaks) - 1)]
    assert all(stream[0] == stream[-1] == END for stream in streams)
    return sorted(bytes(stream[1:-1].astype(np.uint8)) for stream in streams)


def in_one_task(address: str | Path, work: Path) -> tuple[list[bytes], dict[str, Any]]:
    """The texts that count where a task runs in this process, and its record."""
    write_record(work / "00000.files", corpora._list_files(str(address), corpora.Counter()))
    Task(work, byte_encoder.make_encode, SPACE)(None, 0, 1)
    record = read_record(work / "00000.done")
    return texts(*(work / name for name in record["shards"])), record


@pytest.mark.slow
def test_any_number_of_workers_writes_the_same_bytes(
    registry: Registry, sources: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Copies count once, as in a build of one process; tasks print nothing, and nothing is left of the work."""
    seen: list[tuple[str, int, int]] = []
    made = run(registry, sources, workers=2, report=lambda *progress: seen.append(progress))
    two = content(registry)
    run(registry, sources, workers=1)
    assert content(registry) == two
    assert seen[-1] == ("tasks", len(two), len(two)) > ("tasks", 3, 3)
    assert capfd.readouterr() == ("", "")
    expected = run_here(registry, sources)
    assert (made.files, made.tokens, made.skipped) == (expected.files, expected.tokens, expected.skipped)
    there, here = registry.find("there"), registry.find("here")
    assert (texts(*there.paths), there.sources) == (texts(*here.paths), here.sources)
    assert not list(registry.table_folder("there").glob("*.tasks"))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rows.jsonl", "rows.jsonl.gz", "rows.parquet"])
def test_rows_make_the_table_that_their_files_do(registry: Registry, sources: Path, name: str) -> None:
    """From a file, a pattern or a folder; the rules for names hold for the paths of rows."""
    rows = [{"text": file.read_text(), "path": f"src/{file.name}"} for file in sorted(sources.iterdir())]
    rows.append({"text": "x = 1\n", "path": "node_modules/x.js"})
    file = sources.parent / "rows" / name
    file.parent.mkdir()
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    if name.endswith(".parquet"):
        pyarrow = pytest.importorskip("pyarrow", reason="needs pyarrow")
        pytest.importorskip("pyarrow.parquet").write_table(pyarrow.Table.from_pylist(rows), file)
    else:
        file.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    run_here(registry, sources)
    for address in (file, file.parent / "r*s.*", file.parent):
        made = run(registry, address)
        assert made.skipped == {"duplicate": 3, "installed": 1, "not source code": 1}
        assert texts(*registry.find("there").paths) == texts(*registry.find("here").paths)


def test_corpora_are_read_wherever_fsspec_reads(tmp_path: Path) -> None:
    """Rows that name no path count; lines that are no JSON and rows without a text do not."""
    from fsspec.implementations.memory import MemoryFileSystem

    MemoryFileSystem().pipe_file("/c/a.jsonl", b'{"text": "a = 1\\n"}\n{"text": "b = 2\\n", "metadata": "?"}\n')
    MemoryFileSystem().pipe_file("/c/b.jsonl", b'broken\n{"text": ""}\n{"text": "c = 3\\n"}\n')
    assert in_one_task("memory://c", tmp_path)[0] == [b"a = 1\n", b"b = 2\n", b"c = 3\n"]
    MemoryFileSystem().pipe_file("/s/main.py", b"print()\n")
    MemoryFileSystem().pipe_file("/s/vendor/x.py", b"x = 1\n")
    assert in_one_task("memory://s", tmp_path)[0] == [b"print()\n"]


def test_secrets_are_masked(tmp_path: Path) -> None:
    held = lines()
    rows = [{"text": f"import os\n{line}\nprint({name!r})\n"} for name, (line, _) in held.items()]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    written, record = in_one_task(tmp_path / "rows.jsonl", tmp_path)
    assert not [name for name, (_, secret) in held.items() if secret.encode() in b"".join(written)]
    assert record["masked"] >= len(held)


@pytest.mark.slow
def test_a_failed_task_is_one_sentence(
    registry: Registry, sources: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UserError, match=r"a task failed; see .*shared/.*logs; the same"):
        run(registry, sources, make=make_failing, folder=tmp_path / "shared")
    assert any("no tokenizer here" in log.read_text() for log in (tmp_path / "shared").rglob("*.log"))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("address", "name", "fault"),
    [
        ("gone", "mine", "cannot read .*gone: No such file or directory; correct it"),
        ("*.gz", "mine", r"nothing to read at .*; name a folder of sources, files that end in \.jsonl, "),
        ("notes.txt", "mine", "nothing to read at"),
        ("nowhere://x", "mine", "cannot read nowhere://x: .*nowhere"),
        pytest.param("rows.jsonl", "mine", r"no source code at .*rows\.jsonl", marks=pytest.mark.slow),
    ],
)
def test_what_cannot_be_read_is_told(
    registry: Registry, tmp_path: Path, address: str, name: str, fault: str
) -> None:
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "rows.jsonl").write_text('{"code": "x"}\n')
    with pytest.raises(UserError, match=fault):
        run(registry, address if ":" in address else tmp_path / address, name=name)
    assert registry.names() == []


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand-ins for Slurm's commands, as scripts in a folder; `sbatch` keeps the last script, and counts them."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'slurm'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    (tmp_path / "slurm").mkdir()
    keep = 'for file; do :; done; echo "Submitted batch job 41"; grep -q launch_pickled "$file" || exit 0\n'
    say(tmp_path / "slurm", "sbatch", f'{keep}cp "$file" "$0.script"; echo job >> "$0.jobs"\n')
    say(tmp_path / "slurm", "scontrol", "echo here\n")
    say(tmp_path / "slurm", "squeue", "")
    return tmp_path / "slurm"


def say(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/bash\n{script}")
    (folder / name).chmod(0o755)


@pytest.mark.slow
@pytest.mark.skipif(not (HERE / "launch_pickled_pipeline").exists(), reason="needs datatrove's program in PATH")
def test_slurms_tasks_write_the_same_bytes(registry: Registry, sources: Path, slurm: Path) -> None:
    """Scripts and pickled executors are the real ones, the queue is not; what is undone is submitted again."""

    def do(*tasks: int) -> None:
        for task in tasks:
            facts = {"SLURM_ARRAY_TASK_ID": str(task), "SLURM_NODELIST": "here", "SLURM_JOB_ID": "41"}
            subprocess.run(["bash", slurm / "sbatch.script"], env={**os.environ, **facts}, capture_output=True)

    there = partial(run, registry, sources, executor="slurm", workers=40, slurm=CPU)
    assert re.match(r"job 41 has 4 of 4 tasks to do; when it has ended, run the same command again", there())
    script = (slurm / "sbatch.script").read_text()
    assert {f"#SBATCH --{line}" for line in ("partition=cpu", "account=lab", "array=0-3%40")} <= {
        *script.split("\n")
    }
    say(slurm, "squeue", "echo 40\n")
    assert there().startswith("job 40 has 4 of 4 ")
    assert (slurm / "sbatch.jobs").read_text() == "job\n", "it is in the queue"
    say(slurm, "squeue", "")
    do(1, 3)
    assert there().startswith("job 41 has 2 of 4 tasks to do")
    do(0, 1)
    assert there().name == "there"
    whole = content(registry)
    run(registry, sources)
    assert content(registry) == whole


def call(data: Path, *arguments: str | Path, status: int = 1) -> str:
    result = CliRunner().invoke(main, ["--data-dir", str(data), *map(str, arguments)])
    assert result.exit_code == status, result.output
    return result.output


def test_the_command_says_what_it_needs(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = ("--corpus", sources)
    for arguments, message in (
        (corpus, "needs a name; give one with --name"),
        ((sources, *corpus), "--corpus takes no REPO"),
        ((*corpus, "--language", "go"), "--corpus takes no REPO, nor options that choose files"),
        ((sources, "--workers", "2"), "--workers is for --corpus"),
    ):
        assert message in call(sources, "build-ngrams", *arguments)
    monkeypatch.delitem(sys.modules, "ngram_builders.corpora")
    monkeypatch.setitem(sys.modules, "datatrove.executor", None)
    output = call(sources, "build-ngrams", *corpus, "--name", "it")
    assert re.search(r"--corpus needs datatrove\.executor; run: .* 'spd-lsp\[distributed\]'", output)


@pytest.mark.slow
def test_the_command_builds_a_table_that_rebuild_refuses(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = sources.parent / "data"
    monkeypatch.chdir(sources)
    for address in (sources, "."):  # the same corpus replaces its table unasked
        build = ("build-ngrams", "--corpus", address, "--name", "it", "--workers", "1")
        assert "it: 7 files, " in call(data, *build, status=0)  # behind progress, where the machine is busy
    assert "it was not built from repositories; build or import it again" in call(data, "ngrams", "rebuild", "it")
    assert "no table was built from a repository" in call(data, "ngrams", "rebuild", status=0)
