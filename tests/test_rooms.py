"""The code keeps its shape: rooms that one can hold in mind, and a surface that shows what others use."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("spd_lsp", "ngram_builders")
FILES = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
EVERYWHERE = [*FILES, *(path for folder in ("tests", "editors") for path in (ROOT / folder).rglob("*.py"))]
LARGEST_ROOM = 14  # files
LONGEST = 450  # lines
WORD = re.compile(r"\w+")


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def names_in(path: Path) -> set[str]:
    """What a file may use of others: imported names, attributes, and the words of its strings that are code."""
    names: set[str] = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.ImportFrom):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Attribute):
            names.add(node.attr)
        elif isinstance(node, ast.keyword) and node.arg:
            names.add(node.arg)  # as in patch.multiple
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names |= set(WORD.findall(node.value))
    return names


@cache
def names_by_file() -> dict[Path, set[str]]:
    return {path: names_in(path) for path in EVERYWHERE}


@cache
def files_by_name() -> Counter[str]:
    return Counter(name for names in names_by_file().values() for name in names)


def is_used_outside(name: str, path: Path) -> bool:
    """Whether another file imports a name, looks it up on a module, or writes it in a program of its own."""
    return files_by_name()[name] > (name in names_by_file()[path])


def helpers(path: Path) -> list[str]:
    """Module-level functions without decorators and constants that do not begin with an underscore."""
    found = []
    for node in parsed(path).body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and not node.decorator_list:
            found.append(node.name)
        elif isinstance(node, ast.Assign):
            found += [t.id for t in node.targets if isinstance(t, ast.Name) and t.id.isupper() and len(t.id) > 3]
    return [name for name in found if not name.startswith("_")]


@pytest.mark.parametrize("package", PACKAGES)
def test_what_only_its_own_file_uses_begins_with_an_underscore(package):
    files = [path for path in FILES if path.parts[len(ROOT.parts)] == package and path.name[0] != "_"]
    assert [(path.name, name) for path in files for name in helpers(path) if not is_used_outside(name, path)] == []


def test_a_room_holds_no_more_files_than_one_can_hold_in_mind():
    rooms = Counter(path.parent for path in FILES if path.name != "__init__.py" and "evaluation" not in path.parts)
    lists = {ROOT / "spd_lsp" / "training", ROOT / "spd_lsp" / "commands"}  # a file a step, a file a command
    assert {room.name: size for room, size in rooms.items() if size > LARGEST_ROOM and room not in lists} == {}


def test_no_file_is_longer_than_a_sitting():
    lengths = {path.name: path.read_text(encoding="utf-8").count("\n") for path in FILES}
    assert {name: lines for name, lines in lengths.items() if lines > LONGEST} == {}
