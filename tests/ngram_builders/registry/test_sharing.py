"""A team's folder gives back the tables that were pushed to it, whole, and nothing else that lies there."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ngram_builders.errors import UserError
from ngram_builders.registry import sharing
from ngram_builders.registry.registry import Registry
from ngram_builders.registry.shared_folder import digest_of
from ngram_builders.registry.sharing import list_pulled, list_shared, pull, push
from ngram_builders.table.reader import Table
from tests.ngram_builders.small_tables import names, writer

RECIPE = {"model": "starter"}


@pytest.fixture(params=["folder", "memory"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A folder on a disk, and one that only fsspec knows."""
    if request.param == "folder":
        yield str(tmp_path / "team")
        return
    fsspec = pytest.importorskip("fsspec")
    yield f"memory://{tmp_path.name}"
    fsspec.filesystem("memory").store.clear()


@pytest.fixture
def team(tmp_path: Path) -> Path:
    return tmp_path / "team"


@pytest.fixture
def other(tmp_path: Path) -> Registry:
    """Another member's registry."""
    return Registry(tmp_path / "other")


@pytest.fixture
def mine(registry: Registry, repo: Path) -> Registry:
    registry.install("mine", writer(5, 7), roots=[repo], recipe=RECIPE)
    return registry


def test_a_pushed_table_is_pulled_with_its_origin(
    mine: Registry, other: Registry, address: str, repo: Path
) -> None:
    pushed = push(mine, "mine", address)
    assert pushed is not None
    assert list_shared(address) == ["mine"]
    pulled = pull(other, "mine", address)
    assert pulled is not None
    assert (pulled.tokens, pulled.weight) == (mine.find("mine").tokens, 0.7)
    assert pulled.recipe["origin"]["sources"] == "repo"
    assert list_pulled(other) == [("mine", pulled.recipe["imported"])]
    Table.open(pulled.path).verify()
    assert [file for file in other.folder.iterdir() if file.suffix == ".tmp"] == []


def test_only_what_is_new_is_copied(mine: Registry, other: Registry, address: str, repo: Path) -> None:
    push(mine, "mine", address)
    assert push(mine, "mine", address) is None
    first = pull(other, "mine", address)
    assert first is not None
    other.assign_workspace(repo, [("mine", 0.4)])
    assert pull(other, "mine", address) is None
    mine.install("mine", writer(5, 8), roots=[repo], recipe=RECIPE)
    assert push(mine, "mine", address) is not None
    second = pull(other, "mine", address)
    assert second is not None
    assert second.path != first.path
    assert names(other.tables_for(repo / "x.py", None)) == [("mine", 0.4)]


def test_the_file_of_an_earlier_version_is_deleted_once_the_new_one_is_named(
    mine: Registry, team: Path, repo: Path
) -> None:
    push(mine, "mine", str(team))
    mine.install("mine", writer(5, 8), roots=[repo], recipe=RECIPE)
    push(mine, "mine", str(team))
    record = json.loads((team / "mine.json").read_text())
    assert sorted(file.name for file in team.iterdir()) == [f"mine-{record['digest'][:32]}.ngt", "mine.json"]


def test_another_members_table_is_not_replaced_unasked(
    mine: Registry, other: Registry, address: str, tmp_path: Path, repo: Path
) -> None:
    push(mine, "mine", address)
    other.install("mine", writer(6), roots=[tmp_path / "elsewhere"], recipe=RECIPE)
    with pytest.raises(UserError, match="another table mine, from repo; replace it with --replace"):
        push(other, "mine", address)
    with pytest.raises(UserError, match="an n-gram table named mine exists already; remove it, or replace"):
        pull(other, "mine", address)
    older = Registry(tmp_path / "older")
    older.install("mine", writer(9), roots=[repo], recipe=RECIPE)
    mine.install("mine", writer(5, 8), roots=[repo], recipe=RECIPE)
    push(mine, "mine", address)
    with pytest.raises(UserError, match="another table mine"):  # built before the one that is there
        push(older, "mine", address)
    push(other, "mine", address, replace=True)
    assert pull(mine, "mine", address, replace=True) is not None


