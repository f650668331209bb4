"""A package is built whatever compilers there are; where none can be had, the build says so."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

from ngram_builders import compile_kernel
from ngram_builders.compile_kernel import LIBRARY_NAME, PACKAGE, SOURCES, CompileKernel, source_paths
from ngram_builders.table import kernel

ROOT = Path(compile_kernel.__file__).parents[1]


@pytest.fixture
def hook(tmp_path):
    """The hook as hatchling makes it, for a source tree of its own."""
    (tmp_path / PACKAGE).mkdir(parents=True)
    for there, here in zip(source_paths(tmp_path), source_paths(ROOT), strict=True):
        there.write_bytes(here.read_bytes())
    return CompileKernel(str(tmp_path), {}, None, None, "", "wheel")  # type: ignore[arg-type]


@pytest.fixture
def no_compiler(monkeypatch):
    monkeypatch.setattr(compile_kernel, "compilers", lambda: iter(()))


def initialize(hook: CompileKernel, version: str) -> dict:
    data: dict = {"force_include": {}}
    hook.initialize(version, data)
    included = list(data["force_include"].values())
    hook.finalize(version, data, "")
    return {**data, "force_include": included}


def needs_compiler(hook: CompileKernel, folder: Path) -> None:
    library, failure = compile_kernel.compile_kernel(Path(hook.root), folder)
    if not library:
        pytest.skip(failure)


def test_a_wheel_gets_the_library_and_the_tree_stays_clean(hook, tmp_path_factory) -> None:
    needs_compiler(hook, tmp_path_factory.mktemp("probe"))
    data = initialize(hook, "standard")
    assert data["force_include"] == [f"{PACKAGE}/{LIBRARY_NAME}"]
    assert data["pure_python"] is False
    assert data["tag"].startswith("py3-none-")
    assert {path.name for path in Path(hook.root).rglob("*.*")} == set(SOURCES)


def test_an_editable_installation_has_it_in_the_tree(hook, tmp_path_factory) -> None:
    needs_compiler(hook, tmp_path_factory.mktemp("probe"))
    assert initialize(hook, "editable") == {"force_include": []}
    package = Path(hook.root, PACKAGE)
    assert {path.name for path in package.iterdir()} == {*SOURCES, LIBRARY_NAME}
    library = kernel.open_library(package / LIBRARY_NAME)
    assert library.source_digest() == kernel.source_digest()


def test_without_a_compiler_zig_is_a_build_dependency(hook, no_compiler, monkeypatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    assert hook.dependencies() == ["ziglang>=0.13,<1"]
    monkeypatch.setattr(
        platform, "machine", lambda: "mips64"
    )  # for which pip has no zig: asking would end the build
    assert hook.dependencies() == []


def test_with_a_compiler_there_is_no_build_dependency(hook, tmp_path_factory) -> None:
    needs_compiler(hook, tmp_path_factory.mktemp("probe"))
    assert hook.dependencies() == []


def test_without_any_compiler_nothing_is_installed_and_the_remedy_named(hook, no_compiler) -> None:
    with pytest.raises(
        RuntimeError, match=r"cannot compile the n-gram kernel: no C compiler found .*; install a C"
    ):
        initialize(hook, "standard")


@pytest.mark.parametrize(
    "broken", [["/no/such/compiler"], [sys.executable, "-c", "raise SystemExit('no can do')"]]
)
def test_after_a_compiler_that_fails_the_next_is_tried(hook, tmp_path, monkeypatch, broken) -> None:
    needs_compiler(hook, tmp_path)
    working = list(compile_kernel.compilers())
    monkeypatch.setattr(compile_kernel, "compilers", lambda: iter([broken, *working]))
    assert compile_kernel.compile_kernel(Path(hook.root), tmp_path)[0]
    monkeypatch.setattr(compile_kernel, "compilers", lambda: iter([broken]))
    library, failure = compile_kernel.compile_kernel(Path(hook.root), tmp_path)
    assert library is None
    assert failure.startswith(broken[0])


@pytest.mark.skipif(sys.platform != "linux", reason="the wheel's name promises this of Linux")
def test_the_library_depends_on_no_other(hook, tmp_path) -> None:
    """So that the wheel may be named for the oldest systems and for every C library."""
    needs_compiler(hook, tmp_path)
    library, _ = compile_kernel.compile_kernel(Path(hook.root), tmp_path)
    try:
        sections = subprocess.run(["readelf", "-d", str(library)], capture_output=True, text=True).stdout
    except FileNotFoundError:
        pytest.skip("no readelf")
    assert "Dynamic section" in sections
    assert "NEEDED" not in sections
