"""spd-lsp: local code completion that knows your repository.

`load` opens a completer of code; `superposed_decoding` is a way of transformers' `generate`. The README of this
package shows both.
"""

from importlib import import_module

__version__ = "0.1.0"

_HOMES = {
    "Completer": "spd_lsp.api.completer",
    "Completion": "spd_lsp.api.completer",
    "Completions": "spd_lsp.api.completer",
    "UserError": "ngram_builders.errors",
    "load": "spd_lsp.api.completer",
    "superposed_decoding": "spd_lsp.api.generate",
}
__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> object:
    """A name of the package, imported when it is first used: some of them take seconds."""
    if name not in _HOMES:
        raise AttributeError(f"module 'spd_lsp' has no attribute {name!r}")
    if name == "superposed_decoding":
        from spd_lsp.extras import missing_for_models

        if missing := missing_for_models():
            raise ModuleNotFoundError(f"spd_lsp.superposed_decoding {missing}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
