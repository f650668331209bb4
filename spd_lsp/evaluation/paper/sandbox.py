"""Run generated code in a restricted process, for a few seconds.

`probe` tries each guard on the machine at hand, and every report lists the result.
- Limits on memory, processor time, file size, open files and processes, and a wall-clock limit, after which the
  process group is killed. Needs Python's module `resource`, which Windows lacks.
- A network namespace without interfaces. Linux, where user namespaces are allowed.
- A Landlock rule set: no file can be written, made, removed, renamed or executed, and only Python's library and
  the system's can be read. Linux from 5.13, where Landlock is enabled.
- An empty folder, Python's isolated mode and an empty environment. The superuser becomes nobody first.
This guards against accidents of generated code, not against an attacker, who might exploit a fault of the kernel.
A program reports itself that it reached its end, so one written to cheat can. For hostile code, run the whole
experiment in a virtual machine.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ngram_builders.errors import UserError

_MEMORY_BYTES = 1 << 30
_CPU_SECONDS = 3
_WALL_SECONDS = 20.0  # much more, because the machine may be busy

# Runs first in the new process, drops its rights one after the other, and executes the program.
_GUARD = """
import ctypes, os, resource, struct, sys
program = sys.stdin.buffer.read()
result = os.dup(1)
nothing = os.open(os.devnull, os.O_RDWR)
for used in (0, 1, 2):
    os.dup2(nothing, used)
try:
    libc = ctypes.CDLL(None)
    user, network = 0x10000000, 0x40000000
    root = os.geteuid() == 0
    libc.unshare(network if root else user | network)
except (AttributeError, OSError):  # not Linux
    libc, root = None, False
def opened(paths):
    return [os.open(path, getattr(os, "O_PATH", 0)) for path in paths if os.path.exists(path)]
library, system = opened(sys.path), opened(["/lib", "/lib64", "/usr/lib"])
if root:
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
    libc.prctl(4, 1, 0, 0, 0)  # it may look at its own open files, by which it reaches
    sys.path[:] = [f"/proc/self/fd/{place}" for place in library]  # a library that only the superuser finds
if hasattr(libc, "prctl") and hasattr(libc, "syscall"):
    read, all_rights = 0b1100, 0b1111111111111  # of the first version of Landlock
    rules = libc.syscall(444, ctypes.create_string_buffer(struct.pack("Q", all_rights)), 8, 0)
    for place in (*library, *system) if rules >= 0 else ():
        libc.syscall(445, rules, 1, ctypes.create_string_buffer(struct.pack("=Qi", read, place)), 0)
    libc.prctl(38, 1, 0, 0, 0)  # no new privileges
    libc.syscall(446, rules, 0)
for name, limit in (("AS", MEMORY), ("CPU", SECONDS), ("FSIZE", 0), ("NPROC", 0), ("CORE", 0), ("NOFILE", 64)):
    kind = getattr(resource, "RLIMIT_" + name)
    hard = resource.getrlimit(kind)[1]
    limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(kind, (limit, limit))
try:
    exec(compile(program, "<program>", "exec"), {"__name__": "__main__"})
    ending = "passed"
except BaseException as error:
    ending = type(error).__name__
os.write(result, ending.encode())
os._exit(0)
"""

PROBES = {
    "reach the network": "import socket\nsocket.create_connection(('127.0.0.1', {port}), 2)",
    "write a file": "open({folder!r} + '/new', 'w').write('x')",
    "make a folder": "import os\nos.mkdir({folder!r} + '/new')",
    "remove a file": "import os\nos.remove({file!r})",
    "read a file of yours": "open({file!r}).read()",
    "start a process": "import os\nif os.fork() == 0: os._exit(0)",
    "run another program": "import os\nos.execv('/bin/true', ['true'])",
    "take 4 GB of memory": "held = bytearray(4 << 30)",
    "compute forever": "while True: pass",
}
_HARMLESS = "import math, typing, collections, hashlib\nassert math.sqrt(4) == 2\n"


@dataclass(frozen=True, slots=True)
class SandboxResult:
    """How a program ended: it passes if it reaches its end without an exception."""

    passed: bool
    ending: str  # `passed`, an exception's name, `time limit`, or empty if it was killed


def run_sandboxed(program: str, wall_seconds: float = _WALL_SECONDS) -> SandboxResult:
    """Run a program's text under guard; what it prints is dropped."""
    guard = f"MEMORY, SECONDS = {_MEMORY_BYTES}, {_CPU_SECONDS}\n{_GUARD}"
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-B", "-c", guard],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env={},
            start_new_session=True,
        )
        try:
            ending = process.communicate(program.encode(errors="replace"), timeout=wall_seconds)[0].decode()
        except subprocess.TimeoutExpired:
            ending = "time limit"
        finally:
            _kill(process)
    return SandboxResult(ending == "passed", ending)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of a program and of anything it started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.communicate()


def probe() -> dict[str, bool]:
    """Whether a program can do each of PROBES here: True is not guarded."""
    if sys.platform == "win32":
        raise UserError("Windows cannot limit processes; run this under WSL or Linux")
    harmless = run_sandboxed(_HARMLESS)
    if not harmless.passed:
        raise UserError(
            f"a harmless program does not run in the sandbox ({harmless.ending or 'it was killed'}); as the "
            "superuser, check that every user can read Python's library, or run this as another user"
        )
    with tempfile.TemporaryDirectory() as name, socket.create_server(("127.0.0.1", 0)) as server:
        folder, file = Path(name), Path(name) / "yours"
        folder.chmod(0o777)
        file.write_text("x", encoding="utf-8")
        file.chmod(0o666)
        values = {"port": server.getsockname()[1], "folder": name, "file": str(file)}
        # A program that becomes another one cannot report that it passed: it ends as if killed.
        return {what: run_sandboxed(program.format(**values)).passed for what, program in PROBES.items()}


def require_guards(allow_weak: bool) -> dict[str, bool]:
    """Probe; raise UserError where a program could change files or reach the network, unless that is allowed."""
    possible = probe()
    unguarded = [what for what in list(PROBES)[:4] if possible[what]]
    if unguarded and not allow_weak:
        raise UserError(
            f"generated programs could {' and '.join(unguarded)} here: this system lacks the guards (Landlock and "
            "network namespaces, on Linux); run this in a container or a virtual machine with --weak-sandbox"
        )
    return possible
