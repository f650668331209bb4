"""Run a program that nobody has read: in a process of its own that can hurt little, for a few seconds.

What guards, and where. `probe` tries each guard on the machine at hand, and every report says what it found.
- Limits of memory, processor time, file size, open files and processes, and a time limit of the clock, after
  which the process group is killed. Where Python has the module `resource`: not on Windows.
- A network namespace of its own, in which no interface is up. Linux, where user namespaces are allowed.
- A Landlock rule set: no file can be written, made, removed, renamed or executed, and only Python's library and
  the system's can be read. Linux from 5.13, where Landlock is enabled.
- An empty folder, Python's isolated mode and an empty environment. The superuser becomes nobody first.
What it does not do: it is a guard against accidents of generated code, not against an attacker, who might use a
fault of the kernel. What a program prints is dropped; that it reached its end is told by itself, so one that is
made to cheat can. For code that means harm, run the whole experiment in a virtual machine.
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

MEMORY = 1 << 30
_SECONDS = 3  # of processor time
_CLOCK = 20.0  # seconds of the clock: several times more, because others may be at work

# Runs first in the new process, takes away its rights one after the other, and lets the program take over.
_GUARD = """
import ctypes, os, resource, struct, sys
program = sys.stdin.buffer.read()
tell = os.dup(1)
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
    said = "passed"
except BaseException as error:
    said = type(error).__name__
os.write(tell, said.encode())
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
    "compute for ever": "while True: pass",
}
_HARMLESS = "import math, typing, collections, hashlib\nassert math.sqrt(4) == 2\n"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a program: it passes if it reaches its end without an exception."""

    passed: bool
    said: str  # `passed`, an exception's name, `time limit`, or nothing if it was killed


def run(program: str, clock: float = _CLOCK) -> Outcome:
    """Run a program's text under guard."""
    guard = f"MEMORY, SECONDS = {MEMORY}, {_SECONDS}\n{_GUARD}"
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
            said = process.communicate(program.encode(errors="replace"), timeout=clock)[0].decode()
        except subprocess.TimeoutExpired:
            said = "time limit"
        finally:
            end(process)
    return Outcome(said == "passed", said)


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of a program and of anything it started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.communicate()


def probe() -> dict[str, bool]:
    """What a program could do here, by the names of PROBES: true is what is not guarded."""
    if sys.platform == "win32":
        raise UserError("expected a system that can limit processes, found Windows; run this under WSL or Linux")
    if not run(_HARMLESS).passed:
        raise UserError(
            f"a harmless program does not run in the sandbox ({run(_HARMLESS).said or 'it was killed'}); as the "
            "superuser, check that every user can read Python's library, or run this as another user"
        )
    with tempfile.TemporaryDirectory() as name, socket.create_server(("127.0.0.1", 0)) as server:
        folder, file = Path(name), Path(name) / "yours"
        folder.chmod(0o777)
        file.write_text("x", encoding="utf-8")
        file.chmod(0o666)
        there = {"port": server.getsockname()[1], "folder": name, "file": str(file)}
        found = {what: run(program.format(**there)) for what, program in PROBES.items()}
        # A program that becomes another one cannot tell that it passed: it ends without a word, as if killed.
        return {what: outcome.passed for what, outcome in found.items()}


def require_guard(allow: bool) -> dict[str, bool]:
    """Probe; without `allow`, refuse where a program could change files or reach the network."""
    found = probe()
    open_doors = [what for what in list(PROBES)[:4] if found[what]]
    if open_doors and not allow:
        raise UserError(
            f"a program could {' and '.join(open_doors)} here: this system does not guard it (Landlock and "
            "network namespaces do, on Linux); run this in a container or a virtual machine, and say "
            "--weak-sandbox there"
        )
    return found
