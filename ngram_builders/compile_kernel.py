"""Compiles the kernel when the package is built or installed. Run by hatchling, before any of the package can be.

In: the source tree. Out: a library (.so or .dll) in the wheel, or beside its source where the package is installed
as editable. The compiler is the system's, or what CC names; where there is none, the hook asks pip for zig, which
is one.
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = "ngram_builders/table"
SOURCES = ("kernel.c", "rows.h", "sigbus_guard.h")  # the first includes the others
LIBRARY_NAME = f"libkernel{'.dll' if sys.platform == 'win32' else '.so'}"
_ZIG = "ziglang>=0.13,<1"
_SECONDS = 300  # zig compiles some of its own parts first
# The same numbers on every processor (no fused operations, nothing that only this one has), and no calls into a C
# library.
_COMPILER_FLAGS = (
    *("-std=c99", "-O2", "-shared", "-ffreestanding", "-ffp-contract=off"),
    *("-fvisibility=hidden", "-fno-stack-protector"),
)
# Where the kernel is linked against nothing, it runs with every C library: these are the oldest names for that.
_ANY_LIBC = "manylinux_2_17_{0}.musllinux_1_1_{0}"
_ANY_LIBC_MACHINES = ("x86_64", "aarch64")


class CompileKernel(BuildHookInterface[Any]):
    """Called by hatchling: `dependencies` before the build, `initialize` and `finalize` around it."""

    scratch: TemporaryDirectory[str]

    def dependencies(self) -> list[str]:
        """Ask for zig where no compiler here works and pip can install one."""
        with TemporaryDirectory() as folder:
            works = compile_kernel(Path(self.root), Path(folder))[0]
        return [] if works or not _zig_target() else [_ZIG]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and put the library where the package loads it."""
        self.scratch = TemporaryDirectory()
        library, failure = compile_kernel(Path(self.root), Path(self.scratch.name))
        if not library:
            self.scratch.cleanup()
            raise RuntimeError(f"cannot compile the n-gram kernel: {failure}; install a C compiler, such as gcc")
        self.deliver(library, version, build_data)

    def deliver(self, library: Path, version: str, build_data: dict[str, Any]) -> None:
        """Add the library to the wheel, or to the source tree by a rename, so that it is never half there."""
        if version == "editable":
            path = Path(self.root, PACKAGE, LIBRARY_NAME)
            unfinished = path.with_name(f".{LIBRARY_NAME}-{os.getpid()}")
            shutil.copyfile(library, unfinished)
            unfinished.replace(path)
        else:
            build_data["force_include"][str(library)] = f"{PACKAGE}/{LIBRARY_NAME}"
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{_platform_tag()}"
        self.app.display_info(f"n-gram kernel: compiled, {library.stat().st_size:,} bytes")

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Delete what was compiled."""
        self.scratch.cleanup()


def source_paths(root: Path) -> list[Path]:
    """Return where the sources are in a source tree."""
    return [root / PACKAGE / name for name in SOURCES]


def compile_kernel(root: Path, folder: Path) -> tuple[Path | None, str]:
    """Compile in `folder` with the first compiler that can; return the library, or None and the last error."""
    if sys.maxsize < 2**32 or sys.byteorder != "little":
        return None, "it is for little-endian 64-bit processors"
    sources = source_paths(root)
    failure = "no C compiler found (CC, cc, gcc, clang, or the package ziglang)"
    for compiler in compilers():
        library = folder / LIBRARY_NAME
        command = [
            *compiler,
            *_COMPILER_FLAGS,
            *flags(),
            digest_flag(sources),
            "-o",
            str(library),
            str(sources[0]),
        ]
        failure = run(command, folder)
        if not failure and library.exists():
            return library, ""
    return None, failure


def compilers() -> Iterator[list[str]]:
    """Yield the compilers to try; zig last, as few have it."""
    if named := os.environ.get("CC"):
        yield shlex.split(named)
    for name in ("cc", "gcc", "clang"):
        if (path := shutil.which(name, path=_search_path())) and not _asks_for_xcode(path):
            yield [path]
    if find_spec("ziglang"):
        # Without a target zig compiles for this very processor, and the wheel may be used on another.
        yield [sys.executable, "-m", "ziglang", "cc", "-target", _zig_target()]


def _search_path() -> str:
    """Return the PATH without entries that mean the working folder."""
    return os.pathsep.join(folder for folder in os.get_exec_path() if Path(folder).is_absolute())


def _asks_for_xcode(compiler: str) -> bool:
    """Whether this is macOS's placeholder for a compiler, which would open a window to offer one."""
    if sys.platform != "darwin" or not compiler.startswith("/usr/bin/"):
        return False
    with TemporaryDirectory() as folder:
        return bool(run(["/usr/bin/xcode-select", "--print-path"], Path(folder)))


def _zig_target() -> str:
    """Return zig's name of this machine; empty if pip has no zig for it."""
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine().lower(), platform.machine().lower())
    system = {"linux": "linux-gnu", "darwin": "macos", "win32": "windows-gnu"}.get(sys.platform)
    return f"{machine}-{system}" if system and machine in ("x86_64", "aarch64") else ""


def flags() -> list[str]:
    """Return the flags that this system's linker needs."""
    if sys.platform == "win32":
        return []
    if sys.platform == "darwin":
        return ["-fPIC", "-mmacosx-version-min=11.0"]
    return ["-fPIC", "-nostdlib", "-Wl,--no-undefined", "-Wl,-s"]


def _platform_tag() -> str:
    """Return the platform tag of the wheel."""
    if sys.platform == "darwin":
        return f"macosx_11_0_{platform.machine()}"
    if sys.platform == "linux" and platform.machine() in _ANY_LIBC_MACHINES:
        return _ANY_LIBC.format(platform.machine())
    return sysconfig.get_platform().replace("-", "_").replace(".", "_")


def digest_flag(sources: list[Path]) -> str:
    """Tells the library what it was compiled from; see `kernel.source_digest`."""
    whole = b"".join(source.read_bytes() for source in sources)
    digest = int.from_bytes(blake2b(whole, digest_size=8).digest(), "little")
    return f"-DSOURCE_DIGEST={digest:#x}u"


def run(command: list[str], folder: Path) -> str:
    """Run a command; return what went wrong, in a line, or nothing."""
    caches = {"ZIG_GLOBAL_CACHE_DIR": str(folder / "zig"), "ZIG_LOCAL_CACHE_DIR": str(folder / "zig")}
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            cwd=folder,
            env={**os.environ, **caches, "PATH": _search_path()},
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"{command[0]}: {error}"
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    return "" if done.returncode == 0 else f"{command[0]}: {lines[0] if lines else f'status {done.returncode}'}"
