"""spd-lsp: several local code completions for one model pass per token.

`load` opens a completer of code; `superposed_decoding` is a way of transformers' `generate`. README.md shows both.
"""

import os

__version__ = "0.1.0"

# Both are read when numpy and torch are first imported. Products of small models are over before more threads have
# begun, and threads that wait by turning take the cores from the editor.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

_HOMES = {
    "Completer": "spd_lsp.api.completer",
    "Completion": "spd_lsp.api.completer",
    "Completions": "spd_lsp.api.completer",
    "UserError": "ngram_builders.errors",
    "load": "spd_lsp.api.completer",
    "superposed_decoding": "spd_lsp.api.generate",
}
__all__ = ["Completer", "Completion", "Completions", "UserError", "__version__", "load", "superposed_decoding"]


def __getattr__(name: str) -> object:
    """A name of the package, imported when it is first used: some of them take seconds.

    Nothing else is imported above: `python -m spd_lsp` would take it from the working folder, maybe a stranger's.
    """
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module 'spd_lsp' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