def test_a_push_that_is_killed_leaves_the_old_table(
    mine: Registry, other: Registry, address: str, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    push(mine, "mine", address)
    mine.install("mine", writer(5, 8), roots=[repo], recipe=RECIPE)

    def killed(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sharing, "_write", killed)
    with pytest.raises(KeyboardInterrupt):
        push(mine, "mine", address)
    monkeypatch.undo()
    assert pull(other, "mine", address) is not None
    assert push(mine, "mine", address) is not None
    assert pull(other, "mine", address) is not None


@pytest.mark.skipif(os.name != "posix", reason="modes are those of POSIX")
def test_whoever_may_read_the_folder_may_read_the_tables(mine: Registry, team: Path) -> None:
    before = os.umask(0o027)
    try:
        push(mine, "mine", str(team))
    finally:
        os.umask(before)
    assert {file.stat().st_mode & 0o777 for file in team.iterdir()} == {0o640}


def replace_table(team: Path, data: bytes) -> None:
    """Put other bytes in place of the table, with a record that fits them."""
    for table in team.glob("*.ngt"):
        table.unlink()
    (team / "new").write_bytes(data)
    digest = digest_of(team / "new")
    (team / "new").rename(team / f"mine-{digest[:32]}.ngt")
    record = json.loads((team / "mine.json").read_text()) | {"digest": digest, "size": len(data)}
    (team / "mine.json").write_text(json.dumps(record))


def test_a_damaged_table_is_not_installed(mine: Registry, other: Registry, team: Path) -> None:
    push(mine, "mine", str(team))
    (table,) = team.glob("*.ngt")
    data = table.read_bytes()
    for damaged in (data[:-1], data + b"x", data[:-1] + b"x", b""):
        table.write_bytes(damaged)
        with pytest.raises(UserError, match="is damaged: it is not the file that was pushed; push it again"):
            pull(other, "mine", str(team))
    for foreign in (b"not a table", data[:5000]):
        replace_table(team, foreign)
        with pytest.raises(UserError, match=r"cannot use mine-\w+\.ngt in .*team: .*; ask whoever"):
            pull(other, "mine", str(team))
    assert other.tables() == []
    assert not list(other.folder.glob(".*.tmp"))


@pytest.mark.parametrize(
    "record",
    [
        b"",
        b"[]",
        b"{" * 70_000,
        b"[" * 60_000,
        b'{"format": 2}',
        b'{"format": 1, "digest": "../../etc/passwd", "size": 5}',
        b'{"format": 1, "digest": "%b", "size": Infinity}' % (b"a" * 64),
        b'{"format": 1, "digest": "%b", "size": -1}' % (b"a" * 64),
        b'{"format": 1, "digest": 5, "size": 5}',
    ],
)
def test_a_record_that_nobody_pushed_is_refused(
    mine: Registry, other: Registry, team: Path, record: bytes
) -> None:
    push(mine, "mine", str(team))
    (team / "mine.json").write_bytes(record)
    with pytest.raises(UserError, match=r"mine\.json in .* cannot be read"):
        pull(other, "mine", str(team))


def test_a_table_larger_than_the_disk_is_refused_before_it_is_copied(
    mine: Registry, other: Registry, team: Path
) -> None:
    push(mine, "mine", str(team))
    record = json.loads((team / "mine.json").read_text()) | {"size": 2**49}
    (team / "mine.json").write_text(json.dumps(record))
    with pytest.raises(UserError, match="make room"):
        pull(other, "mine", str(team))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with names")
def test_a_pipe_is_not_waited_for(mine: Registry, other: Registry, team: Path) -> None:
    push(mine, "mine", str(team))
    (table,) = team.glob("*.ngt")
    for file in (table, team / "mine.json"):
        file.unlink()
        os.mkfifo(file)
        with pytest.raises(UserError, match="is not a regular file"):
            pull(other, "mine", str(team))


def test_names_that_no_table_can_have_are_not_listed(mine: Registry, team: Path) -> None:
    push(mine, "mine", str(team))
    for name in ("..json", "a b.json", "x\x1b[2J.json", "readme.txt"):
        (team / name).touch()
    assert list_shared(str(team)) == ["mine"]


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("no/such/folder", "no/such/folder has no table mine"),
        ("memory://empty", "memory://empty has no table mine"),
        ("nothing://x", "cannot use nothing://x: Protocol not known: nothing"),
        ("s3://user:secret@bucket", "must hold no password"),
    ],
)
def test_an_address_that_leads_nowhere_is_one_sentence(other: Registry, address: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as raised:
        pull(other, "mine", address)
    assert "user:secret" not in str(raised.value)
