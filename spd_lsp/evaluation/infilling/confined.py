"""Run an untrusted program from standard input: the child process of `sandbox.py`. Run as a file, not imported.

    python -I -S confined.py CPU_SECONDS MEMORY_BYTES STATUS

It exits with STATUS if the program ran to its end, and with another status if not. Limits apply on all systems. On
Linux on x86-64 a filter also refuses all system calls beyond computing and reading files: the program can start no
process, open no socket, send no signal and write no file.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import struct
import sys
from contextlib import suppress

# System calls of Linux on x86-64.
_ALLOWED = {
    "read": 0, "write": 1, "close": 3, "stat": 4, "fstat": 5, "lstat": 6, "poll": 7, "lseek": 8, "mmap": 9,
    "mprotect": 10, "munmap": 11, "brk": 12, "rt_sigaction": 13, "rt_sigprocmask": 14, "rt_sigreturn": 15,
    "pread64": 17, "readv": 19, "writev": 20, "access": 21, "select": 23, "sched_yield": 24, "mremap": 25,
    "madvise": 28, "nanosleep": 35, "getpid": 39, "exit": 60, "uname": 63, "getcwd": 79, "readlink": 89,
    "gettimeofday": 96, "getrlimit": 97, "getrusage": 98, "sysinfo": 99, "times": 100, "getuid": 102,
    "getgid": 104, "geteuid": 107, "getegid": 108, "getppid": 110, "sigaltstack": 131, "gettid": 186,
    "futex": 202, "sched_getaffinity": 204, "getdents64": 217, "clock_gettime": 228, "clock_getres": 229,
    "clock_nanosleep": 230, "exit_group": 231, "newfstatat": 262, "readlinkat": 267, "faccessat": 269,
    "getrandom": 318, "statx": 332, "rseq": 334, "faccessat2": 439,
}  # fmt: skip
_OPENING = ((2, 24), (257, 32))  # open and openat, and where a filter sees the flags
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_X86_64 = 0xC000003E  # AUDIT_ARCH_X86_64
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 38, 22, 2
_LOAD, _IF_EQUAL, _IF_ANY, _RETURN = 0x20, 0x15, 0x45, 0x06  # instructions of the kernel's filters
_CALL, _ARCHITECTURE = 0, 4  # where a filter sees a call's number and the machine's
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | 1  # EPERM


class _Program(ctypes.Structure):  # a filter as the kernel takes it
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def _refuse_calls() -> None:
    """Install a filter that refuses all system calls not on the list, and opening files for writing."""
    code = [(_LOAD, 0, 0, _ARCHITECTURE), (_IF_EQUAL, 1, 0, _X86_64), (_RETURN, 0, 0, _REFUSE)]
    code.append((_LOAD, 0, 0, _CALL))
    for call in _ALLOWED.values():
        code += [(_IF_EQUAL, 0, 1, call), (_RETURN, 0, 0, _ALLOW)]
    for call, flags in _OPENING:
        code += [(_IF_EQUAL, 0, 4, call), (_LOAD, 0, 0, flags), (_IF_ANY, 0, 1, _WRITES)]
        code += [(_RETURN, 0, 0, _REFUSE), (_RETURN, 0, 0, _ALLOW)]
    code.append((_RETURN, 0, 0, _REFUSE))
    # An instruction: opcode, jumps if true and if false, operand.
    program = _Program(len(code), b"".join(struct.pack("HBBI", *instruction) for instruction in code))
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0)


def _main(cpu_seconds: str, memory_bytes: str, status: str) -> None:
    limits = {
        resource.RLIMIT_CPU: int(cpu_seconds),
        resource.RLIMIT_AS: int(memory_bytes),
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NPROC: 0,  # no bound for root
        resource.RLIMIT_NOFILE: 64,
    }
    for kind, most in limits.items():
        with suppress(OSError, ValueError):  # macOS has no limit of memory
            resource.setrlimit(kind, (most, most))
    source = sys.stdin.buffer.read()
    if (sys.platform, platform.machine()) == ("linux", "x86_64"):  # the only system whose call numbers are listed
        _refuse_calls()
    exec(compile(source, "program", "exec"), {"__name__": "__main__"})
    os._exit(int(status))


if __name__ == "__main__":
    _main(*sys.argv[1:])
